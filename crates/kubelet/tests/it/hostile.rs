//! Pods whose authors want to harm the node: what they make the kubelet do costs little memory, and others do not wait.

use std::time::Duration;

use ports::Clock;
use serde_json::{Value, json};
use testing::fake::Method;
use testing::{FakeRuntime, stretched};

use crate::node::{FOREVER, Node, container, shell_pod};
use crate::streaming::memory;

/// What one of these pods may cost the kubelet.
const MAX_GROWTH_KIB: u64 = 20 << 10;

/// A pod for a fake runtime.
fn fake_pod(name: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod
}

/// Starts a pod whose liveness probe runs a command each second.
fn start_probed_pod(node: &Node) {
    let mut pod = fake_pod("probed");
    pod["spec"]["containers"][0]["livenessProbe"] =
        json!({"exec": {"command": ["/bin/true"]}, "periodSeconds": 1});
    node.apply("probed", &pod);
    node.running("probed");
}

/// The longest time between two probes of `probed`.
fn longest_probe_gap(runtime: &FakeRuntime) -> Duration {
    let calls = runtime.calls();
    let times: Vec<Duration> = calls
        .iter()
        .filter(|call| call.method == Method::ExecSync && call.subject.starts_with("probed"))
        .map(|call| call.at)
        .collect();
    assert!(times.len() > 1, "no probes: {calls:?}");
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or_default()
}

/// Does something, and returns by how many KiB the kubelet was larger meanwhile than before.
fn peak_growth(node: &Node, work: impl FnOnce()) -> u64 {
    let before = memory(node, "VmRSS");
    std::fs::write(format!("/proc/{}/clear_refs", node.kubelet_pid()), "5").expect("the peak is reset");
    work();
    memory(node, "VmHWM").saturating_sub(before)
}

fn is_config_error(pod: &Value, words: &str) -> bool {
    let waiting = &container(pod, "main")["state"]["waiting"];
    waiting["reason"] == "CreateContainerConfigError"
        && waiting["message"].as_str().unwrap_or_default().contains(words)
}

#[test]
fn env_that_expands_without_end_is_a_config_error_and_costs_no_memory() {
    let runtime = FakeRuntime::with_clock(Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    start_probed_pod(&node);

    let doubling =
        (1..=40).map(|n| json!({"name": format!("V{n}"), "value": format!("$(V{0})$(V{0})", n - 1)}));
    let doublings: Vec<Value> =
        std::iter::once(json!({"name": "V0", "value": "x"})).chain(doubling).collect();
    let large = "x".repeat(100_000);
    let cases = [
        ("doublings", json!(doublings), json!([]), "\"V17\" is longer than the limit of 131072 bytes"),
        (
            "mebibyte",
            json!([{"name": "A", "value": "x".repeat(1 << 20)}, {"name": "B", "value": "$(A)".repeat(1000)}]),
            json!([]),
            "\"A\" is longer than the limit of 131072 bytes",
        ),
        (
            "references",
            json!([{"name": "A", "value": large}, {"name": "B", "value": "$(A)".repeat(1000)}]),
            json!([]),
            "\"B\" is longer than the limit of 131072 bytes",
        ),
        (
            "words",
            json!([{"name": "A", "value": large}]),
            json!(vec!["$(A)"; 1000]),
            "environment and command are larger than the limit of 2097152 bytes together",
        ),
    ];
    let growth = peak_growth(&node, || {
        for (name, env, args, words) in &cases {
            let mut pod = fake_pod(name);
            pod["spec"]["containers"][0]["env"] = env.clone();
            pod["spec"]["containers"][0]["args"] = args.clone();
            node.apply(name, &pod);
            node.pod_when(name, "has a config error", |pod| is_config_error(pod, words));
        }
    });
    assert!(growth < MAX_GROWTH_KIB, "{growth} KiB more");
    let gap = longest_probe_gap(&runtime);
    assert!(
        gap < stretched(Duration::from_secs(5)),
        "a probe of another pod was {gap:?} after the one before"
    );
}
