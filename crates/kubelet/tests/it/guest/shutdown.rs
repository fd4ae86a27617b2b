//! Node shutdown, announced by the real logind.
//!
//! Nothing else in the guest may be affected. So `halt.target`, which is not needed here, becomes a unit that does nothing, and
//! logind is requested to halt: it announces the shutdown, waits for the kubelet's inhibitor lock, starts the target, and
//! withdraws the announcement because the machine is still running.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::node::{Node, condition, container, shell_pod, uid};

const HARMLESS: &str = "/run/systemd/system.control/halt.target";
const DROP_IN: &str = "/etc/systemd/logind.conf.d/99-kubelet.conf";

pub(super) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// `true` or `false`, or a number.
fn logind(property: &str) -> String {
    let bus = [
        "get-property",
        "org.freedesktop.login1",
        "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager",
    ];
    let reply = run("busctl", &[&bus[..], &[property]].concat());
    reply.split_once(' ').map(|(_, value)| value.to_owned()).unwrap_or(reply)
}

fn locks() -> String {
    run("systemd-inhibit", &["--list", "--no-legend", "--no-pager"])
}

/// While this exists, a shutdown by `halt.target` stops nothing, and logind belongs to one test.
pub(super) struct HarmlessHalt {
    _lock: File,
}

impl HarmlessHalt {
    pub(super) fn new() -> Self {
        let lock = File::create("/run/kubelet-test-logind.lock").expect("a file to lock");
        lock.lock().expect("locked");
        std::fs::create_dir_all(Path::new(HARMLESS).parent().expect("a directory")).expect("made");
        std::fs::write(HARMLESS, "[Unit]\nDescription=An end that ends nothing\nDefaultDependencies=no\n")
            .expect("written");
        run("systemctl", &["daemon-reload"]);
        assert_eq!(run("systemctl", &["show", "--value", "--property=Requires", "halt.target"]), "");
        assert_eq!(run("systemctl", &["show", "--value", "--property=Conflicts", "halt.target"]), "");
        Self { _lock: lock }
    }

    pub(super) fn announce(&self) {
        let bus =
            ["call", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"];
        run("busctl", &[&bus[..], &["Halt", "b", "false"]].concat());
    }
}

impl Drop for HarmlessHalt {
    fn drop(&mut self) {
        // The unit stays for as long as logind may still use it.
        for _ in 0..100 {
            if logind("PreparingForShutdown") == "false" {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let _ = Command::new("systemctl").args(["stop", "halt.target"]).stderr(Stdio::null()).status();
        let _ = std::fs::remove_file(HARMLESS);
        let _ = std::fs::remove_file(DROP_IN);
        let _ = Command::new("systemctl").args(["daemon-reload"]).status();
    }
}

/// A pod that takes so long to terminate.
pub(super) fn slow(name: &str, seconds: u32, more: &Value) -> Value {
    let script = format!("trap 'sleep {seconds}; exit 0' TERM; while :; do sleep 3600 & wait $!; done");
    let mut pod = shell_pod(name, &script);
    pod["spec"]["terminationGracePeriodSeconds"] = 30.into();
    for (field, value) in more.as_object().expect("fields") {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// A node that has inhibited the shutdown of the machine for two minutes.
pub(super) fn node_with_inhibitor() -> Node {
    let node =
        Node::start_with(json!({"shutdownGracePeriod": "120s", "shutdownGracePeriodCriticalPods": "60s"}));
    wait_for_inhibitor(&node);
    node
}

pub(super) fn wait_for_inhibitor(node: &Node) {
    node.eventually("logind knows the inhibitor and its maximum delay", |_| {
        let (locks, longest) = (locks(), logind("InhibitDelayMaxUSec"));
        let is_so = locks.contains("Kubelet needs time to handle node shutdown") && longest == "120000000";
        if is_so { Ok(()) } else { Err(format!("{longest} {locks}")) }
    });
}

fn ended_at(pod: &Value) -> String {
    let at = &container(pod, "main")["state"]["terminated"]["finishedAt"];
    at.as_str().expect("a time").to_owned()
}

#[test]
#[ignore = "needs systemd and logind: scripts/vm"]
fn graceful_node_shutdown_ends_pods_by_priority_and_a_cancelled_shutdown_is_reverted() {
    let end = HarmlessHalt::new();
    let node = node_with_inhibitor();
    let volumes = json!({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]});
    node.apply("web", &slow("web", 2, &volumes));
    node.apply("driver", &slow("driver", 1, &json!({"priority": 2_000_001_000})));
    let drop_in = std::fs::read_to_string(DROP_IN).expect("the drop-in");
    assert!(drop_in.ends_with("[Login]\nInhibitDelayMaxSec=120\n"), "{drop_in}");
    let (web, _) = (node.running("web"), node.running("driver"));
    let volume = node.path(&format!("root/pods/{}/volumes/kubernetes.io~empty-dir/v", uid(&web)));
    assert!(volume.exists(), "{}", volume.display());

    end.announce();
    node.wait_for_log("Shutdown manager detected shutdown event");
    node.wait_for_log("node is shutting down");
    let ended = |name: &str| {
        node.pod_when(name, "has ended with the node", |pod| pod["status"]["reason"] == "Terminated")
    };
    let (web, driver) = (ended("web"), ended("driver"));
    for pod in [&web, &driver] {
        let message = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!((&pod["status"]["phase"], &pod["status"]["message"]), (&json!("Failed"), &json!(message)));
        assert_eq!(condition(pod, "DisruptionTarget"), "True");
    }
    assert!(ended_at(&web) < ended_at(&driver), "{} {}", ended_at(&web), ended_at(&driver));

    // The lock is released, logind stops nothing, and announces the cancellation.
    node.wait_for_log("Shutdown manager detected shutdown cancellation");
    assert!(!volume.exists(), "logind continued before {} was gone", volume.display());
    node.eventually("the next shutdown is inhibited", |_| {
        if locks().contains("kubelet") { Ok(()) } else { Err(locks()) }
    });
    assert_eq!(logind("PreparingForShutdown"), "false");
    let state = std::fs::read_to_string(node.path("root/graceful_node_shutdown_state")).expect("the times");
    assert!(state.contains("endTime") && !state.contains("0001-"), "{state}");
    let metrics = node.get("/metrics").expect("metrics");
    for name in ["start", "end"] {
        let name = format!("kubelet_graceful_shutdown_{name}_time_seconds ");
        let line = metrics.lines().find(|line| line.starts_with(&name)).unwrap_or_default();
        assert!(!line.is_empty() && !line.ends_with(" 0"), "{name}{line}");
    }
}
