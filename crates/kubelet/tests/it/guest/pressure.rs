//! Pressure stall information, which only cgroup v2 has for a container.

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, shell, shell_pod};

/// The value of the sample with this name and all these labels.
fn sample(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let start = format!("{name}{{");
    let line = text
        .lines()
        .find(|line| line.starts_with(&start) && labels.iter().all(|label| line.contains(label)))?;
    let (_, value) = line.rsplit_once("} ")?;
    value.split(' ').next()?.parse().ok()
}

#[test]
#[ignore = "needs cgroup v2: scripts/vm"]
fn psi_metrics_show_cpu_pressure_of_container_pod_and_node() {
    // A node that would refuse cgroup v1 starts here.
    let node = Node::start_with(json!({"failCgroupV1": true}));
    let mut pod = shell_pod("waiting", "while :; do :; done");
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "50m", "memory": "64Mi"}});
    pod["spec"]["containers"].as_array_mut().expect("containers").push(shell("calm", FOREVER));
    node.apply("waiting", &pod);
    node.running("waiting");
    let summary = node.eventually("the busy container has waited", |node| {
        let summary: Value =
            serde_json::from_str(&node.get("/stats/summary")?).map_err(|error| error.to_string())?;
        let containers = summary["pods"][0]["containers"].as_array().cloned().unwrap_or_default();
        let main = containers.iter().find(|container| container["name"] == "main").ok_or("not measured")?;
        let microseconds = main.pointer("/cpu/psi/some/total").and_then(Value::as_u64).unwrap_or_default();
        if microseconds > 200_000 { Ok(summary) } else { Err(main.to_string()) }
    });
    for at in ["/node", "/pods/0", "/pods/0/containers/0", "/pods/0/containers/1"] {
        for resource in ["cpu", "memory", "io"] {
            let psi = summary.pointer(&format!("{at}/{resource}/psi")).unwrap_or(&Value::Null);
            assert!(
                psi["some"]["total"].is_u64() && psi["some"]["avg10"].is_number(),
                "{at}/{resource}: {psi}"
            );
        }
    }
    let text = node.get("/metrics/cadvisor").expect("metrics");
    let of = |container: &str, name: &str| {
        let labels = [&format!("container=\"{container}\"")[..], "pod=\"waiting-node\""];
        sample(&text, name, &labels).unwrap_or_else(|| panic!("no {name} of {container} in\n{text}"))
    };
    let waited = of("main", "container_pressure_cpu_waiting_seconds_total");
    assert!(waited > 0.2, "{waited}");
    for name in ["cpu_stalled", "memory_waiting", "memory_stalled", "io_waiting", "io_stalled"] {
        let stall = of("calm", &format!("container_pressure_{name}_seconds_total"));
        assert!(stall < waited, "{name}: {stall}");
    }
}
