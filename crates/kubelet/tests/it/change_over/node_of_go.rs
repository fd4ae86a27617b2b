//! The recording of a root directory of the Go kubelet 1.36.3 with its sandboxes and containers, and a node that is made of it.
//!
//! `go_kubelet.json` has the manifests, the requests that the runtime got, the mounts and the entries of the root directory. Paths, UIDs and
//! the cgroup are placeholders.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use config::Features;
use kubelet_core::resources::amounts_file::{self, ACTUATED, ALLOCATED};
use kubelet_core::sources::static_pod::{Origin, parse_manifest};
use model::observation::NamespaceMode;
use model::request::{
    ContainerRequest, ContainerSecurity, DnsRequest, LinuxResources, Mount, Namespaces, SandboxRequest,
    SandboxSecurity,
};
use model::{ContainerState, PodRef, PodUid, SandboxId};
use ports::Runtime;
use ports::runtime::Scope;
use serde_json::{Value, json};

use crate::node::{IMAGE, Node};

const RECORDED: &str = include_str!("go_kubelet.json");
const RECORDED_IMAGE: &str = "localhost/kubelet-rs/busybox:1";

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn map(value: &Value) -> BTreeMap<String, String> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

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

    fn list(&self, name: &str) -> &[Value] {
        self.all[name].as_array().expect("a list")
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
        let what = |entry: &Value| match (entry.get("link"), entry.get("text")) {
            (Some(target), _) => format!("link to {}", stable(&text(target))),
            (None, Some(_)) => format!("file {}", text(&entry["mode"])),
            (None, None) => format!("directory {}", text(&entry["mode"])),
        };
        self.list("entries").iter().map(|entry| (text(&entry["path"]), what(entry))).collect()
    }

    /// Labels, annotations and mounts of sandboxes and containers, as recorded.
    pub(super) fn expected_labels(&self) -> BTreeMap<String, Value> {
        let sandbox = |sandbox: &Value| {
            let mut annotations = map(&sandbox["annotations"]);
            annotations.remove("kubernetes.io/config.seen");
            (
                text(&sandbox["pod"]),
                json!({"labels": sandbox["labels"], "annotations": annotations, "parent": sandbox["cgroupParent"]}),
            )
        };
        let container = |container: &Value| {
            let mut annotations = map(&container["annotations"]);
            annotations.remove("io.kubernetes.container.restartCount");
            let name = format!("{}/{}", text(&container["pod"]), text(&container["name"]));
            (name, json!({"labels": container["labels"], "annotations": annotations}))
        };
        let sandboxes = self.list("sandboxes").iter().map(sandbox);
        sandboxes.chain(self.list("containers").iter().map(container)).collect()
    }

    /// The same of what runs on the node.
    pub(super) fn labelled(&self, node: &Node) -> BTreeMap<String, Value> {
        let found = node.call_runtime(|runtime| async move {
            let mut found = BTreeMap::new();
            for sandbox in runtime.list_sandboxes(&Scope::Node).await? {
                let info = runtime.sandbox_info(&sandbox.id).await?;
                let config = serde_json::from_str::<Value>(&info).expect("JSON")["config"].clone();
                let mut annotations = map(&config["annotations"]);
                annotations.remove("kubernetes.io/config.seen");
                let parent = config["linux"]["cgroup_parent"].clone();
                let name = sandbox.pod.name.trim_end_matches("-node").to_owned();
                found.insert(
                    name,
                    json!({"labels": config["labels"], "annotations": annotations, "parent": parent}),
                );
            }
            for container in runtime.list_containers(&Scope::Node).await? {
                let mut annotations = container.annotations.clone();
                annotations.remove("io.kubernetes.container.restartCount");
                let pod = container.labels["io.kubernetes.pod.name"].trim_end_matches("-node").to_owned();
                let labels = json!({"labels": container.labels, "annotations": annotations});
                found.insert(format!("{pod}/{}", container.name), labels);
            }
            Ok(found)
        });
        found.expect("the runtime answers")
    }
}

