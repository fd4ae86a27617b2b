//! Pods that wait or fail by themselves, on a node without an API server.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::Page;
use crate::node::{FOREVER, Node, once_pod, shell_pod, uid};

fn main_of(pod: &mut Value) -> &mut Value {
    &mut pod["spec"]["containers"][0]
}

fn with_image(name: &str, image: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    main_of(&mut pod)["image"] = image.into();
    main_of(&mut pod)["imagePullPolicy"] = "Always".into();
    pod
}

fn with_resources(name: &str, script: &str, resources: Value) -> Value {
    let mut pod = shell_pod(name, script);
    main_of(&mut pod)["resources"] = resources;
    pod
}

#[test]
fn crashing_containers_and_failing_probes_say_what_to_look_at() {
    let node = Node::start();
    node.apply("crashing", &shell_pod("crashing", "echo no such table; exit 7"));
    let memory = json!({"limits": {"memory": "32Mi"}});
    node.apply("hungry", &with_resources("hungry", "tail /dev/zero", memory));
    let mut slow = shell_pod("slow", FOREVER);
    main_of(&mut slow)["livenessProbe"] = json!({
        "exec": {"command": ["sleep", "60"]}, "timeoutSeconds": 1, "periodSeconds": 1, "failureThreshold": 100,
    });
    main_of(&mut slow)["readinessProbe"] =
        json!({"exec": {"command": ["sleep", "60"]}, "timeoutSeconds": 1, "periodSeconds": 1});
    node.apply("slow", &slow);
    let mut missing = shell_pod("missing", FOREVER);
    main_of(&mut missing)["command"] = json!(["/usr/bin/server"]);
    node.apply("missing", &missing);
    let mut deaf = shell_pod("deaf", FOREVER);
    main_of(&mut deaf)["readinessProbe"] = json!({"tcpSocket": {"port": 9}, "periodSeconds": 1});
    node.apply("deaf", &deaf);

    Page::new(
        &node,
        "crash-loop",
        "A container ends again and again",
        "The program of a static pod ends with exit code 7 each time, soon after its start.",
    )
    .says(&["why", "crashing"], 3, &["exit code 7", "next in", "--previous"])
    .end();
    Page::new(
        &node,
        "out-of-memory",
        "A container is killed for its memory",
        "A container needs more memory than its limit, and the kernel ends it.",
    )
    .says(&["why", "hungry"], 3, &["OOMKilled", "Raise the container's memory limit"])
    .end();
    Page::new(
        &node,
        "exec-probe-times-out",
        "An exec probe never ends in time",
        "The command of a readiness probe takes longer than `timeoutSeconds`. It is killed, and the pod stays out of Services.",
    )
    .says(&["why", "slow"], 3, &["Readiness probe failed: command timed out", "raise timeoutSeconds"])
    .end();
    Page::new(
        &node,
        "program-missing",
        "The image does not have the program",
        "`command` names a program that is not in the image.",
    )
    .says(&["why", "missing"], 3, &["no such file or directory", "Check command and args"])
    .end();
    Page::new(
        &node,
        "not-ready",
        "A pod runs and is not ready",
        "Nothing listens on the port of the readiness probe.",
    )
    .says(&["why", "deaf"], 3, &["connection refused", "Nothing listens"])
    .end();
}

#[test]
fn images_that_cannot_be_pulled_say_whether_name_registry_or_turn_is_the_reason() {
    let node = Node::start_with(json!({"serializeImagePulls": true}));
    // A registry that takes connections and never answers.
    let registry = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = registry.local_addr().expect("its address");
    node.apply("away", &with_image("away", "127.0.0.1:1/shop/web:1"));
    node.eventually("the first has failed", |node| {
        let (text, _) = super::ask(node, &["why", "away"]);
        if text.contains("refused") { Ok(()) } else { Err(text) }
    });
    node.apply("pulling", &with_image("pulling", &format!("{address}/shop/large:1")));
    node.eventually("the pull has begun", |node| {
        let (text, _) = super::ask(node, &["why", "pulling"]);
        if text.contains("is being pulled") { Ok(()) } else { Err(text) }
    });
    node.apply("queued", &with_image("queued", "127.0.0.1:1/shop/small:1"));

    Page::new(
        &node,
        "registry-away",
        "An image cannot be pulled",
        "Nothing listens at the address of the registry.",
    )
    .says(&["why", "away"], 3, &["cannot be pulled", "connection refused", "Check from this node"])
    .end();
    Page::new(
        &node,
        "image-pull-waits",
        "An image is not pulled at all",
        "Images are pulled one after the other (`serializeImagePulls: true`, the default), and a registry does not answer.",
    )
    .says(&["why", "pulling"], 3, &["/shop/large:1 of container main is being pulled"])
    .says(&["why", "queued"], 3, &["waits for its turn: other images are pulled first"])
    .end();
}

