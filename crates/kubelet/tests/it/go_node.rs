//! Makes a node of a recording of the Go kubelet: its root directory with the mounts, and its sandboxes and containers in the runtime.
//!
//! A recording is a JSON document with `sandboxes`, `containers`, `entries` (of the root directory) and `mounts` (by path: `tmpfs`, or what
//! is mounted there).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use model::observation::NamespaceMode;
use model::request::{
    ContainerRequest, ContainerSecurity, Device, DnsRequest, LinuxResources, Mount, Namespaces,
    SandboxRequest, SandboxSecurity,
};
use model::{ContainerId, ContainerState, PodRef, SandboxId};
use ports::Runtime;
use ports::runtime::{ContainerSummary, Scope};
use serde_json::{Value, json};

use crate::node::{IMAGE, Node};

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn map(value: &Value) -> BTreeMap<String, String> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

pub(crate) fn list<'a>(recording: &'a Value, name: &str) -> &'a [Value] {
    recording[name].as_array().expect("a list")
}

/// The recorded content of a file in the root directory.
pub(crate) fn text_of(recording: &Value, path: &str) -> String {
    let found = list(recording, "entries").iter().find(|entry| entry["path"] == path);
    text(&found.expect("an entry")["text"])
}

/// A link into a directory whose name contains the time.
fn stable(target: &str) -> String {
    if target.starts_with("..2") { "..time".to_owned() } else { target.to_owned() }
}

/// The recorded entries of the root directory by path: kind, permissions and target.
pub(crate) fn recorded_entries(recording: &Value) -> BTreeMap<String, String> {
    let what = |entry: &Value| match (entry.get("link"), entry.get("text")) {
        (Some(target), _) => format!("link to {}", stable(&text(target))),
        (None, Some(_)) => format!("file {}", text(&entry["mode"])),
        (None, None) => format!("directory {}", text(&entry["mode"])),
    };
    list(recording, "entries").iter().map(|entry| (text(&entry["path"]), what(entry))).collect()
}

/// Labels and annotations of sandboxes and containers, and the cgroups of the pods, as recorded.
pub(crate) fn recorded_labels(recording: &Value) -> BTreeMap<String, Value> {
    let sandbox = |sandbox: &Value| {
        let labels = &sandbox["labels"];
        let annotations = without(&sandbox["annotations"], "kubernetes.io/config.seen");
        let parent = &sandbox["cgroupParent"];
        (text(&sandbox["pod"]), json!({"labels": labels, "annotations": annotations, "parent": parent}))
    };
    let container = |container: &Value| {
        let annotations = without(&container["annotations"], "io.kubernetes.container.restartCount");
        let name = format!("{}/{}", text(&container["pod"]), text(&container["name"]));
        (name, json!({"labels": container["labels"], "annotations": annotations}))
    };
    let sandboxes = list(recording, "sandboxes").iter().map(sandbox);
    sandboxes.chain(list(recording, "containers").iter().map(container)).collect()
}

/// The same of what is in the runtime.
pub(crate) fn labels(node: &Node) -> BTreeMap<String, Value> {
    let found = node.call_runtime(|runtime| async move {
        let mut found = BTreeMap::new();
        for sandbox in runtime.list_sandboxes(&Scope::Node).await? {
            let info = runtime.sandbox_info(&sandbox.id).await?;
            let config = serde_json::from_str::<Value>(&info).expect("JSON")["config"].clone();
            let annotations = without(&config["annotations"], "kubernetes.io/config.seen");
            let (labels, parent) = (&config["labels"], &config["linux"]["cgroup_parent"]);
            let all = json!({"labels": labels, "annotations": annotations, "parent": parent});
            found.insert(sandbox.pod.name.trim_end_matches("-node").to_owned(), all);
        }
        let of_containers = node.containerd().labels_of_containers().await.expect("the runtime answers");
        for container in runtime.list_containers(&Scope::Node).await? {
            let [labels, annotations] = &of_containers[container.id.as_str()];
            let annotations = without(&json!(annotations), "io.kubernetes.container.restartCount");
            let all = json!({"labels": labels, "annotations": annotations});
            found.insert(name_of(&container), all);
        }
        Ok(found)
    });
    found.expect("the runtime answers")
}

fn without(annotations: &Value, name: &str) -> BTreeMap<String, String> {
    let mut annotations = map(annotations);
    annotations.remove(name);
    annotations
}

/// `pod/container`; without the name of the node in that of a static pod.
fn name_of(container: &ContainerSummary) -> String {
    format!("{}/{}", container.pod.name.trim_end_matches("-node"), container.name)
}

/// The id of each container in the runtime, by pod and name.
pub(crate) fn containers(node: &Node) -> BTreeMap<String, String> {
    let listed = node.call_runtime(|runtime| async move { runtime.list_containers(&Scope::Node).await });
    let listed = listed.expect("the runtime answers").into_iter();
    listed.map(|container| (name_of(&container), container.id.to_string())).collect()
}

/// Names that are random, or contain a time, by what they stand for.
pub(crate) fn normalized(all: BTreeMap<String, String>) -> BTreeMap<String, String> {
    all.into_iter().map(|(path, what)| (normalized_path(&path), what)).collect()
}

fn normalized_path(path: &str) -> String {
    let parts = path.split('/').collect::<Vec<_>>();
    let is_of_container = parts.len() == 5 && parts[2] == "containers";
    let part = |(index, part): (usize, &&str)| match *part {
        _ if is_of_container && index == 4 => "#".to_owned(),
        part if part.starts_with("..2") => "..time".to_owned(),
        part => part.to_owned(),
    };
    parts.iter().enumerate().map(part).collect::<Vec<_>>().join("/")
}

