//! Mount points inside a volume where a container mounts another one. A volume whose files the kubelet writes is mounted
//! read-only, so the runtime could not create them.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use model::containers::all_containers;
use model::k8s::{Pod, VolumeMount};
use model::payload::Payload;

/// The directories, relative to the volume, that must exist before it is mounted: the outermost of each branch.
/// A mount over a file of the volume itself needs none.
#[must_use]
pub fn nested_mount_points(pod: &Pod, volume: &str, payload: &Payload) -> BTreeSet<String> {
    let mut points = BTreeSet::new();
    for container in all_containers(pod) {
        let mounts = container.volume_mounts();
        for own in mounts.iter().filter(|mount| mount.name == volume && !has_sub_path(mount)) {
            let below: BTreeSet<&Path> =
                mounts.iter().filter_map(|other| inside(&own.mount_path, &other.mount_path)).collect();
            let is_outermost = |point: &&&Path| point.ancestors().skip(1).all(|above| !below.contains(above));
            points.extend(below.iter().filter(is_outermost).map(|point| point.display().to_string()));
        }
    }
    let is_shown = |point: &str| payload.keys().any(|file| Path::new(file).starts_with(first(point)));
    points.retain(|point| !is_shown(point));
    points
}

/// The rest of the path, if it lies strictly below and has no `..`.
fn inside<'a>(outer: &str, inner: &'a str) -> Option<&'a Path> {
    let rest = Path::new(inner).strip_prefix(outer).ok()?;
    let is_plain = rest.components().all(|step| matches!(step, Component::Normal(_)));
    (is_plain && rest.components().next().is_some()).then_some(rest)
}

fn first(point: &str) -> &str {
    point.split_once('/').map_or(point, |(first, _)| first)
}

/// The mount shows only a part of its volume.
#[must_use]
pub fn has_sub_path(mount: &VolumeMount) -> bool {
    let given = |field: &Option<String>| field.as_deref().is_some_and(|path| !path.is_empty());
    given(&mount.sub_path) || given(&mount.sub_path_expr)
}

#[cfg(test)]
mod tests {
    use model::payload::PayloadFile;
    use serde_json::{Value, json};

    use super::*;

    fn points(mounts: Value, files: &[&str]) -> Vec<String> {
        let pod: Pod = serde_json::from_value(
            json!({"spec": {"containers": [{"name": "app", "volumeMounts": mounts}]}}),
        )
        .unwrap();
        let file = PayloadFile { content: Vec::new(), mode: 0o644, owner: None };
        let payload = files.iter().map(|path| ((*path).to_owned(), file.clone())).collect();
        nested_mount_points(&pod, "cfg", &payload).into_iter().collect()
    }

    #[test]
    fn nested_mount_points_are_the_outermost_of_each_branch() {
        let mounts = json!([
            {"name": "cfg", "mountPath": "/etc/app"},
            {"name": "a", "mountPath": "/etc/app/data"},
            {"name": "b", "mountPath": "/etc/app/data/deep"},
            {"name": "c", "mountPath": "/etc/app/x/y/"},
            {"name": "d", "mountPath": "/etc/application"},
            {"name": "e", "mountPath": "/etc"},
        ]);
        assert_eq!(points(mounts, &["app.conf"]), ["data", "x/y"]);
    }

    #[test]
    fn nested_mount_points_leave_out_files_of_the_volume() {
        let mounts = json!([
            {"name": "cfg", "mountPath": "/etc/app"},
            {"name": "a", "mountPath": "/etc/app/app.conf"},
            {"name": "b", "mountPath": "/etc/app/dir/more"},
        ]);
        assert_eq!(points(mounts, &["app.conf", "dir/one"]), <[&str; 0]>::default());
    }

    #[test]
    fn sub_path_mounts_and_paths_with_parent_steps_need_no_mount_point() {
        let part = json!([
            {"name": "cfg", "mountPath": "/etc/app", "subPath": "sub"},
            {"name": "a", "mountPath": "/etc/app/data"},
        ]);
        assert_eq!(points(part, &[]), <[&str; 0]>::default());
        let back = json!([
            {"name": "cfg", "mountPath": "/etc/app"},
            {"name": "a", "mountPath": "/etc/app/../../root"},
        ]);
        assert_eq!(points(back, &[]), <[&str; 0]>::default());
    }
}
