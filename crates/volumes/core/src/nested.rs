//! Mount points inside a volume where a container mounts another one. A volume whose files the kubelet writes is mounted
//! read-only, so the runtime could not create them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Component, Path};

use model::k8s::VolumeMount;
use model::payload::Payload;

/// The directories, relative to the volume, that must exist before it is mounted. `points`: those of `mount_points` in this volume.
/// A mount over a file of the volume itself needs none.
#[must_use]
pub fn nested_mount_points<'a>(
    points: impl Iterator<Item = &'a String>,
    payload: &Payload,
) -> BTreeSet<String> {
    let is_shown = |point: &str| {
        let first = first(point);
        let below = format!("{first}/");
        let mut after = payload.range::<str, _>((Bound::Included(&*below), Bound::Unbounded));
        payload.contains_key(first) || after.next().is_some_and(|(file, _)| file.starts_with(&*below))
    };
    points.filter(|point| !is_shown(point)).cloned().collect()
}

/// The mount points of one container that are inside another of its mounts: the volume that is mounted there, and the path in it; the
/// outermost of each branch. In the order of their paths each mount follows the one that it is inside of, so that one pass finds the
/// nearest of each.
pub(super) fn mount_points(mounts: &[VolumeMount]) -> Vec<(&str, String)> {
    let mut points = Vec::new();
    let mut by_path: BTreeMap<&Path, Option<&str>> = BTreeMap::new();
    for mount in mounts {
        // Of several mounts at one path the last one hides the others.
        let volume = (!has_sub_path(mount)).then_some(&*mount.name);
        by_path.insert(Path::new(&mount.mount_path), volume);
    }
    let mut outer: Vec<(&Path, Option<&str>)> = Vec::new();
    for (path, volume) in by_path {
        while outer.last().is_some_and(|(above, _)| !path.starts_with(above)) {
            outer.pop();
        }
        if let Some((above, Some(owner))) = outer.last()
            && let Some(point) = inside(above, path)
        {
            points.push((*owner, point.display().to_string()));
        }
        outer.push((path, volume));
    }
    points
}

/// The rest of the path, if it lies strictly below and has no `..`.
fn inside<'a>(outer: &Path, inner: &'a Path) -> Option<&'a Path> {
    let rest = inner.strip_prefix(outer).ok()?;
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
    use model::k8s::Pod;
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
        let index = crate::index::VolumeIndex::of(&pod);
        nested_mount_points(index.nested("cfg"), &payload).into_iter().collect()
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

    #[test]
    fn mount_point_inside_several_mounts_belongs_to_the_nearest() {
        let mounts = json!([
            {"name": "a", "mountPath": "/etc/app/conf.d/x"},
            {"name": "cfg", "mountPath": "/etc"},
            {"name": "other", "mountPath": "/etc/app"},
            {"name": "b", "mountPath": "/etc/app.d"},
            {"name": "hidden", "mountPath": "/etc//"},
            {"name": "cfg", "mountPath": "/etc/./"},
        ]);
        assert_eq!(points(mounts, &[]), ["app", "app.d"]);
    }
}
