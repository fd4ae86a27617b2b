//! The recording of a root directory of the Go kubelet 1.36.3 with its sandboxes and containers, and a node that is made of it.
//!
//! `go_kubelet.json` has the manifests, the requests that the runtime got, the mounts and the entries of the root directory. Paths, UIDs and
//! the cgroup are placeholders.

use std::collections::BTreeMap;
use std::fs;

use config::Features;
use model::{PodRef, PodUid};
use resources_core::amounts_file::{self, ACTUATED, ALLOCATED};
use serde_json::{Value, json};
use sources_core::static_pod::{Origin, parse_manifest};

use crate::go_node::{make_pods, make_root, recorded_entries, recorded_labels, text, text_of};
use crate::node::{IMAGE, Node};

const RECORDED: &str = include_str!("go_kubelet.json");
const RECORDED_IMAGE: &str = "localhost/kubelet-rs/busybox:1";

/// The file with the checksum of its data, which contains the UIDs of this node.
fn with_checksum(content: &str) -> String {
    let document: Value = serde_json::from_str(content).expect("a document");
    let data: Value = serde_json::from_str(document["data"].as_str().expect("data")).expect("data");
    let entries = data["entries"].as_object().expect("entries").iter();
    let entries = entries.map(|(uid, resources)| {
        (PodUid::new(uid.as_str()), serde_json::from_value(resources.clone()).expect("resources"))
    });
    amounts_file::write(&entries.collect())
}

/// The recording, for one node.
pub(super) struct Recording {
    all: Value,
    pub(super) manifests: BTreeMap<String, Value>,
    pub(super) uids: BTreeMap<String, String>,
}

impl Recording {
    pub(super) fn of(node: &Node) -> Self {
        fs::create_dir_all(node.path("host/two")).expect("a directory");
        let path = |name: &str| node.path(name).display().to_string();
        let mut recorded = RECORDED
            .replace("@ROOT@", &path("root"))
            .replace("@LOGS@", &path("logs/pods"))
            .replace("@HOST@", &path("host"))
            .replace("@CGROUP@", &node.cgroup().path());
        let all: Value = serde_json::from_str(&recorded).expect("a recording");
        let manifests = all["manifests"].as_object().expect("manifests").clone().into_iter();
        let manifests: BTreeMap<String, Value> = manifests.collect();
        let uid_of = |(name, manifest): (&String, &Value)| {
            let origin = Origin::File(node.manifest(name).display().to_string());
            let manifest = manifest.to_string();
            let parsed = parse_manifest(manifest.as_bytes(), &origin, "node", Features::default());
            (name.clone(), PodRef::of(&parsed.expect("a manifest").pods[0]).uid.to_string())
        };
        let uids: BTreeMap<String, String> = manifests.iter().map(uid_of).collect();
        for (name, uid) in &uids {
            recorded = recorded.replace(&format!("@UID:{name}@"), uid);
        }
        let mut all: Value = serde_json::from_str(&recorded).expect("a recording");
        for entry in all["entries"].as_array_mut().expect("entries") {
            if entry["path"] == ALLOCATED || entry["path"] == ACTUATED {
                entry["text"] = with_checksum(&text(&entry["text"])).into();
            }
        }
        Self { all, manifests, uids }
    }

    pub(super) fn tag_image(&self, node: &Node) {
        node.ctr(&["images", "tag", IMAGE, RECORDED_IMAGE]);
        node.eventually("the runtime has the image under its name", |node| {
            let images = node.images();
            if images.contains_key(RECORDED_IMAGE) { Ok(()) } else { Err(format!("{images:?}")) }
        });
    }

    /// The entries of the root directory by path: kind, permissions and target.
    pub(super) fn entries(&self) -> BTreeMap<String, String> {
        recorded_entries(&self.all)
    }

    pub(super) fn labels(&self) -> BTreeMap<String, Value> {
        recorded_labels(&self.all)
    }
}

/// A node as the Go kubelet left it. No kubelet runs; the manifest of the pod `gone` does not exist any more.
pub(super) struct NodeOfGo {
    pub(super) node: Node,
    recording: Recording,
    pub(super) uids: BTreeMap<String, String>,
}

impl NodeOfGo {
    pub(super) fn start() -> Self {
        let node = Node::on_containerd(json!({}));
        let recording = Recording::of(&node);
        recording.tag_image(&node);
        let go = Self { uids: recording.uids.clone(), node, recording };
        make_root(&go.node.path("root"), &go.recording.all);
        make_pods(&go.node, &go.recording.all);
        for name in ["web", "ordered", "crasher"] {
            go.apply(name);
        }
        go
    }

    pub(super) fn apply(&self, name: &str) {
        self.node.apply(name, &self.recording.manifests[name]);
    }

    /// The recorded content of a file in the root directory.
    pub(super) fn text_of(&self, path: &str) -> String {
        text_of(&self.recording.all, path)
    }

    /// The containers of `ordered` that have run, each time they did.
    pub(super) fn runs(&self) -> Vec<String> {
        let dir = self.node.path("root/pods").join(&self.uids["ordered"]);
        let file = fs::read_to_string(dir.join("volumes/kubernetes.io~empty-dir/d/runs"));
        file.expect("runs").lines().map(str::to_owned).collect()
    }
}
