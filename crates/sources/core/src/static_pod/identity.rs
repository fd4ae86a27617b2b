//! The identity of a static pod: name, namespace, UID and the annotations about its source (docs/behaviour/static-pods.md).
//! Never inspects the pod's content, except to derive the UID from it.

use std::fmt;

use jiff::Timestamp;
use model::PodSource;
use model::annotations as keys;
use model::k8s::{Pod, Toleration};

use super::core_pod::core_pod_text;

/// The origin of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// An absolute path.
    File(String),
    Url(String),
}

impl Origin {
    #[must_use]
    pub const fn source(&self) -> PodSource {
        match self {
            Self::File(_) => PodSource::File,
            Self::Url(_) => PodSource::Http,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Url(url) => f.write_str(url),
        }
    }
}

/// Gives a pod as written in a manifest its identity on this node.
///
/// A pod without a UID gets one derived from its content and its origin, the same as with the Go kubelet: a changed
/// manifest is another pod, and a change-over between the kubelets restarts nothing.
pub fn apply_identity(pod: &mut Pod, origin: &Origin, node_name: &str) {
    if pod.metadata.uid.as_deref().unwrap_or_default().is_empty() {
        pod.metadata.uid = Some(content_uid(pod, origin, node_name));
    }
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let meta = &mut pod.metadata;
    if let Some(name) = meta.name.as_deref().filter(|name| !name.is_empty()) {
        meta.name = Some(format!("{name}-{}", node_name.to_lowercase()));
    }
    if meta.namespace.as_deref().unwrap_or_default().is_empty() {
        meta.namespace = Some("default".to_owned());
    }
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(keys::CONFIG_HASH.to_owned(), uid);
    annotations.insert(keys::CONFIG_SOURCE.to_owned(), origin.source().as_str().to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node_name.to_owned());
    match origin {
        Origin::File(path) => {
            annotations.insert(keys::CONFIG_FILE.to_owned(), path.clone());
            tolerate_no_execute(spec.tolerations.get_or_insert_default());
        }
        Origin::Url(_) => {}
    }
}

/// Records when the kubelet first saw the pod.
pub fn mark_first_seen(pod: &mut Pod, at: Timestamp) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(keys::CONFIG_SEEN.to_owned(), at.to_string());
}

/// A pod from a file belongs to the node: no taint of the node evicts it.
fn tolerate_no_execute(tolerations: &mut Vec<Toleration>) {
    let everything = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    if !tolerations.contains(&everything) {
        tolerations.push(everything);
    }
}

fn content_uid(pod: &Pod, origin: &Origin, node_name: &str) -> String {
    let mut hash = Fnv128a::new();
    match core_pod_text(pod) {
        Some(text) => hash.write(text.as_bytes()),
        // Object fields are written in one order and maps are sorted, so the JSON is canonical. A pod can always be written
        // as JSON; otherwise name and origin would still distinguish pods.
        None => hash.write(&serde_json::to_vec(pod).unwrap_or_default()),
    }
    match origin {
        Origin::File(path) => hash.write(format!("host:{node_name}file:{path}").as_bytes()),
        Origin::Url(url) => hash.write(format!("url:{url}").as_bytes()),
    }
    format!("{:032x}", hash.0)
}

/// FNV-1a in 128 bits.
struct Fnv128a(u128);

impl Fnv128a {
    const fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UIDs that the Go kubelet 1.36.2 gave to this manifest with these origins, on the node `refnode`.
    #[test]
    fn static_pod_uids_are_those_of_the_go_kubelet() {
        let manifest = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static", "namespace": "diff"},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
                "name": "main", "image": "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
                "command": ["sleep", "3600"],
            }]},
        });
        let recorded = [
            ("/work/judge/run.zr0cso5s/manifests/static.yaml", "0a8ee7a5830754aed5943a9f1629ae55"),
            ("/work/judge/run.zqc2wqt4/manifests/static.yaml", "67d959737ae508c04e8149fa782c0172"),
            ("/work/judge/run.9wn2dxts/manifests/static.yaml", "9fe5530685f6e095086509b2e4174ac7"),
        ];
        for (path, uid) in recorded {
            let mut pod: Pod = serde_json::from_value(manifest.clone()).unwrap();
            apply_identity(&mut pod, &Origin::File(path.to_owned()), "refnode");
            assert_eq!(pod.metadata.uid.as_deref(), Some(uid), "{path}");
        }
    }

    #[test]
    fn the_hash_is_fnv_1a_of_128_bits() {
        let hash = |text: &str| {
            let mut hash = Fnv128a::new();
            hash.write(text.as_bytes());
            format!("{:032x}", hash.0)
        };
        assert_eq!(hash(""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(hash("a"), "d228cb696f1a8caf78912b704e4a8964");
    }
}
