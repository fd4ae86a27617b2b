//! What `kubelet why` and `kubelet get` say on a node: each case is a pod with a fault that users know, and the words that help.

use std::process::{Command, Output};
use std::time::Instant;

use fakes::FakeRuntime;
use fakes::fake::{Fault, Method};
use fixtures::stretched;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, once_pod, shell_pod, uid};

/// Runs a command of the kubelet against the node's own one.
pub(crate) fn ask(node: &Node, arguments: &[&str]) -> Output {
    let root = node.path("root");
    Command::new(env!("CARGO_BIN_EXE_kubelet"))
        .args(arguments)
        .args(["--root-dir".as_ref(), root.as_os_str()])
        .output()
        .expect("the command runs")
}

/// The text and the exit code.
fn why(node: &Node, pod: &str) -> (String, i32) {
    let output = ask(node, &["why", pod]);
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.code().unwrap_or(-1))
}

/// Waits until the answer has that exit code and all these words, which may be broken into lines.
#[track_caller]
fn says(node: &Node, pod: &str, code: i32, words: &[&str]) {
    node.eventually(&format!("kubelet why {pod} says {words:?} with exit code {code}"), |node| {
        let (text, actual) = why(node, pod);
        let in_one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_said = actual == code && words.iter().all(|word| in_one_line.contains(word));
        if is_said { Ok(()) } else { Err(format!("exit code {actual}: {text}")) }
    });
}

fn with_image(name: &str, image: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["image"] = image.into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    pod
}

fn with_missing_path(node: &Node, name: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["volumes"] =
        json!([{"name": "data", "hostPath": {"path": node.path("missing"), "type": "Directory"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod
}

fn with_failing_probe(name: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 1});
    pod
}

fn with_request(name: &str, memory: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory.into();
    pod
}

#[test]
fn each_pod_that_is_not_as_desired_names_the_error_and_what_to_do() {
    let node = Node::start();
    node.apply("up", &shell_pod("up", FOREVER));
    node.apply("unpullable", &with_image("unpullable", "127.0.0.1:1/no/such:1"));
    node.apply("crashing", &shell_pod("crashing", "exit 7"));
    node.apply("pathless", &with_missing_path(&node, "pathless"));
    node.apply("unready", &with_failing_probe("unready"));
    node.apply("large", &with_request("large", "900Gi"));
    node.apply("done", &once_pod("done", "exit 0"));
    std::fs::write(node.manifest("broken"), "apiVersion: v1\nkind: Pod\nspec: [").expect("written");

    says(&node, "up", 0, &["The pod runs and is ready.", "main: running", "Ready"]);
    says(&node, "done", 0, &["The pod has finished its work."]);
    says(
        &node,
        "unpullable",
        3,
        &[
            "The image 127.0.0.1:1/no/such:1 of container main cannot be pulled.",
            "connection refused",
            "do Check from this node",
        ],
    );
    says(
        &node,
        "crashing",
        3,
        &["ends each time soon after its start (Error, exit code 7)", "--previous", "next in"],
    );
    says(
        &node,
        "pathless",
        3,
        &["A volume cannot be mounted.", "hostPath type check failed", "DirectoryOrCreate"],
    );
    says(
        &node,
        "unready",
        3,
        &["The readiness probe of container main fails.", "connection refused", "Nothing listens"],
    );
    says(&node, "large", 4, &["This node refused the pod (OutOfmemory).", "Lower the requests"]);
    says(
        &node,
        "nothing",
        1,
        &["no pod \"nothing\" is on this node", "manifests with problems:", "broken.json:"],
    );
    says(
        &node,
        "",
        4,
        &["unready-node: The pod runs and is not ready.", "broken.json:3:7: unclosed bracket"],
    );

    let pods = String::from_utf8(ask(&node, &["get", "pods"]).stdout).expect("text");
    assert!(pods.starts_with("NAMESPACE   NAME"), "{pods}");
    assert!(
        pods.lines().any(|line| line.contains("up") && line.contains("1/1") && line.contains("Running")),
        "{pods}"
    );

    says(
        &node,
        "node",
        4,
        &[
            "node: The node is ready. Manifests have problems: 1.",
            "containerd",
            "Pods on this node: 7, not as desired: 5.",
        ],
    );
    let gone = uid(&node.running("up"));
    node.delete("up");
    node.wait_until_gone("up", &gone);
    says(&node, "up", 0, &["The pod is no longer on this node; its last phase was"]);
}

#[test]
fn start_is_shown_as_a_waterfall_by_the_beginning_of_the_uid() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let uid = uid(&node.running("web"));
    says(&node, "web", 0, &["is ready"]);
    let picture = node.path("start.svg");
    let output = ask(&node, &["why", &uid[..8], "--timeline", "--svg", &picture.display().to_string()]);
    let text = String::from_utf8_lossy(&output.stdout);
    for step in [
        "PreparingVolumes",
        "CreatingSandbox",
        "CreatingContainer [main]",
        "StartingContainer [main]",
        "in all",
    ] {
        assert!(text.contains(step), "{step} is missing: {text}");
    }
    assert!(std::fs::read_to_string(picture).expect("the picture").starts_with("<svg"));
    let document = ask(&node, &["why", "web", "-o", "json"]).stdout;
    let document: Value = serde_json::from_slice(&document).expect("JSON");
    assert_eq!((&document["pods"][0]["uid"], &document["pods"][0]["verdict"]), (&json!(uid), &json!("fine")));
}

#[test]
fn answer_comes_at_once_while_the_runtime_hangs() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    runtime.fault_always(Method::RunPodSandbox, Some(Fault::Hang));
    node.apply("web", &shell_pod("web", FOREVER));
    says(&node, "web", 3, &["The container runtime creates its sandbox and network, for"]);
    let began = Instant::now();
    let (text, _) = why(&node, "web");
    let took = began.elapsed();
    assert!(took < stretched(std::time::Duration::from_secs(1)), "{took:?}: {text}");
}
