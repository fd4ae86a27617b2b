//! FlexVolume drivers: programs of the node that mount volumes. Each is a script here that records its calls.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, shell_pod, uid};

/// The directory of drivers.
pub(crate) const DRIVERS: &str = "drivers";

/// Installs the driver `example.com/<name>`. `cases`: the branches of a `case` over its first argument; every other command is not
/// supported. Returns the file with its calls.
pub(crate) fn install(node: &Node, name: &str, cases: &str) -> PathBuf {
    let directory = node.path(DRIVERS).join(format!("example.com~{name}"));
    let (program, log) = (directory.join(name), node.path(&format!("{name}.log")));
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\ncase \"$1\" in\n{cases}\n*) echo '{{\"status\": \"Not supported\"}}'; exit 1;;\nesac\n",
        log.display()
    );
    fs::create_dir_all(&directory).expect("a directory");
    let unfinished = directory.join(".new");
    fs::write(&unfinished, script).expect("a program");
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755)).expect("permissions");
    fs::rename(&unfinished, &program).expect("a program");
    log
}

/// The calls of a driver with that command.
pub(crate) fn calls(log: &PathBuf, command: &str) -> Vec<String> {
    let log = fs::read_to_string(log).unwrap_or_default();
    log.lines().filter(|line| line.split(' ').next() == Some(command)).map(str::to_owned).collect()
}

/// Mounts a tmpfs, unless the share is called `bad`.
const MEMORY: &str = r#"
init) echo '{"status": "Success", "capabilities": {"attach": false}}';;
mount) case "$3" in *'"share":"bad"'*) echo '{"status": "Failure", "message": "no such share"}'; exit 1;; esac
    mount -t tmpfs none "$2" && echo '{"status": "Success"}';;
unmount) umount "$2" && echo '{"status": "Success"}';;"#;

pub(crate) fn with_flex(name: &str, driver: &str, share: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["securityContext"] = json!({"fsGroup": 4242});
    pod["spec"]["volumes"] =
        json!([{"name": "data", "flexVolume": {"driver": driver, "options": {"share": share}}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod
}

fn start() -> Node {
    let mut node = Node::on_containerd(json!({}));
    node.configure(json!({"volumePluginDir": node.path(DRIVERS)}));
    node.start_kubelet();
    node
}

fn wait_for_log(node: &Node, parts: &[&str]) {
    node.eventually(&format!("the log has {parts:?}"), |node| {
        let log = node.kubelet_log().replace("\\\"", "\"");
        if log.lines().any(|line| parts.iter().all(|part| line.contains(part))) { Ok(()) } else { Err(log) }
    });
}

#[test]
fn flex_volume_is_mounted_once_by_its_driver_and_unmounted_by_it_after_a_kill() {
    let mut node = start();
    node.apply("early", &with_flex("early", "example.com/memory", "good"));
    // The driver is installed while the pod waits.
    wait_for_log(&node, &["FailedMount", "early-node", "no volume plugin matched"]);
    let log = install(&node, "memory", MEMORY);
    let pod = node.running("early");
    let uid = uid(&pod);
    let volume = node.path("root/pods").join(&uid).join("volumes/example.com~memory/data");
    let expected = format!(
        "mount {} {{\"kubernetes.io/fsType\":\"\",\"kubernetes.io/mounterArgs.FsGroup\":\"4242\",\"kubernetes.io/pod.name\":\"early-node\",\
         \"kubernetes.io/pod.namespace\":\"default\",\"kubernetes.io/pod.uid\":\"{uid}\",\"kubernetes.io/pvOrVolumeName\":\"data\",\
         \"kubernetes.io/readwrite\":\"rw\",\"kubernetes.io/serviceAccount.name\":\"\",\"share\":\"good\"}}",
        volume.display()
    );
    assert_eq!(calls(&log, "mount"), [expected]);
    assert_eq!(fs::metadata(&volume).expect("a mount").gid(), 4242);

    node.kill_kubelet();
    node.start_kubelet();
    node.running("early");
    assert_eq!(calls(&log, "mount").len(), 1, "it stays mounted");
    node.delete("early");
    node.wait_until_gone("early", &uid);
    assert_eq!(calls(&log, "unmount"), [format!("unmount {}", volume.display())]);
}

#[test]
fn flex_volume_failure_has_the_drivers_reason_and_is_not_unmounted() {
    let node = start();
    let log = install(&node, "memory", MEMORY);
    node.apply("bad", &with_flex("bad", "example.com/memory", "bad"));
    let reason = "MountVolume.SetUp failed for volume \"data\" : mount command failed, status: Failure, reason: no such share";
    wait_for_log(&node, &["FailedMount", reason]);
    let pod = node.pod("bad").expect("the pod");
    node.delete("bad");
    node.wait_until_gone("bad", &uid(&pod));
    assert_eq!(calls(&log, "unmount"), Vec::<String>::new());
}
