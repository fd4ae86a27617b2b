//! The worked numbers of docs/operate/resources.md.

use std::collections::BTreeMap;

use base_core::node_facts::MemoryQos;
use config::KubeletConfiguration;
use kubelet_core::node::enforcement::compute_enforcement;
use kubelet_core::node::eviction::rank::rank;
use kubelet_core::node::eviction::usage::{Candidate, PodUsage};
use kubelet_core::node::eviction::{DiskLayout, Signal};
use kubelet_core::node::{compute_allocatable, reserved_amounts};
use kubelet_core::pods::request::resources::oom_score_adj;
use model::QosClass;
use model::cgroup::CgroupVersion;
use model::containers::regular_containers;
use model::k8s::Pod;
use resources_core::cgroup::{PodRules, compute_pod_numbers, compute_settings};
use resources_core::quantities::Quantities;
use serde_json::{Value, json};

const MEBIBYTE: u64 = 1 << 20;
/// Of the node on the page.
const MEMORY: u64 = 8192 * MEBIBYTE;

fn pod(name: &str, resources: &Value) -> Pod {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "resources": resources}]}});
    serde_json::from_value(pod).expect("a pod")
}

/// The cells of the first table after the limits.
fn cells(resources: &Value) -> String {
    let pod = pod("web", resources);
    let rules = PodRules {
        cpu_quota_period: Some(100_000),
        pids_limit: None,
        hugepage_sizes: &[],
        memory_qos: MemoryQos::Off,
    };
    let settings = compute_settings(&compute_pod_numbers(&pod, &rules), CgroupVersion::V2);
    let value = |name: &str| {
        let file = settings.files.iter().find(|file| file.name == name);
        file.map_or("none".to_owned(), |file| file.text.clone())
    };
    let container = regular_containers(&pod).next().expect("a container");
    let score = oom_score_adj(&pod, &container, MEMORY);
    let class = QosClass::of(&pod);
    format!(
        "| {class:?} | {} | {} | {} | {score} |",
        value("cpu.weight"),
        value("cpu.max"),
        value("memory.max")
    )
}

#[test]
fn worked_numbers_are_those_of_the_code() {
    let page = std::fs::read_to_string(super::directory().join("resources.md")).expect("the page");
    let half =
        json!({"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}});
    let whole = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    for (name, resources) in [
        ("none | none", json!({})),
        ("cpu 250m, memory 64Mi | cpu 500m, memory 128Mi", half),
        ("cpu 1, memory 1Gi | the same", whole),
        ("cpu 2, memory 4Gi | none", json!({"requests": {"cpu": "2", "memory": "4Gi"}})),
    ] {
        let row = format!("| {name} {}", cells(&resources));
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn worked_allocatable_resources_are_those_of_the_code() {
    let config: KubeletConfiguration = serde_json::from_value(json!({
        "systemReserved": {"cpu": "200m", "memory": "200Mi"}, "kubeReserved": {"cpu": "100m", "memory": "300Mi"},
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
    }))
    .expect("a configuration");
    let capacity: Quantities =
        serde_json::from_value(json!({"cpu": "4", "memory": "8192Mi", "ephemeral-storage": "100Gi"}))
            .expect("a node");
    let reserved = reserved_amounts(&config, &capacity, false);
    let left = compute_allocatable(&capacity, &reserved, &BTreeMap::new());
    let bytes = |mebibytes: u64| (mebibytes * MEBIBYTE).to_string();
    let shown = |name: &str| left[name].0.clone();
    let in_bytes = |name: &str| model::Amount::of(&left[name]).expect("an amount").units().to_string();
    // A share is a number of 32 bits, as in the Go kubelet: 160 bytes are missing from 90 GiB.
    let storage = (90 * 1024 * MEBIBYTE - 160).to_string();
    assert_eq!(
        (shown("cpu"), in_bytes("memory"), in_bytes("ephemeral-storage")),
        ("3700m".to_owned(), bytes(7592), storage)
    );
    let enforced = compute_enforcement(&config, &capacity, None, &[]);
    let settings = compute_settings(&enforced.all_pods, CgroupVersion::V2);
    let value =
        |name: &str| settings.files.iter().find(|file| file.name == name).map(|file| file.text.clone());
    assert_eq!((value("cpu.weight"), value("memory.max")), (Some("145".to_owned()), Some(bytes(7692))));
}

#[test]
fn worked_order_of_eviction_is_that_of_the_code() {
    let using = |mebibytes: u64| Some(PodUsage { memory: Some(mebibytes * MEBIBYTE), ..PodUsage::default() });
    let pods = [
        (pod("database", &json!({"requests": {"memory": "3Gi"}})), using(2048)),
        (pod("web", &json!({"requests": {"memory": "800Mi"}})), using(900)),
        (pod("batch", &json!({})), using(300)),
    ];
    let mut ranked: Vec<_> =
        pods.iter().map(|(pod, usage)| Candidate { pod, usage: usage.clone() }).collect();
    rank(&mut ranked, Signal::MemoryAvailable, DiskLayout::One);
    let names: Vec<_> =
        ranked.iter().filter_map(|candidate| candidate.pod.metadata.name.as_deref()).collect();
    assert_eq!(names, ["batch", "web", "database"]);
}
