//! `/metrics/resource`, and the disk families of `/metrics`.

use super::*;

fn resource_of(sample: &NodeSample) -> String {
    (0..resource::FAMILIES).map(|place| resource::family_text(sample, place)).collect()
}

#[test]
fn resource_metrics_have_the_timestamp_of_the_sample() {
    expect![[r##"
        # HELP container_cpu_usage_seconds_total CPU time used by the container, in seconds.
        # TYPE container_cpu_usage_seconds_total counter
        container_cpu_usage_seconds_total{container="main",namespace="default",pod="web"} 1.500000001 1700000200123
        # HELP container_memory_working_set_bytes Working set of the container, in bytes.
        # TYPE container_memory_working_set_bytes gauge
        container_memory_working_set_bytes{container="main",namespace="default",pod="web"} 19000 1700000200123
        # HELP container_swap_limit_bytes Swap that the container may use, in bytes.
        # TYPE container_swap_limit_bytes gauge
        container_swap_limit_bytes{container="main",namespace="default",pod="web"} 100 1700000200123
        # HELP container_swap_usage_bytes Swap used by the container, in bytes.
        # TYPE container_swap_usage_bytes gauge
        container_swap_usage_bytes{container="main",namespace="default",pod="web"} 64 1700000200123
        # HELP node_cpu_usage_seconds_total CPU time used on the node, in seconds.
        # TYPE node_cpu_usage_seconds_total counter
        node_cpu_usage_seconds_total 1.5 1700000200123
        # HELP node_memory_working_set_bytes Working set of the node, in bytes.
        # TYPE node_memory_working_set_bytes gauge
        node_memory_working_set_bytes 19000 1700000200123
        # HELP node_swap_usage_bytes Swap used on the node, in bytes.
        # TYPE node_swap_usage_bytes gauge
        node_swap_usage_bytes 64 1700000200123
        # HELP pod_cpu_usage_seconds_total CPU time used by the pod, in seconds.
        # TYPE pod_cpu_usage_seconds_total counter
        pod_cpu_usage_seconds_total{namespace="default",pod="web"} 3.000000002 1700000200123
        # HELP pod_memory_working_set_bytes Working set of the pod, in bytes.
        # TYPE pod_memory_working_set_bytes gauge
        pod_memory_working_set_bytes{namespace="default",pod="web"} 38000 1700000200123
        # HELP pod_swap_usage_bytes Swap used by the pod, in bytes.
        # TYPE pod_swap_usage_bytes gauge
        pod_swap_usage_bytes{namespace="default",pod="web"} 128 1700000200123
        # HELP container_start_time_seconds Start time of the container, in seconds since 1970.
        # TYPE container_start_time_seconds gauge
        container_start_time_seconds{container="main",namespace="default",pod="web"} 1700000100
        # HELP resource_scrape_error 1 if something could not be measured, 0 otherwise.
        # TYPE resource_scrape_error gauge
        resource_scrape_error 0
    "##]].assert_eq(&resource_of(&node()));
}

#[test]
fn resource_metrics_of_two_pods_with_one_name_are_those_of_the_newer() {
    let mut node = node();
    let mut newer = node.pods[0].clone();
    newer.started = Timestamp::from_second(1_700_000_150).ok();
    newer.containers[0].placed.cgroup.memory.working_set = Some(77);
    node.pods.insert(0, newer);
    let text = resource_of(&node);
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("container_memory_working_set")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains("} 77 "), "{text}");
}

#[test]
fn a_pod_with_a_cgroup_of_its_own_is_measured_there() {
    let mut node = node();
    let own = Placed { path: "/kubepods/poduid-1".into(), cgroup: v2(), rate: Some(9), measured_at: None };
    node.pods[0].own = Some(own.clone());
    assert_eq!(node.pods[0].whole(), own);
    assert_eq!(node.pods[0].processes(), Some(4));
    node.pods[0].own = None;
    let whole = node.pods[0].whole();
    assert_eq!((whole.cgroup.cpu_nanoseconds, whole.rate), (Some(3_000_000_002), Some(251)));
    assert_eq!(whole.cgroup.memory.working_set, Some(38_000));
}

#[test]
fn volume_stats_are_exported_once_per_claim_and_log_usage_per_container() {
    let mut disks = disks();
    let other = PodDisks { logs: BTreeMap::new(), ..disks.pods[&PodUid::from("uid-1")].clone() };
    disks.pods.insert(PodUid::from("uid-2"), other);
    let pods = ["uid-1", "uid-2"].map(|uid| (PodUid::from(uid), PodRef::new("default", "web", uid)));
    let mut text = String::new();
    volumes::write_disks(&mut text, &disks, &BTreeMap::from(pods));
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let claim = "{namespace=\"default\",persistentvolumeclaim=\"claim\"}";
    assert_eq!(
        lines,
        [
            format!("kubelet_volume_stats_available_bytes{claim} 400"),
            format!("kubelet_volume_stats_capacity_bytes{claim} 1000"),
            format!("kubelet_volume_stats_inodes{claim} 100"),
            format!("kubelet_volume_stats_inodes_free{claim} 60"),
            format!("kubelet_volume_stats_inodes_used{claim} 2"),
            format!("kubelet_volume_stats_used_bytes{claim} 10"),
            "kubelet_container_log_filesystem_used_bytes{container=\"main\",namespace=\"default\",pod=\"web\",uid=\"uid-1\"} 100"
                .to_owned(),
        ]
    );
}

/// Families and types of `/metrics/resource`, recorded from the Go kubelet 1.36.2.
const RECORDED_FAMILIES: [&str; 12] = [
    "container_cpu_usage_seconds_total counter",
    "container_memory_working_set_bytes gauge",
    "container_start_time_seconds gauge",
    "container_swap_limit_bytes gauge",
    "container_swap_usage_bytes gauge",
    "node_cpu_usage_seconds_total counter",
    "node_memory_working_set_bytes gauge",
    "node_swap_usage_bytes gauge",
    "pod_cpu_usage_seconds_total counter",
    "pod_memory_working_set_bytes gauge",
    "pod_swap_usage_bytes gauge",
    "resource_scrape_error gauge",
];

#[test]
fn metrics_resource_has_the_families_of_the_go_kubelet() {
    let text: String = (0..resource::FAMILIES).map(|place| resource::family_text(&node(), place)).collect();
    let mut ours: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    ours.sort_unstable();
    assert_eq!(ours, RECORDED_FAMILIES);
}
