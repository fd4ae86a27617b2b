//! AppArmor profiles, read from the confined process itself.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::node::{Node, condition, container, once_pod};

const NAME: &str = "kubelet-test-guarded";

/// Allows what a pod usually does, but no write below one directory.
const PROFILE: &str = "profile kubelet-test-guarded flags=(attach_disconnected,mediate_deleted) {\n\
                       file, network, capability, signal, umount, mount, unix, ptrace,\n\
                       deny /tmp/guarded* w,\n}\n";

fn parser(action: &str) {
    let parser = Command::new("apparmor_parser").arg(action).stdin(Stdio::piped()).spawn();
    let mut parser = parser.expect("apparmor_parser runs");
    parser.stdin.take().expect("its input").write_all(PROFILE.as_bytes()).expect("it reads");
    assert!(parser.wait().expect("it ends").success());
}

/// The profile, loaded in the kernel until this is dropped.
struct Loaded;

impl Loaded {
    fn new() -> Self {
        parser("--replace");
        Self
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        parser("--remove");
    }
}

/// A pod that prints its AppArmor profile, and whether it may write where the profile forbids it.
fn confined(name: &str, profile: Value) -> Value {
    let script = "cat /proc/self/attr/current; touch /tmp/guarded 2>&1 && echo written";
    let mut pod = once_pod(name, &format!("{script}; true"));
    pod["spec"]["containers"][0]["securityContext"] = json!({"appArmorProfile": profile});
    pod
}

#[test]
#[ignore = "needs AppArmor: scripts/vm"]
fn apparmor_profile_confines_a_container() {
    let _loaded = Loaded::new();
    let node = Node::start();
    let of_container = json!({"type": "Localhost", "localhostProfile": NAME});
    node.apply("guarded", &confined("guarded", of_container.clone()));
    node.apply("default", &confined("default", json!({"type": "RuntimeDefault"})));
    node.apply("free", &confined("free", json!({"type": "Unconfined"})));
    let mut of_pod = confined("of-pod", Value::Null);
    of_pod["spec"]["securityContext"] = json!({"appArmorProfile": of_container});
    node.apply("of-pod", &of_pod);
    for name in ["guarded", "of-pod"] {
        let output = node.output(name);
        assert!(output.starts_with(&format!("{NAME} (enforce)\n")), "{output}");
        assert!(output.contains("Permission denied") && !output.contains("written"), "{output}");
    }
    assert_eq!(node.output("default"), "cri-containerd.apparmor.d (enforce)\nwritten\n");
    assert_eq!(node.output("free"), "unconfined\nwritten\n");
    missing_profile_is_reported(&node);
}

/// A profile that is not loaded keeps the container from starting, and is reported by name.
fn missing_profile_is_reported(node: &Node) {
    let profile = json!({"type": "Localhost", "localhostProfile": "no-such-profile"});
    node.apply("lost", &confined("lost", profile));
    let pod = node.pod_when("lost", "reports what is missing", |pod| {
        let waiting = &container(pod, "main")["state"]["waiting"];
        waiting["message"].as_str().is_some_and(|message| message.contains("no-such-profile"))
    });
    let waiting = &container(&pod, "main")["state"]["waiting"];
    assert_eq!(waiting["reason"], "CreateContainerError", "{waiting}");
    assert_eq!((pod["status"]["phase"].as_str(), condition(&pod, "Ready")), (Some("Pending"), "False"));
}
