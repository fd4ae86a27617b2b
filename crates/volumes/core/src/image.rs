//! Image volumes (docs/behaviour/images.md): which of them a container mounts, and which runtimes support them. The runtime
//! mounts them, read-only; the kubelet ensures that the image is present, but this module does not pull it.

use std::collections::BTreeMap;

use model::containers::{ContainerRef, spec_of};
use model::k8s::{Pod, Volume};

use crate::has_sub_path;

/// An image volume of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageVolume<'a> {
    pub volume: &'a str,
    /// The reference in the pod's spec.
    pub image: &'a str,
    pub pull_policy: Option<&'a str>,
    /// The container mounts only a `subPath` of it.
    pub has_part: bool,
}

/// The kubelet sets nothing up on the node for such a volume.
#[must_use]
pub const fn is_image(volume: &Volume) -> bool {
    volume.image.is_some()
}

/// The image volumes of the pod, in the order of its spec, mounted or not.
#[must_use]
pub fn all_image_volumes(pod: &Pod) -> Vec<ImageVolume<'_>> {
    let volumes = spec_of(pod).volumes.iter().flatten();
    volumes.filter_map(|volume| image_volume(volume, false)).collect()
}

fn image_volume(volume: &Volume, has_part: bool) -> Option<ImageVolume<'_>> {
    let source = volume.image.as_ref()?;
    Some(ImageVolume {
        volume: &volume.name,
        image: source.reference.as_deref().unwrap_or_default(),
        pull_policy: source.pull_policy.as_deref(),
        has_part,
    })
}

/// The image volumes that the container mounts, each once.
#[must_use]
pub fn image_volumes<'a>(pod: &'a Pod, container: &ContainerRef<'_>) -> Vec<ImageVolume<'a>> {
    let mut has_part: BTreeMap<&str, bool> = BTreeMap::new();
    for mount in container.volume_mounts() {
        *has_part.entry(&mount.name).or_default() |= has_sub_path(mount);
    }
    let volumes = spec_of(pod).volumes.iter().flatten();
    let shown = volumes.filter_map(|volume| image_volume(volume, *has_part.get(&*volume.name)?));
    shown.collect()
}

/// Runtimes do not report whether they support image volumes; older ones treat the mount as one without a source, and fail
/// with a misleading error, or mount the whole image where a `subPath` was requested. An unknown runtime is assumed to
/// support them.
///
/// # Errors
/// The version that is needed.
pub fn check_runtime(name: &str, version: &str, has_part: bool) -> Result<(), String> {
    let (least, what) = match (name, has_part) {
        ("containerd", false) => ((2, 1), "image volumes need"),
        ("containerd", true) => ((2, 2), "image volumes with a subPath need"),
        ("cri-o", false) => ((1, 31), "image volumes need"),
        ("cri-o", true) => ((1, 33), "image volumes with a subPath need"),
        _ => return Ok(()),
    };
    let mut numbers = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) if (major, minor) < least => {
            Err(format!("{what} {name} {}.{} or newer, this is {name} {version}", least.0, least.1))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::containers::find_container;
    use serde_json::json;

    #[test]
    fn image_volumes_lists_each_image_that_the_container_mounts_once() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "volumes": [
                {"name": "tools", "image": {"reference": "registry.example/tools:1", "pullPolicy": "Always"}},
                {"name": "data", "emptyDir": {}},
                {"name": "other", "image": {"reference": "registry.example/other:1"}},
            ],
            "containers": [{"name": "main", "volumeMounts": [
                {"name": "tools", "mountPath": "/tools"},
                {"name": "tools", "mountPath": "/bin", "subPath": "bin"},
                {"name": "data", "mountPath": "/data"},
            ]}],
        }}))
        .unwrap();
        let main = find_container(&pod, "main").unwrap();
        let tools = ImageVolume {
            volume: "tools",
            image: "registry.example/tools:1",
            pull_policy: Some("Always"),
            has_part: true,
        };
        assert_eq!(image_volumes(&pod, &main), [tools]);
        let names: Vec<&str> = all_image_volumes(&pod).iter().map(|volume| volume.volume).collect();
        assert_eq!(names, ["tools", "other"]);
    }

    #[test]
    fn runtime_without_image_volumes_is_reported_with_the_needed_version() {
        for (name, version) in [
            ("containerd", "2.1.0"),
            ("containerd", "v2.1.9+unknown"),
            ("containerd", "3.0"),
            ("cri-o", "1.31.0"),
            ("cri-o", "1.34.2"),
            ("other", "0.1"),
            ("containerd", "unknown"),
        ] {
            assert_eq!(check_runtime(name, version, false), Ok(()), "{name} {version}");
        }
        let refused = check_runtime("containerd", "1.7.24~ds1", false).unwrap_err();
        assert_eq!(refused, "image volumes need containerd 2.1 or newer, this is containerd 1.7.24~ds1");
        assert!(check_runtime("containerd", "2.0.5", false).is_err());
        assert!(check_runtime("cri-o", "1.30.9", false).is_err());
        let part = check_runtime("containerd", "2.1.9+unknown", true).unwrap_err();
        assert_eq!(
            part,
            "image volumes with a subPath need containerd 2.2 or newer, this is containerd 2.1.9+unknown"
        );
        assert_eq!(check_runtime("containerd", "2.2.0", true), Ok(()));
        assert!(check_runtime("cri-o", "1.32.1", true).is_err());
    }
}