/// Files that only this kubelet writes. The Go kubelet removes them with the pod's directory.
pub(crate) fn is_own(path: &str) -> bool {
    path.ends_with("/pod.json") || path.ends_with("/status.json")
}

/// The entries below a root directory by path: kind, permissions and target. Sockets are left out.
pub(crate) fn entries(root: &Path) -> BTreeMap<String, String> {
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
pub(crate) fn mounts(node: &Node) -> Vec<String> {
    let below = format!("{}/", node.path("root").display());
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let ours = fields.filter(|fields| fields[4].starts_with(&below));
    let mut found: Vec<String> = ours.map(|fields| format!("{} {}", fields[0], fields[4])).collect();
    found.sort();
    found
}

/// The root directory with its mounts. Like the Go kubelet, a mount of its own that passes mounts on.
pub(crate) fn make_root(root: &Path, recording: &Value) {
    fs::create_dir_all(root).expect("a directory");
    let path = root.to_str().expect("a path");
    run("mount", &["--bind", path, path]);
    run("mount", &["--make-rshared", path]);
    let mounts = map(&recording["mounts"]);
    let binds: BTreeMap<&String, &String> = mounts.iter().filter(|(_, source)| *source != "tmpfs").collect();
    for entry in list(recording, "entries") {
        let path = text(&entry["path"]);
        if !binds.keys().any(|bound| Path::new(&path).starts_with(bound)) {
            make(&root.join(&path), entry, mounts.contains_key(&path));
        }
    }
    for (target, source) in binds {
        let target = root.join(target);
        if Path::new(source).is_dir() {
            fs::create_dir_all(&target).expect("a directory");
        } else {
            fs::write(&target, "").expect("a file");
        }
        run("mount", &["--bind", source, target.to_str().expect("a path")]);
    }
}

/// Starts the recorded sandboxes and containers; returns the new id of each container by pod and name. Containers start in their
/// recorded order.
pub(crate) fn make_pods(node: &Node, recording: &Value) -> BTreeMap<(String, String), ContainerId> {
    let mut ids = BTreeMap::new();
    for sandbox in list(recording, "sandboxes") {
        let request = sandbox_request(sandbox);
        fs::create_dir_all(&request.log_directory).expect("a directory");
        let asked = request.clone();
        let id = node.call_runtime(|runtime| async move { runtime.run_sandbox(&asked).await });
        let id = id.expect("a sandbox");
        let all = list(recording, "containers").iter();
        for container in all.filter(|container| container["pod"] == sandbox["pod"]) {
            let name = (text(&container["pod"]), text(&container["name"]));
            ids.insert(name, run_container(node, &id, &request, container));
        }
        if sandbox["isRunning"] == false {
            let stopped = node.call_runtime(|runtime| async move { runtime.stop_sandbox(&id).await });
            stopped.expect("the sandbox is stopped");
        }
    }
    ids
}

/// Starts the container, and waits for its end if it did not run when it was recorded.
fn run_container(node: &Node, sandbox: &SandboxId, pod: &SandboxRequest, recorded: &Value) -> ContainerId {
    let request = container_request(recorded);
    fs::create_dir_all(Path::new(&pod.log_directory).join(&request.name)).expect("a directory");
    let (sandbox, pod) = (sandbox.clone(), pod.clone());
    let id = node.call_runtime(|runtime| async move {
        let id = runtime.create_container(&sandbox, &request, &pod).await?;
        runtime.start_container(&id).await?;
        Ok(id)
    });
    let id = id.expect("a container");
    let is_running = recorded["isRunning"] == true;
    let wanted = if is_running { ContainerState::Running } else { ContainerState::Exited };
    node.eventually("the container has the recorded state", |node| {
        let id = id.clone();
        let status = node.call_runtime(|runtime| async move { runtime.container_status(&id).await })?;
        if status.state == wanted { Ok(()) } else { Err(format!("{:?}", status.state)) }
    });
    id
}

fn make(path: &Path, entry: &Value, is_tmpfs: bool) {
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

fn resources(recorded: &Value) -> LinuxResources {
    LinuxResources {
        cpu_shares: recorded["cpu_shares"].as_i64(),
        cpu_quota: recorded["cpu_quota"].as_i64(),
        cpu_period: recorded["cpu_period"].as_i64(),
        memory_limit_bytes: recorded["memory_limit_in_bytes"].as_i64(),
        memory_swap_limit_bytes: recorded["memory_swap_limit_in_bytes"].as_i64(),
        oom_score_adj: recorded["oom_score_adj"].as_i64(),
        cpuset_cpus: text(&recorded["cpuset_cpus"]),
        cpuset_mems: text(&recorded["cpuset_mems"]),
        ..LinuxResources::default()
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
    let device = |device: &Value| Device {
        host_path: text(&device[0]),
        container_path: text(&device[1]),
        permissions: text(&device[2]),
    };
    let items = |name: &str| recorded[name].as_array().into_iter().flatten();
    let attempt = recorded["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok());
    ContainerRequest {
        name: text(&recorded["name"]),
        attempt: attempt.expect("an attempt"),
        image: IMAGE.to_owned(),
        user_specified_image: recorded["image"].as_str().unwrap_or(IMAGE).to_owned(),
        command: strings(&recorded["command"]),
        args: Vec::new(),
        working_dir: String::new(),
        env: items("env").map(|env| (text(&env[0]), text(&env[1]).into())).collect(),
        mounts: items("mounts").map(mount).collect(),
        devices: items("devices").map(device).collect(),
        cdi_devices: Vec::new(),
        labels: map(&recorded["labels"]),
        annotations: map(&recorded["annotations"]),
        log_path: text(&recorded["logPath"]),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: resources(&recorded["resources"]),
        security: ContainerSecurity { namespaces: namespaces(), ..ContainerSecurity::default() },
        stop_signal: None,
    }
}
