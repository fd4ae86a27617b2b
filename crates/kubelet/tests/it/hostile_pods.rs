//! Pods whose authors want to harm the node: they may cost the kubelet little memory and must delay no other pod.

use std::time::Duration;

use fakes::fake::Method;
use fakes::{Exec, FakeRuntime, Program};
use fixtures::stretched;
use ports::Clock;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, container, shell_pod};
use crate::streaming::memory;

/// How much memory one of these pods may cost the kubelet.
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

/// The times at which the probe of `probed` ran.
fn probe_times(runtime: &FakeRuntime) -> Vec<Duration> {
    let calls = runtime.calls();
    let probes =
        calls.iter().filter(|call| call.method == Method::ExecSync && call.subject.starts_with("probed"));
    probes.map(|call| call.at).collect()
}

/// The longest time between two probes of `probed`, up to two probes from now.
fn longest_probe_gap(node: &Node, runtime: &FakeRuntime) -> Duration {
    let before = probe_times(runtime).len();
    let times = node.eventually("two more probes have run", |_| {
        let times = probe_times(runtime);
        if times.len() >= before + 2 { Ok(times) } else { Err(format!("{} after {before}", times.len())) }
    });
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or_default()
}

/// Runs the action and returns by how many KiB the kubelet grew meanwhile.
fn peak_growth(node: &Node, work: impl FnOnce()) -> u64 {
    let before = memory(node, "VmRSS");
    std::fs::write(format!("/proc/{}/clear_refs", node.kubelet_pid()), "5").expect("the peak is reset");
    work();
    memory(node, "VmHWM").saturating_sub(before)
}

/// Waits until neither the kubelet nor the runtime knows the pod.
#[track_caller]
fn gone_from_fake(node: &Node, name: &str, runtime: &FakeRuntime, uid: &str) {
    node.eventually(&format!("pod {name} is gone"), |node| {
        if let Some(pod) = node.pod(name) {
            return Err(pod["status"].to_string());
        }
        let left = runtime.containers().into_iter().filter(|(of, _)| of.as_str() == uid).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} containers")) }
    });
}

fn is_config_error(pod: &Value, message: &str) -> bool {
    let waiting = &container(pod, "main")["state"]["waiting"];
    waiting["reason"] == "CreateContainerConfigError"
        && waiting["message"].as_str().unwrap_or_default().contains(message)
}

#[test]
fn endless_env_expansion_is_create_container_config_error_and_uses_no_memory() {
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
        for (name, env, args, message) in &cases {
            let mut pod = fake_pod(name);
            pod["spec"]["containers"][0]["env"] = env.clone();
            pod["spec"]["containers"][0]["args"] = args.clone();
            node.apply(name, &pod);
            node.pod_when(name, "has a config error", |pod| is_config_error(pod, message));
        }
    });
    assert!(growth < MAX_GROWTH_KIB, "{growth} KiB more");
    let gap = longest_probe_gap(&node, &runtime);
    assert!(
        gap < stretched(Duration::from_secs(5)),
        "a probe of another pod was {gap:?} after the one before"
    );
}

/// A DNS server that reads questions and never answers.
fn start_silent_dns_server() -> (std::net::UdpSocket, String) {
    for last in 1..=254 {
        let address = format!("127.53.{}.{last}", std::process::id() % 250);
        if let Ok(socket) = std::net::UdpSocket::bind((address.as_str(), 53)) {
            return (socket, address);
        }
    }
    panic!("no address for a DNS server");
}

/// Threads of the kubelet that resolve host names.
fn lookup_threads(node: &Node) -> usize {
    let tasks = format!("/proc/{}/task", node.kubelet_pid());
    let names = crate::node::names_in(std::path::Path::new(&tasks));
    let is_lookup = |task: &&String| {
        std::fs::read_to_string(format!("{tasks}/{task}/comm")).is_ok_and(|name| name.trim() == "lookup")
    };
    names.iter().filter(is_lookup).count()
}

