//! Mirror pods: static pods as the API shows them.

use serde_json::Value;

use crate::node::{FOREVER, container, restarts, shell_pod, uid};

use super::Cluster;

const MIRROR: &str = "kubernetes.io/config.mirror";

/// The mirror pod of a static pod, once it shows the given container.
fn mirror_of(cluster: &Cluster, pod: &Value) -> Value {
    let id = container(pod, "main")["containerID"].clone();
    cluster.pod_when("web-node", "shows the container that runs", |mirror| {
        container(mirror, "main")["containerID"] == id && mirror["status"]["phase"] == "Running"
    })
}

#[test]
fn mirror_pod_is_recreated_after_deletion_and_removed_with_the_manifest() {
    let cluster = Cluster::start();
    cluster.node.apply("web", &shell_pod("web", FOREVER));
    let pod = cluster.node.running("web");
    let mirror = mirror_of(&cluster, &pod);
    let annotations = &mirror["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations[MIRROR], annotations["kubernetes.io/config.hash"]);
    let owner = &mirror["metadata"]["ownerReferences"][0];
    assert_eq!((owner["kind"].as_str(), owner["name"].as_str()), (Some("Node"), Some("node")));
    assert_ne!(uid(&mirror), uid(&pod), "a mirror pod is an object of its own");
    assert_eq!(cluster.node.pods().len(), 1, "the container in the status runs once");

    // Deleted as by users who do not know what it is, and by users who want to remove it.
    for how in [&["--wait=false"][..], &["--grace-period=0", "--force"]] {
        let before = uid(&mirror_of(&cluster, &pod));
        cluster.kubectl.ok(&[&["delete", "pod", "web-node"], how].concat());
        cluster.pod_when("web-node", "has come back", |mirror| uid(mirror) != before);
        mirror_of(&cluster, &pod);
    }
    let same = cluster.node.running("web");
    assert_eq!(container(&same, "main"), container(&pod, "main"), "the pod itself is unchanged");

    let mut edited = shell_pod("web", FOREVER);
    edited["metadata"]["labels"] = serde_json::json!({"edited": "yes"});
    cluster.node.apply("web", &edited);
    cluster.pod_when("web-node", "shows the edited manifest", |mirror| {
        mirror["metadata"]["labels"]["edited"] == "yes"
            && mirror["metadata"]["annotations"][MIRROR] != annotations[MIRROR]
    });
    let pod = cluster.node.running("web");
    let mirror = mirror_of(&cluster, &pod);
    cluster.node.delete("web");
    cluster.wait_until_gone(&mirror);
    cluster.node.wait_until_gone("web", &uid(&pod));
}

#[test]
fn kubectl_reaches_a_static_pod_by_name_and_uid_of_its_mirror_pod() {
    let cluster = Cluster::with_authorization(serde_json::json!({}));
    cluster.node.apply("web", &shell_pod("web", &format!("echo hello; {FOREVER}")));
    let pod = cluster.node.running("web");
    let mirror = mirror_of(&cluster, &pod);
    assert_eq!(cluster.kubectl.ok(&["logs", "web-node"]), "hello\n");
    assert_eq!(cluster.kubectl.ok(&["exec", "web-node", "--", "echo", "hello"]), "hello\n");
    let server = format!("--server=https://127.0.0.1:{}", cluster.node.main_port());
    let run = |uid: &str| {
        let path = format!("/run/default/web-node/{uid}/main?cmd=echo+hello");
        cluster.kubectl.attempt(&[&server, "--insecure-skip-tls-verify", "create", "--raw", &path, "-f", "-"])
    };
    assert_eq!(run(&uid(&pod)).as_deref(), Ok("hello\n"));
    assert_eq!(run(&uid(&mirror)).as_deref(), Ok("hello\n"));
    assert!(run("other").is_err());
}

#[test]
fn static_manifest_deleted_and_written_again_restarts_the_container_of_the_same_pod() {
    let cluster = Cluster::start();
    let manifest = shell_pod("web", FOREVER);
    cluster.node.apply("web", &manifest);
    let pod = cluster.node.running("web");
    mirror_of(&cluster, &pod);
    cluster.node.delete("web");
    cluster.node.apply("web", &manifest);
    let again = cluster.node.pod_when("web", "runs again", |pod| {
        restarts(pod, "main") == 1 && container(pod, "main")["state"]["running"].is_object()
    });
    assert_eq!(uid(&again), uid(&pod), "the same content is the same pod");
    assert_ne!(container(&again, "main")["containerID"], container(&pod, "main")["containerID"]);
    let mirror = mirror_of(&cluster, &again);
    assert_eq!(restarts(&mirror, "main"), 1, "{mirror}");
    cluster.node.delete("web");
    cluster.wait_until_gone(&mirror);
    cluster.node.wait_until_gone("web", &uid(&pod));
}
