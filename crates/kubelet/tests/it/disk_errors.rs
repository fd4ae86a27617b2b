//! A node whose disk fails with I/O errors: running containers keep running, and everything continues on a healthy disk.

use serde_json::json;

use crate::node::{FOREVER, Node, container, restarts, shell_pod, uid};
use harness::SmallDisk;

const EIO: &str = "Input/output error (os error 5)";

/// Fails with the difference to the earlier pod: its container must not be affected.
fn untouched(node: &Node, before: &serde_json::Value) -> Result<(), String> {
    match node.running_containers(&uid(before)) {
        1 => {}
        count => return Err(format!("{count} containers run")),
    }
    let pod = node.pod("web").ok_or("the pod is not in /pods")?;
    let [was, is] = [before, &pod].map(|pod| container(pod, "main")["containerID"].clone());
    let same = was == is && restarts(&pod, "main") == 0 && pod["status"]["phase"] == "Running";
    if same { Ok(()) } else { Err(format!("was {was}: {}", pod["status"])) }
}

#[test]
fn io_errors_of_the_root_directory_affect_no_container_and_clear_with_a_healthy_disk() {
    let mut node = Node::on_containerd(json!({}));
    let disk = SmallDisk::at(node.path("root"), 64, 5_000);
    node.start_kubelet();
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
    node.apply("web", &pod);
    let before = node.running("web");

    disk.fail();
    node.apply("late", &shell_pod("late", FOREVER));
    node.wait_for_log(EIO);
    let late = node.pod_when("late", "is accepted", |pod| pod["status"]["phase"] == "Pending");
    assert_eq!(untouched(&node, &before), Ok(()));
    assert_eq!(node.running_containers(&uid(&late)), 0);

    // A kubelet that starts on such a disk either waits or exits with the reason.
    let logged = node.kubelet_log().len();
    node.kill_kubelet();
    node.spawn_kubelet();
    node.eventually("the new kubelet logs the error", |node| {
        let log = node.kubelet_log();
        if log[logged..].contains(EIO) { Ok(()) } else { Err(log[logged..].to_owned()) }
    });
    assert_eq!(node.running_containers(&uid(&before)), 1);
    node.kill_kubelet();

    disk.replace();
    node.start_kubelet();
    node.running("late");
    assert_eq!(untouched(&node, &before), Ok(()));
    node.delete("web");
    node.wait_until_gone("web", &uid(&before));
}