#[test]
fn http_probes_of_a_host_name_without_dns_answer_delay_no_other_pod() {
    let (_server, address) = start_silent_dns_server();
    let runtime = FakeRuntime::with_clock(Clock::system());
    let mut node = Node::with_fake(&runtime, json!({}));
    node.set_resolver(&format!("nameserver {address}\noptions timeout:5 attempts:2\n"));
    node.start_kubelet();
    start_probed_pod(&node);
    let probed = |number: usize| {
        let mut container = fake_pod("x")["spec"]["containers"][0].clone();
        container["name"] = format!("c{number}").into();
        let get = json!({"host": format!("name-{number}.example.test"), "port": 80});
        container["readinessProbe"] = json!({"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 1});
        container
    };
    let growth = peak_growth(&node, || {
        let mut pod = fake_pod("lookups");
        pod["spec"]["containers"] = (0..60).map(probed).collect();
        node.apply("lookups", &pod);
        node.eventually("lookups are in flight", |node| match lookup_threads(node) {
            8 => Ok(()),
            count => Err(format!("{count} threads resolve names")),
        });
        let began = std::time::Instant::now();
        node.apply("late", &fake_pod("late"));
        node.running("late");
        let took = began.elapsed();
        assert!(took < stretched(Duration::from_secs(10)), "a new pod started after {took:?}");
        assert_eq!(lookup_threads(&node), 8);
    });
    assert!(growth < MAX_GROWTH_KIB, "{growth} KiB more");
    let gap = longest_probe_gap(&node, &runtime);
    assert!(
        gap < stretched(Duration::from_secs(5)),
        "a probe of another pod was {gap:?} after the one before"
    );
}

#[test]
fn failing_pre_stop_hooks_with_15_mb_of_output_leave_short_events_and_use_no_memory() {
    const ROUNDS: usize = 10;
    const CONTAINERS: usize = 20;
    /// Twenty answers of 15 MB come at a time, and on a busy machine their first parts wait to be read.
    const MAX_GROWTH_KIB: u64 = 64 << 10;
    let runtime = FakeRuntime::with_clock(Clock::system());
    let output = "x".repeat(15_000_000);
    let failing = Program::runs().on_exec(move |_| Exec::exits(1).printing(&output));
    for number in 0..CONTAINERS {
        runtime.program(&format!("c{number}"), failing.clone());
    }
    let node = Node::on_fake(&runtime, json!({}));
    let with_hook = |number: usize| {
        let mut container = fake_pod("x")["spec"]["containers"][0].clone();
        container["name"] = format!("c{number}").into();
        container["lifecycle"] = json!({"preStop": {"exec": {"command": ["print"]}}});
        container
    };
    let growth = peak_growth(&node, || {
        for round in 0..ROUNDS {
            let name = format!("loud-{round}");
            let mut pod = fake_pod(&name);
            pod["spec"]["terminationGracePeriodSeconds"] = 600.into();
            pod["spec"]["containers"] = (0..CONTAINERS).map(with_hook).collect();
            node.apply(&name, &pod);
            let uid = crate::node::uid(&node.running(&name));
            node.delete(&name);
            gone_from_fake(&node, &name, &runtime, &uid);
        }
    });
    assert!(growth < MAX_GROWTH_KIB, "{growth} KiB more");
    let log = node.kubelet_log();
    let events = log.lines().filter(|line| line.contains("\"FailedPreStopHook\"")).collect::<Vec<_>>();
    assert_eq!(events.len(), ROUNDS * CONTAINERS);
    // The message, and the fields around it.
    let longest = events.iter().map(|line| line.len()).max().unwrap_or_default();
    assert!(longest < 1024 + 400, "{longest} bytes");
}

#[test]
fn extreme_termination_grace_periods_still_send_sigterm_and_cause_no_panic() {
    let runtime = FakeRuntime::with_clock(Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    for (name, grace) in [("trillion", 1_000_000_000_000_i64), ("largest", i64::MAX)] {
        let mut pod = fake_pod(name);
        pod["spec"]["terminationGracePeriodSeconds"] = grace.into();
        pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command": ["ok"]}}});
        node.apply(name, &pod);
        let uid = crate::node::uid(&node.running(name));
        node.delete(name);
        gone_from_fake(&node, name, &runtime, &uid);
        let stopped = |line: &String| line.contains("StopContainer") && line.contains(name);
        assert!(
            runtime.call_lines().iter().any(stopped),
            "{name} was not stopped: {:?}",
            runtime.call_lines()
        );
    }
    // A probe that restarts a container with such a grace period.
    let unhealthy = Program::runs().on_exec(|_| Exec::exits(1));
    runtime.program("unhealthy", unhealthy);
    let mut pod = fake_pod("restarts");
    pod["spec"]["containers"][0]["name"] = "unhealthy".into();
    pod["spec"]["containers"][0]["livenessProbe"] = json!({
        "exec": {"command": ["no"]}, "periodSeconds": 1, "failureThreshold": 1,
        "terminationGracePeriodSeconds": i64::MAX,
    });
    node.apply("restarts", &pod);
    node.pod_when("restarts", "was restarted", |pod| crate::node::restarts(pod, "unhealthy") >= 1);
    assert!(!node.kubelet_log().contains("panicked"), "{}", node.kubelet_log());
    assert_eq!(node.healthz(), Ok("ok".to_owned()));
}

/// Names the task that is to panic; an empty name means none.
fn inject_panic(node: &Node, task: &str) {
    std::fs::write(node.path("panic-in"), task).expect("a file is written");
}

#[test]
fn panicked_pod_worker_or_probe_restarts_without_affecting_containers() {
    let runtime = FakeRuntime::with_clock(Clock::system());
    let mut node = Node::with_fake(&runtime, json!({}));
    node.set_variable("KUBELET_PANIC_IN", node.path("panic-in"));
    node.start_kubelet();
    start_probed_pod(&node);
    let before: Vec<_> = runtime.containers().into_iter().map(|(_, container)| container.id).collect();
    for (task, message) in [
        ("pod worker", "Pod worker panicked, restarting it"),
        ("probe", "Probe worker panicked, restarting it"),
    ] {
        inject_panic(&node, task);
        node.wait_for_log(message);
        inject_panic(&node, "");
        let probes = runtime.count(Method::ExecSync);
        node.eventually("the pod is probed again", |_| {
            let count = runtime.count(Method::ExecSync);
            if count > probes + 1 { Ok(()) } else { Err(format!("{count} probes")) }
        });
    }
    node.wait_for_log("pod worker panicked, restarting it in 1s");
    let after: Vec<_> = runtime.containers().into_iter().map(|(_, container)| container.id).collect();
    assert_eq!(after, before);
    let uid = crate::node::uid(&node.running("probed"));
    node.delete("probed");
    gone_from_fake(&node, "probed", &runtime, &uid);
}

#[test]
fn panic_in_a_critical_task_stops_the_kubelet_with_an_error_and_no_container() {
    for task in ["PLEG", "volumes", "sync loop", "node watch"] {
        let runtime = FakeRuntime::with_clock(Clock::system());
        let mut node = Node::with_fake(&runtime, json!({}));
        node.set_variable("KUBELET_PANIC_IN", node.path("panic-in"));
        node.start_kubelet();
        node.apply("web", &fake_pod("web"));
        node.running("web");
        inject_panic(&node, task);
        assert_eq!(node.wait_for_exit().code(), Some(1), "{task}");
        let log = node.kubelet_log();
        assert!(log.contains("Task panicked, exiting so that the kubelet is restarted"), "{task}: {log}");
        assert!(log.contains(&format!("task=\"{task}\"")), "{task}: {log}");
        assert_eq!(runtime.running(), ["web-node/main"]);
    }
}
