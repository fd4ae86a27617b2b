//! Names from manifests, the API, the runtime and plugins that become one component of a path.
//!
//! Every such name is checked on input: joined to a directory, `..` or a slash would lead to another path, where the kubelet
//! would create, unmount and remove as root.

use crate::containers::{all_containers, spec_of};
use crate::ids::PodRef;
use crate::k8s::Pod;

/// `NAME_MAX` of Linux.
const MAX_COMPONENT: usize = 255;
/// UIDs are only a part of the names of cgroups and log directories.
const MAX_UID: usize = 128;

/// Why the name cannot be one component of a path, with the messages of the API's validation of path segments.
#[must_use]
pub fn path_component_problem(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("must not be empty"),
        "." => Some("may not be '.'"),
        ".." => Some("may not be '..'"),
        name if name.contains('/') => Some("may not contain '/'"),
        name if name.chars().any(char::is_control) => Some("may not contain control characters"),
        name if name.len() > MAX_COMPONENT => Some("must be no more than 255 bytes"),
        _ => None,
    }
}

/// Why the text cannot be the UID of a pod.
#[must_use]
pub fn pod_uid_problem(uid: &str) -> Option<&'static str> {
    path_component_problem(uid).or_else(|| (uid.len() > MAX_UID).then_some("must be no more than 128 bytes"))
}

impl PodRef {
    /// The field of the pod's identity that cannot be part of a path, with the problem.
    #[must_use]
    pub fn path_problem(&self) -> Option<String> {
        let of = |field: &str, problem: Option<&str>| problem.map(|problem| format!("{field} {problem}"));
        of("metadata.uid", pod_uid_problem(self.uid.as_str()))
            .or_else(|| of("metadata.name", path_component_problem(&self.name)))
            .or_else(|| of("metadata.namespace", path_component_problem(&self.namespace)))
    }
}

/// The first of the pod's names that cannot be part of a path, with the problem. An API server rejects such pods.
#[must_use]
pub fn pod_path_problem(pod: &Pod) -> Option<String> {
    let containers = all_containers(pod).map(|container| ("container", container.name()));
    let volumes = spec_of(pod).volumes.iter().flatten().map(|volume| ("volume", volume.name.as_str()));
    let problem = |(kind, name): (&str, &str)| {
        let problem = path_component_problem(name)?;
        Some(format!("the name of {kind} {name:?} {problem}"))
    };
    PodRef::of(pod).path_problem().or_else(|| containers.chain(volumes).find_map(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: [(&str, &str); 8] = [
        ("", "must not be empty"),
        (".", "may not be '.'"),
        ("..", "may not be '..'"),
        ("../../etc", "may not contain '/'"),
        ("/etc", "may not contain '/'"),
        ("a/b", "may not contain '/'"),
        ("a\0b", "may not contain control characters"),
        ("a\nb", "may not contain control characters"),
    ];

    #[test]
    fn path_traversal_empty_and_overlong_names_are_rejected() {
        for (name, problem) in BAD {
            assert_eq!(path_component_problem(name), Some(problem), "{name:?}");
        }
        assert_eq!(path_component_problem(&"a".repeat(255)), None);
        assert_eq!(path_component_problem(&"ä".repeat(128)), Some("must be no more than 255 bytes"));
        for name in ["web", "...", "..a", "a b", "9a15d2b5-c152-46b9-96e0-d57032629e1f", "-x", "ü"] {
            assert_eq!(path_component_problem(name), None, "{name:?}");
        }
        assert_eq!(pod_uid_problem(&"a".repeat(128)), None);
        assert_eq!(pod_uid_problem(&"a".repeat(129)), Some("must be no more than 128 bytes"));
    }

    #[test]
    fn every_pod_name_that_becomes_a_path_is_validated() {
        let good = serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
            "spec": {
                "containers": [{"name": "app"}], "initContainers": [{"name": "init"}],
                "ephemeralContainers": [{"name": "debug"}], "volumes": [{"name": "data", "emptyDir": {}}],
            },
        });
        let problem = |pointer: &str, name: &str| {
            let mut pod = good.clone();
            if let Some(field) = pod.pointer_mut(pointer) {
                *field = name.into();
            }
            pod_path_problem(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(problem("/none", ""), None);
        let fields = [
            ("/metadata/uid", "metadata.uid"),
            ("/metadata/name", "metadata.name"),
            ("/metadata/namespace", "metadata.namespace"),
            ("/spec/containers/0/name", "container"),
            ("/spec/initContainers/0/name", "container"),
            ("/spec/ephemeralContainers/0/name", "container"),
            ("/spec/volumes/0/name", "volume"),
        ];
        for (pointer, field) in fields {
            for (name, why) in BAD {
                let found = problem(pointer, name).expect(pointer);
                assert!(found.contains(field) && found.ends_with(why), "{pointer} {name:?}: {found}");
            }
        }
    }
}
