//! What a fault of the runtime, or an odd object, costs: the pod or the node that it concerns says so, and others go on.

use serde_json::{Value, json};

use super::Page;
use crate::flex_volumes::{DRIVERS, install, with_flex};
use crate::node::{FOREVER, Node, shell_pod, uid};
use crate::runtime_faults::{
    ALWAYS, container_id, node_with_proxy, refused, restart_with_another_cgroup_root,
    start_pod_whose_sandbox_comes_late,
};

/// The answer that a tired runtime gives in these tests.
const REFUSED: &str = "refused by the test";

#[test]
fn runtime_that_does_not_report_its_cgroup_driver_is_named_and_stops_nothing() {
    let (mut node, proxy) = node_with_proxy(json!({}));
    node.apply("web", &shell_pod("web", FOREVER));
    node.start_kubelet();
    let before = container_id(&node.running("web"));
    node.kill_kubelet();
    proxy.add_rule(refused("RuntimeConfig", "", ALWAYS));
    node.spawn_kubelet();
    node.apply("late", &shell_pod("late", FOREVER));
    Page::new(
        &node,
        "cgroup-driver-unknown",
        "The runtime answers with errors after a restart",
        "The kubelet was restarted and asks the runtime which cgroup driver it uses; the runtime answers with an error. A guess could \
         restart every pod with other cgroups, so nothing is started before there is an answer, and nothing that runs is stopped.",
    )
    .says(&["why", "node"], 3, &["cgroup driver", REFUSED, "Pods start once the runtime reports it"])
    .end();
    proxy.clear_rules();
    node.running("late");
    assert_eq!(container_id(&node.running("web")), before);
}

#[test]
fn pods_whose_cgroups_all_seem_lost_are_named_and_go_on() {
    let mut node = Node::on_containerd(json!({}));
    for name in ["web", "db"] {
        node.apply(name, &shell_pod(name, FOREVER));
    }
    node.start_kubelet();
    let before = container_id(&node.running("web"));
    node.running("db");
    let root = restart_with_another_cgroup_root(&mut node);
    Page::new(
        &node,
        "cgroups-lost",
        "The cgroups of all pods seem to be gone",
        "Someone changed `cgroupRoot` under running pods. The kubelet looks for their cgroups in another place and finds none, which is more \
         likely a wrong setting than a loss, so that no pod is restarted.",
    )
    .says(&["why", "node"], 3, &["2 running pods are not restarted", "Compare cgroupRoot"])
    .end();
    node.kill_kubelet();
    node.configure(json!({"cgroupRoot": root}));
    node.start_kubelet();
    assert_eq!(container_id(&node.running("web")), before);
}

#[test]
fn pod_that_the_runtime_does_not_describe_is_named_and_goes_on() {
    let (mut node, proxy) = node_with_proxy(json!({}));
    for name in ["stuck", "good"] {
        node.apply(name, &shell_pod(name, FOREVER));
    }
    node.start_kubelet();
    let id = container_id(&node.running("stuck"));
    node.running("good");
    node.kill_kubelet();
    proxy.add_rule(refused("ContainerStatus", &id, ALWAYS));
    node.start_kubelet();
    Page::new(
        &node,
        "pod-cannot-be-inspected",
        "The runtime cannot describe one container",
        "The runtime returns an error whenever it is asked for the status of one container. That pod keeps what it has, its image is not \
         removed, and every other pod and the removal of unused images go on.",
    )
    .says(&["why", "stuck"], 3, &[REFUSED])
    .says(&["why", "good"], 0, &["The pod runs and is ready."])
    .end();
    proxy.clear_rules();
    assert_eq!(container_id(&node.running("stuck")), id);
}

#[test]
fn pod_whose_containers_the_runtime_does_not_stop_is_named_with_its_tries() {
    let (mut node, proxy) = node_with_proxy(json!({}));
    node.apply("web", &shell_pod("web", FOREVER));
    node.start_kubelet();
    let running = node.running("web");
    proxy.add_rule(refused("StopContainer", &container_id(&running), ALWAYS));
    proxy.add_rule(refused("StopPodSandbox", "", ALWAYS));
    node.delete("web");
    Page::new(
        &node,
        "termination-fails",
        "A pod stays Terminating: the runtime does not stop it",
        "The runtime returns an error for each request to stop the container. The kubelet tries again, later each time, and runs hooks once.",
    )
    .says(&["why", "web"], 3, &[REFUSED, "tried"])
    .end();
    proxy.clear_rules();
    node.wait_until_gone("web", &uid(&running));
}

#[test]
fn sandbox_that_comes_after_its_pod_has_ended_changes_nothing_about_the_reason() {
    let (node, _proxy) = start_pod_whose_sandbox_comes_late();
    Page::new(
        &node,
        "sandbox-comes-late",
        "A pod has ended before the runtime made its sandbox",
        "The pod may run for two seconds (`activeDeadlineSeconds`), and the runtime takes longer to create its sandbox. The sandbox that comes \
         later is stopped, and its cgroup removed.",
    )
    .says(&["why", "slow"], 4, &["DeadlineExceeded"])
    .end();
    let ended = node.pod("slow").expect("the pod");
    node.delete("slow");
    node.wait_until_gone("slow", &uid(&ended));
}

#[test]
fn flex_volume_with_an_unusable_type_is_named_and_reaches_no_program() {
    let mut node = Node::on_containerd(json!({}));
    node.configure(json!({"volumePluginDir": node.path(DRIVERS)}));
    node.start_kubelet();
    install(&node, "disk", "init) echo '{\"status\": \"Success\", \"capabilities\": {\"attach\": true}}';;");
    let mut pod = with_flex("odd", "example.com/disk", "good");
    pod["spec"]["volumes"][0]["flexVolume"]["fsType"] = "ext4 -F".into();
    node.apply("odd", &pod);
    Page::new(
        &node,
        "flex-volume-refused",
        "A FlexVolume has a type that is none",
        "The `fsType` of a pod would become an argument of `mkfs` and `mount`, and this one has an option in it.",
    )
    .says(&["why", "odd"], 3, &["ext4 -F", "Correct that field of the volume"])
    .end();
}

#[test]
fn largest_pods_are_explained_as_short_as_others_and_delay_none() {
    let node = Node::start();
    let volumes: Value = (0..8000).map(|i| json!({"name": format!("v{i}"), "emptyDir": {}})).collect();
    let mut large = shell_pod("large", FOREVER);
    large["spec"]["volumes"] = volumes;
    node.apply("large", &large);
    node.apply("good", &shell_pod("good", FOREVER));
    let page = Page::new(
        &node,
        "largest-pods",
        "A pod has 8,000 volumes",
        "As much as fits in an object of the API. Other pods start meanwhile, and the lease of the node is renewed.",
    )
    .says(&["why", "good"], 0, &["The pod runs and is ready."])
    .says(&["why", "large"], 0, &["The pod runs and is ready."]);
    assert!(page.text.lines().count() < 100, "{}", page.text);
    page.end();
}