#[test]
fn pods_that_the_node_refuses_and_manifests_that_it_cannot_read_are_listed_with_the_reason() {
    let node = Node::start();
    node.apply("good", &shell_pod("good", FOREVER));
    let memory = json!({"requests": {"memory": "900Gi"}});
    node.apply("large", &with_resources("large", FOREVER, memory));
    let port = |name: &str| {
        let mut pod = shell_pod(name, FOREVER);
        main_of(&mut pod)["ports"] = json!([{"containerPort": 80, "hostPort": 38_080}]);
        pod
    };
    node.apply("front", &port("front"));
    node.running("front");
    node.apply("shadow", &port("shadow"));
    std::fs::write(node.manifest("broken"), "apiVersion: v1\nkind: Pod\nspec: [").expect("written");
    let typing_error = "apiVersion: v1\nkind: Pod\nmetadata: {name: typo}\nspec:\n  containers:\n  - name: main\n    \
                        image: localhost/busybox:test\n    imagePullPolicy: Sometimes\n    ports:\n    - containerPort: none\n";
    std::fs::write(node.manifest("typo"), typing_error).expect("written");

    Page::new(
        &node,
        "refused-for-resources",
        "OutOfmemory: the node refuses a pod",
        "A pod requests more memory than the node has left.",
    )
    .says(&["why", "large"], 4, &["This node refused the pod (OutOfmemory)", "Lower the requests"])
    .end();
    Page::new(
        &node,
        "host-port-taken",
        "Two pods want the same port of the node",
        "A second pod has the `hostPort` of one that runs.",
    )
    .says(&["why", "shadow"], 4, &["NodePorts", "Another pod of this node has that host port"])
    .end();
    Page::new(
        &node,
        "manifest-broken",
        "A manifest shows no pod",
        "Two files in the directory of manifests have mistakes. The pods of the other files run.",
    )
    .says(&["why"], 4, &["broken.json:3:7", "typo.json"])
    .says(&["why", "good"], 0, &["The pod runs and is ready."])
    .end();
}

#[test]
fn manifests_that_are_gone_or_define_a_pod_again_are_named_while_its_pod_runs_on() {
    let node = Node::start_with(json!({"fileCheckFrequency": "1s"}));
    node.apply("b", &shell_pod("web", FOREVER));
    let web = node.running("web");
    node.apply("a", &shell_pod("web", "exit 1"));
    Page::new(
        &node,
        "manifest-name-twice",
        "Two manifests have a pod of the same name",
        "A second file defines a pod that runs already, for instance a copy of its manifest in the same directory.",
    )
    .says(&["why"], 4, &["a.json", "is already defined by b.json"])
    .says(&["why", "web"], 0, &["The pod runs and is ready."])
    .end();
    node.delete("a");
    let (manifests, elsewhere) = (node.path("manifests"), node.path("elsewhere"));
    std::fs::rename(&manifests, &elsewhere).expect("renamed");
    Page::new(
        &node,
        "manifest-directory-missing",
        "The directory of manifests is gone",
        "The directory was renamed, or `staticPodPath` is misspelled. What cannot be read is not taken for empty.",
    )
    .says(&["why"], 4, &["/manifests", "No such file or directory"])
    .says(&["why", "node"], 4, &["Manifests have problems"])
    .says(&["why", "web"], 0, &["The pod runs and is ready."])
    .end();
    std::fs::rename(&elsewhere, &manifests).expect("renamed");
    assert_eq!(uid(&node.running("web")), uid(&web));
}

#[test]
fn log_that_is_rotated_is_followed_without_a_gap() {
    let node = Node::start_with(json!({
        "containerLogMaxSize": "20Ki", "containerLogMaxFiles": 2, "containerLogMonitorInterval": "3s",
    }));
    let script =
        "i=0; while [ $i -lt 100 ]; do i=$((i+1)); printf 'line %0500d\\n' $i; sleep 0.1; done; echo done";
    node.apply("chatty", &once_pod("chatty", script));
    node.pod_when("chatty", "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
    Page::new(
        &node,
        "log-rotated",
        "A container writes much more than its log may keep",
        "The log was rotated while the container wrote (`containerLogMaxSize`, `containerLogMaxFiles`).",
    )
    .says(&["logs", "chatty", "--tail=1"], 0, &["done"])
    .says(&["why", "chatty"], 0, &["The pod has finished its work."])
    .end();
}
