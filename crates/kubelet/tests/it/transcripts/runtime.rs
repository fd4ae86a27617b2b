//! Runtimes that hang, are away or hold on to names.

use fakes::FakeRuntime;
use fakes::fake::{Fault, Method};
use serde_json::json;

use super::Page;
use crate::node::{FOREVER, Node, shell_pod, uid};

#[test]
fn one_hanging_call_of_the_runtime_is_named_and_costs_only_its_pod() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    runtime.image("localhost/busybox:test");
    node.apply("good", &shell_pod("good", FOREVER));
    node.running("good");
    runtime.fault_always(Method::RunPodSandbox, Some(Fault::Hang));
    node.apply("stuck", &shell_pod("stuck", FOREVER));
    Page::new(
        &node,
        "runtime-hangs-for-one-pod",
        "\"PLEG is not healthy\": one call of the runtime hangs",
        "The runtime does not return from creating the sandbox of one pod; a network plugin that waits is the usual reason. The \
         Go kubelet may take the whole node down with it.",
    )
    .says(&["why", "stuck"], 3, &["The container runtime creates its sandbox and network, for"])
    .says(&["why", "good"], 0, &["The pod runs and is ready."])
    .says(&["why", "node"], 3, &["The node is ready"])
    .end();
}

#[test]
fn name_that_the_runtime_still_holds_is_named() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    let error = "failed to reserve sandbox name \"web_default_1_0\": name \"web_default_1_0\" is reserved for \"8f2c\"";
    runtime.fault_always(Method::RunPodSandbox, Some(Fault::Failed(error.to_owned())));
    node.apply("web", &shell_pod("web", FOREVER));
    Page::new(
        &node,
        "name-is-reserved",
        "\"name is reserved\": the runtime still creates the last try",
        "A call to create the sandbox timed out, and the runtime goes on with it: it holds the name.",
    )
    .says(&["why", "web"], 3, &["is reserved for", "still removes a sandbox of the same name"])
    .end();
}

#[test]
fn runtime_that_is_away_is_named_by_the_node_and_pods_keep_running() {
    let mut node = Node::start();
    node.apply("good", &shell_pod("good", FOREVER));
    let pod = node.running("good");
    node.kill_runtime();
    Page::new(
        &node,
        "runtime-away",
        "The container runtime has stopped",
        "containerd was stopped, or crashed. Containers do not depend on it and run on.",
    )
    .says(
        &["why", "node"],
        3,
        &["container runtime is down", "cannot be reached", "systemctl status containerd"],
    )
    .end();
    node.resume_runtime();
    assert_eq!(uid(&node.running("good")), uid(&pod));
}

#[test]
fn runtime_that_answers_nothing_any_more_is_named_with_the_call() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    runtime.image("localhost/busybox:test");
    node.apply("good", &shell_pod("good", FOREVER));
    node.running("good");
    for method in
        [Method::Version, Method::Status, Method::ListPodSandbox, Method::ListContainers, Method::ListImages]
    {
        runtime.fault_always(method, Some(Fault::Hang));
    }
    Page::new(
        &node,
        "runtime-frozen",
        "The container runtime hangs",
        "The runtime takes calls and answers none of them any more. Its containers run on.",
    )
    .says(
        &["why", "node"],
        3,
        &["The container runtime does not answer.", "no answer for more than", "systemctl status containerd"],
    )
    .end();
}