/// A link into a directory whose name contains the time.
fn stable(target: &str) -> String {
    if target.starts_with("..2") { "..time".to_owned() } else { target.to_owned() }
}

/// The entries below a root directory by path: kind, permissions and target. Sockets are left out.
pub(super) fn entries(root: &Path) -> BTreeMap<String, String> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a directory").flatten() {
            let path = entry.path();
            let metadata = fs::symlink_metadata(&path).expect("metadata");
            let mode = metadata.mode() & 0o7777;
            let what = if metadata.is_symlink() {
                let target = fs::read_link(&path).expect("a link");
                format!("link to {}", stable(&target.display().to_string()))
            } else if metadata.is_dir() {
                open.push(path.clone());
                format!("directory {mode:o}")
            } else if metadata.is_file() {
                format!("file {mode:o}")
            } else {
                continue;
            };
            found.insert(path.strip_prefix(root).expect("below").display().to_string(), what);
        }
    }
    found
}

/// Everything that is mounted below the root directory: id and mount point. A mount that was made again has another id.
pub(super) fn mounts(node: &Node) -> Vec<String> {
    let below = format!("{}/", node.path("root").display());
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let ours = fields.filter(|fields| fields[4].starts_with(&below));
    let mut found: Vec<String> = ours.map(|fields| format!("{} {}", fields[0], fields[4])).collect();
    found.sort();
    found
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
        go.make_root();
        go.make_pods();
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
        let found = self.recording.list("entries").iter().find(|entry| entry["path"] == path);
        text(&found.expect("an entry")["text"])
    }

    /// The id of each container, by pod and name.
    pub(super) fn containers(&self) -> BTreeMap<String, String> {
        let listed =
            self.node.call_runtime(|runtime| async move { runtime.list_containers(&Scope::Node).await });
        let name = |labels: &BTreeMap<String, String>, name: &str| {
            format!("{}/{name}", labels["io.kubernetes.pod.name"].trim_end_matches("-node"))
        };
        let listed = listed.expect("the runtime answers").into_iter();
        listed.map(|c| (name(&c.labels, &c.name), c.id.to_string())).collect()
    }

    /// The containers of `ordered` that have run, each time they did.
    pub(super) fn runs(&self) -> Vec<String> {
        let dir = self.node.path("root/pods").join(&self.uids["ordered"]);
        let file = fs::read_to_string(dir.join("volumes/kubernetes.io~empty-dir/d/runs"));
        file.expect("runs").lines().map(str::to_owned).collect()
    }

    /// The root directory with its mounts. Like the Go kubelet, a mount of its own that passes mounts on.
    fn make_root(&self) {
        let root = self.node.path("root");
        fs::create_dir_all(&root).expect("a directory");
        let path = root.to_str().expect("a path");
        run("mount", &["--bind", path, path]);
        run("mount", &["--make-rshared", path]);
        let mounts = map(&self.recording.all["mounts"]);
        let binds: Vec<&String> =
            mounts.iter().filter(|(_, kind)| *kind != "tmpfs").map(|(path, _)| path).collect();
        for entry in self.recording.list("entries") {
            let path = text(&entry["path"]);
            if !binds.iter().any(|bound| Path::new(&path).starts_with(bound)) {
                make(&root.join(&path), entry, mounts.contains_key(&path));
            }
        }
        let web = root.join("pods").join(&self.uids["web"]);
        let sources = [web.join("volumes/kubernetes.io~empty-dir/d/one"), self.node.path("host/two")];
        for (target, source) in binds.into_iter().zip(sources) {
            let target = root.join(target);
            fs::create_dir_all(&target).expect("a directory");
            run("mount", &["--bind", source.to_str().expect("a path"), target.to_str().expect("a path")]);
        }
    }

    fn make_pods(&self) {
        for sandbox in self.recording.list("sandboxes") {
            let request = sandbox_request(sandbox);
            fs::create_dir_all(&request.log_directory).expect("a directory");
            let asked = request.clone();
            let id = self.node.call_runtime(|runtime| async move { runtime.run_sandbox(&asked).await });
            let id = id.expect("a sandbox");
            let is_of_pod = |container: &&Value| container["pod"] == sandbox["pod"];
            for name in ["init", "side", "main"] {
                let of_name = |container: &&Value| container["name"] == name;
                let all = self.recording.list("containers").iter();
                for container in all.filter(is_of_pod).filter(of_name) {
                    self.run_container(&id, &request, container);
                }
            }
        }
    }

    /// Starts the container, and waits for its end if it did not run when it was recorded.
    fn run_container(&self, sandbox: &SandboxId, pod: &SandboxRequest, recorded: &Value) {
        let request = container_request(recorded);
        fs::create_dir_all(Path::new(&pod.log_directory).join(&request.name)).expect("a directory");
        let (sandbox, pod) = (sandbox.clone(), pod.clone());
        let id = self.node.call_runtime(|runtime| async move {
            let id = runtime.create_container(&sandbox, &request, &pod).await?;
            runtime.start_container(&id).await?;
            Ok(id)
        });
        let id = id.expect("a container");
        let is_running = recorded["isRunning"] == true;
        let wanted = if is_running { ContainerState::Running } else { ContainerState::Exited };
        self.node.eventually("the container has the recorded state", |node| {
            let id = id.clone();
            let status = node.call_runtime(|runtime| async move { runtime.container_status(&id).await })?;
            if status.state == wanted { Ok(()) } else { Err(format!("{:?}", status.state)) }
        });
    }
}

