//! Mistakes with manifests that must not stop a running pod: paths that cannot be read, files that define a pod again.

use std::fs;

use fakes::FakeRuntime;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, restarts, shell_pod, uid};

fn problems(node: &Node) -> Result<String, String> {
    Ok(crate::server::get(node, "/debug/manifests")?.body)
}

#[track_caller]
fn wait_for_problem(node: &Node, text: &str) {
    node.eventually(&format!("/debug/manifests shows {text:?}"), |node| {
        let problems = problems(node)?;
        if problems.contains(text) { Ok(()) } else { Err(problems) }
    });
}

#[track_caller]
fn wait_for_no_problem(node: &Node) {
    node.eventually("/debug/manifests shows nothing", |node| {
        let problems = problems(node)?;
        if problems.trim() == "[]" { Ok(()) } else { Err(problems) }
    });
}

/// The pod runs in the container in which it ran before.
#[track_caller]
fn assert_untouched(node: &Node, name: &str, before: &Value) {
    let now = node.running(name);
    assert_eq!(container(&now, "main")["containerID"], container(before, "main")["containerID"]);
    assert_eq!((uid(&now), restarts(&now, "main")), (uid(before), 0));
}

#[test]
fn static_pods_stay_while_their_directory_is_renamed_and_end_when_it_is_empty() {
    let node = Node::start_with(json!({"fileCheckFrequency": "1s"}));
    node.apply("web", &shell_pod("web", FOREVER));
    let web = node.running("web");
    let (manifests, elsewhere) = (node.path("manifests"), node.path("elsewhere"));
    fs::rename(&manifests, &elsewhere).expect("renamed");
    wait_for_problem(&node, &manifests.display().to_string());
    fs::rename(&elsewhere, &manifests).expect("renamed");
    wait_for_no_problem(&node);
    // A change is noticed in the directory that is there again.
    node.apply("later", &shell_pod("later", FOREVER));
    node.running("later");
    assert_untouched(&node, "web", &web);
    let log = node.kubelet_log();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("Failed to read manifests")).collect();
    assert!(matches!(errors[..], [line] if line.contains(&*manifests.to_string_lossy())), "{errors:?}");
    fs::rename(&manifests, &elsewhere).expect("renamed");
    fs::create_dir(&manifests).expect("an empty directory");
    node.wait_until_gone("web", &uid(&web));
}

#[test]
fn static_pods_stay_when_their_path_is_misspelled_at_a_start() {
    let mut node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let web = node.running("web");
    node.configure(json!({"staticPodPath": node.path("manifest")}));
    node.restart_kubelet();
    wait_for_problem(&node, &node.path("manifest").display().to_string());
    assert_untouched(&node, "web", &web);
    node.configure(json!({"staticPodPath": node.path("manifests")}));
    node.restart_kubelet();
    wait_for_no_problem(&node);
    assert_untouched(&node, "web", &web);
    node.delete("web");
    node.wait_until_gone("web", &uid(&web));
}

#[test]
fn pod_of_a_single_manifest_stays_while_the_file_is_gone_empty_or_a_dangling_link() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::with_fake(&runtime, json!({"fileCheckFrequency": "1s"}));
    let file = node.path("web.json");
    node.configure(json!({"staticPodPath": file}));
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    fs::write(&file, pod.to_string()).expect("written");
    node.start_kubelet();
    let web = node.running("web");
    fs::remove_file(&file).expect("removed");
    wait_for_problem(&node, "No such file");
    std::os::unix::fs::symlink(node.path("nowhere"), &file).expect("linked");
    fs::write(node.path("nowhere"), "").expect("written");
    wait_for_problem(&node, "empty file");
    assert_untouched(&node, "web", &web);
    fs::write(node.path("nowhere"), pod.to_string()).expect("written");
    wait_for_no_problem(&node);
    assert_untouched(&node, "web", &web);
    fs::remove_file(node.path("nowhere")).expect("removed");
    wait_for_problem(&node, "No such file");
    assert_untouched(&node, "web", &web);
}

#[test]
fn running_pod_stays_when_a_file_that_sorts_first_defines_it_again() {
    let mut node = Node::start();
    node.apply("b", &shell_pod("web", FOREVER));
    let web = node.running("web");
    let mut other = shell_pod("web", FOREVER);
    other["spec"]["terminationGracePeriodSeconds"] = 1.into();
    node.apply("a", &other);
    let error = r#"a.json: pod \"web\" is already defined by b.json"#;
    wait_for_problem(&node, error);
    node.apply("c", &shell_pod("later", FOREVER));
    node.running("later");
    assert_untouched(&node, "web", &web);
    let logged = node.kubelet_log().matches("is already defined by b.json").count();
    assert_eq!(logged, 1, "{}", node.kubelet_log());
    node.restart_kubelet();
    wait_for_problem(&node, error);
    assert_untouched(&node, "web", &web);
    // Without the first file the pod of the other one is the only one.
    node.delete("b");
    wait_for_no_problem(&node);
    node.pod_when("web", "is the one of the other file", |pod| uid(pod) != uid(&web));
    node.running("web");
}

#[test]
fn backup_of_a_manifest_is_named_and_replaces_no_pod() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    node.apply("web", &pod);
    let web = node.running("web");
    fs::copy(node.manifest("web"), node.path("manifests/web.bak")).expect("copied");
    wait_for_problem(&node, "web.bak looks like a backup and is read as a manifest");
    wait_for_problem(&node, r#"web.bak: pod \"web\" is already defined by web.json"#);
    assert_untouched(&node, "web", &web);
}