fn make(path: &PathBuf, entry: &Value, is_tmpfs: bool) {
    if let Some(target) = entry.get("link") {
        symlink(text(target), path).expect("a link");
        return;
    }
    match entry.get("text") {
        Some(content) => fs::write(path, text(content)).expect("a file"),
        None => fs::create_dir_all(path).expect("a directory"),
    }
    if is_tmpfs {
        run("mount", &["-t", "tmpfs", "tmpfs", path.to_str().expect("a path")]);
    }
    let mode = u32::from_str_radix(&text(&entry["mode"]), 8).expect("permissions");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
}

fn namespaces() -> Namespaces {
    Namespaces { pid: NamespaceMode::Container, ..Namespaces::default() }
}

fn sandbox_request(recorded: &Value) -> SandboxRequest {
    let labels = map(&recorded["labels"]);
    let label = |name: &str| labels[&format!("io.kubernetes.pod.{name}")].clone();
    SandboxRequest {
        pod: PodRef::new(&label("namespace"), &label("name"), label("uid")),
        attempt: 0,
        hostname: text(&recorded["hostname"]),
        log_directory: text(&recorded["logDirectory"]),
        dns: DnsRequest::default(),
        port_mappings: Vec::new(),
        annotations: map(&recorded["annotations"]),
        cgroup_parent: text(&recorded["cgroupParent"]),
        sysctls: BTreeMap::new(),
        security: SandboxSecurity { namespaces: namespaces(), ..SandboxSecurity::default() },
        overhead: None,
        resources: None,
        runtime_handler: String::new(),
        labels,
    }
}

fn container_request(recorded: &Value) -> ContainerRequest {
    let strings = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let mount = |mount: &Value| Mount {
        host_path: text(&mount[0]),
        container_path: text(&mount[1]),
        read_only: mount[2] == true,
        ..Mount::default()
    };
    let attempt = recorded["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok());
    ContainerRequest {
        name: text(&recorded["name"]),
        attempt: attempt.expect("an attempt"),
        image: IMAGE.to_owned(),
        user_specified_image: RECORDED_IMAGE.to_owned(),
        runtime_handler: String::new(),
        command: strings(&recorded["command"]),
        args: Vec::new(),
        working_dir: String::new(),
        env: Vec::new(),
        mounts: recorded["mounts"].as_array().expect("mounts").iter().map(mount).collect(),
        devices: Vec::new(),
        cdi_devices: Vec::new(),
        labels: map(&recorded["labels"]),
        annotations: map(&recorded["annotations"]),
        log_path: text(&recorded["logPath"]),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: LinuxResources::default(),
        security: ContainerSecurity { namespaces: namespaces(), ..ContainerSecurity::default() },
        stop_signal: None,
    }
}
