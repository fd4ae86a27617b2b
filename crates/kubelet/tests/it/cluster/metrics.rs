//! The `/metrics` of a node that uses a bit of every feature, compared with the list of the Go kubelet's families.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Cluster, bound};
use crate::node::{FOREVER, Node, shell, shell_pod};

/// Families of the Go kubelet that any node of a cluster exports, with the type that each must have.
const EXPORTED: &[(&str, &str)] = &[
    ("kubelet_image_volume_requested_total", "counter"),
    ("kubelet_image_volume_mounted_succeed_total", "counter"),
    ("kubelet_image_volume_mounted_errors_total", "counter"),
    ("apiserver_client_certificate_expiration_seconds", "histogram"),
    ("apiserver_delegated_authz_request_duration_seconds", "histogram"),
    ("apiserver_delegated_authz_request_total", "counter"),
    ("disabled_metrics_total", "counter"),
    ("dra_operations_duration_seconds", "histogram"),
    ("dra_resource_claims_in_use", "gauge"),
    ("hidden_metrics_total", "counter"),
    ("kubelet_active_pods", "gauge"),
    ("kubelet_cgroup_version", "gauge"),
    ("kubelet_container_log_filesystem_used_bytes", "gauge"),
    ("kubelet_containers_per_pod_count", "histogram"),
    ("kubelet_desired_pods", "gauge"),
    ("kubelet_evented_pleg_connection_error_count", "counter"),
    ("kubelet_evented_pleg_connection_latency_seconds", "histogram"),
    ("kubelet_evented_pleg_connection_success_count", "counter"),
    ("kubelet_first_network_pod_start_sli_duration_seconds", "gauge"),
    ("kubelet_http_inflight_requests", "gauge"),
    ("kubelet_http_requests_duration_seconds", "histogram"),
    ("kubelet_http_requests_total", "counter"),
    ("kubelet_image_manager_ensure_image_requests_total", "counter"),
    ("kubelet_imagemanager_image_mustpull_checks_total", "counter"),
    ("kubelet_imagemanager_ondisk_pulledrecords", "gauge"),
    ("kubelet_imagemanager_ondisk_pullintents", "gauge"),
    ("kubelet_lifecycle_handler_http_fallbacks_total", "counter"),
    ("kubelet_managed_ephemeral_containers", "gauge"),
    ("kubelet_metrics_provider", "gauge"),
    ("kubelet_mirror_pods", "gauge"),
    ("kubelet_node_name", "gauge"),
    ("kubelet_node_startup_duration_seconds", "gauge"),
    ("kubelet_node_startup_post_registration_duration_seconds", "gauge"),
    ("kubelet_node_startup_pre_kubelet_duration_seconds", "gauge"),
    ("kubelet_node_startup_pre_registration_duration_seconds", "gauge"),
    ("kubelet_node_startup_registration_duration_seconds", "gauge"),
    ("kubelet_orphaned_runtime_pods_total", "counter"),
    ("kubelet_pleg_discard_events", "counter"),
    ("kubelet_pleg_last_seen_seconds", "gauge"),
    ("kubelet_pleg_pod_relist_duration_seconds", "histogram"),
    ("kubelet_pleg_relist_duration_seconds", "histogram"),
    ("kubelet_pleg_relist_interval_seconds", "histogram"),
    ("kubelet_pod_start_duration_seconds", "histogram"),
    ("kubelet_pod_start_sli_duration_seconds", "histogram"),
    ("kubelet_pod_start_total_duration_seconds", "histogram"),
    ("kubelet_pod_status_sync_duration_seconds", "histogram"),
    ("kubelet_pod_worker_duration_seconds", "histogram"),
    ("kubelet_pod_worker_start_duration_seconds", "histogram"),
    ("kubelet_restarted_pods_total", "counter"),
    ("kubelet_run_podsandbox_duration_seconds", "histogram"),
    ("kubelet_running_containers", "gauge"),
    ("kubelet_running_pods", "gauge"),
    ("kubelet_runtime_operations_duration_seconds", "histogram"),
    ("kubelet_runtime_operations_errors_total", "counter"),
    ("kubelet_runtime_operations_total", "counter"),
    ("kubelet_sleep_action_terminated_early_total", "counter"),
    ("kubelet_started_containers_total", "counter"),
    ("kubelet_started_pods_errors_total", "counter"),
    ("kubelet_started_pods_total", "counter"),
    ("kubelet_started_user_namespaced_pods_errors_total", "counter"),
    ("kubelet_started_user_namespaced_pods_total", "counter"),
    ("kubelet_terminated_containers_total", "counter"),
    ("kubelet_volume_metric_collection_duration_seconds", "histogram"),
    ("kubelet_working_pods", "gauge"),
    ("kubernetes_build_info", "gauge"),
    ("kubernetes_feature_enabled", "gauge"),
    ("kubelet_cpu_manager_exclusive_cpu_allocation_count", "gauge"),
    ("kubelet_cpu_manager_pinning_errors_total", "counter"),
    ("kubelet_cpu_manager_pinning_requests_total", "counter"),
    ("kubelet_cpu_manager_shared_pool_size_millicores", "gauge"),
    ("kubelet_memory_manager_pinning_errors_total", "counter"),
    ("kubelet_memory_manager_pinning_requests_total", "counter"),
    ("kubelet_topology_manager_admission_duration_ms", "histogram"),
    ("kubelet_topology_manager_admission_errors_total", "counter"),
    ("kubelet_topology_manager_admission_requests_total", "counter"),
    ("kubelet_pod_in_progress_resizes", "gauge"),
    ("kubelet_pod_watch_events_dropped_total", "counter"),
    ("process_cpu_seconds_total", "counter"),
    ("process_max_fds", "gauge"),
    ("process_open_fds", "gauge"),
    ("process_resident_memory_bytes", "gauge"),
    ("process_network_receive_bytes_total", "counter"),
    ("process_network_transmit_bytes_total", "counter"),
    ("process_start_time_seconds", "gauge"),
    ("process_virtual_memory_max_bytes", "gauge"),
    ("rest_client_exec_plugin_certificate_rotation_age", "histogram"),
    ("process_virtual_memory_bytes", "gauge"),
    ("rest_client_exec_plugin_ttl_seconds", "gauge"),
    ("rest_client_rate_limiter_duration_seconds", "histogram"),
    ("rest_client_request_duration_seconds", "histogram"),
    ("rest_client_request_size_bytes", "histogram"),
    ("rest_client_requests_total", "counter"),
    ("rest_client_response_size_bytes", "histogram"),
    ("volume_manager_total_volumes", "gauge"),
    ("storage_operation_duration_seconds", "histogram"),
    ("volume_operation_total_seconds", "histogram"),
    ("reconstruct_volume_operations_total", "counter"),
    ("reconstruct_volume_operations_errors_total", "counter"),
    ("kubelet_orphan_pod_cleaned_volumes_errors", "gauge"),
    ("kubelet_orphan_pod_cleaned_volumes", "gauge"),
    ("force_cleaned_failed_volume_operations_total", "counter"),
    ("force_cleaned_failed_volume_operation_errors_total", "counter"),
];

/// Families without a sample, omitted as in the Go kubelet until the first event that they count.
const COUNTED_LATER: &[(&str, &str)] = &[
    ("kubelet_preemptions", "counter"),
    ("csi_operations_seconds", "histogram"),
    ("apiserver_delegated_authn_request_duration_seconds", "histogram"),
    ("apiserver_delegated_authn_request_total", "counter"),
    ("authentication_token_cache_request_duration_seconds", "histogram"),
    ("authentication_token_cache_request_total", "counter"),
    ("kubelet_admission_rejections_total", "counter"),
    ("kubelet_image_pull_duration_seconds", "histogram"),
    ("kubelet_pod_resources_endpoint_errors_get", "counter"),
    ("kubelet_pod_resources_endpoint_errors_get_allocatable", "counter"),
    ("kubelet_pod_resources_endpoint_errors_list", "counter"),
    ("kubelet_pod_resources_endpoint_requests_get", "counter"),
    ("kubelet_pod_resources_endpoint_requests_get_allocatable", "counter"),
    ("kubelet_pod_resources_endpoint_requests_list", "counter"),
    ("kubelet_pod_resources_endpoint_requests_total", "counter"),
    ("kubelet_run_podsandbox_errors_total", "counter"),
    ("kubelet_started_containers_errors_total", "counter"),
    ("kubelet_websocket_streaming_requests_total", "counter"),
    ("kubernetes_healthcheck", "gauge"),
    ("kubernetes_healthchecks_total", "counter"),
];

/// The other families of the Go kubelet: exported only by nodes that do more than this one, or not built (docs/parity.md).
/// Those that end in `*` are omitted: Go's own (`go_*`), its work queues, and what its registry counts have no meaning here.
const REST: &[&str] = &[
    "kubelet_cri_losing_support",
    "dra_grpc_operations_duration_seconds",
    "kubelet_certificate_manager_client_expiration_renew_errors",
    "kubelet_certificate_manager_client_ttl_seconds",
    "kubelet_certificate_manager_server_rotation_seconds",
    "kubelet_certificate_manager_server_ttl_seconds",
    "kubelet_cgroup_manager_duration_seconds",
    "kubelet_container_aligned_compute_resources_count",
    "kubelet_container_aligned_compute_resources_failure_count",
    "kubelet_container_requested_resizes_total",
    "kubelet_cpu_manager_allocation_per_numa",
    "kubelet_credential_provider_config_info",
    "kubelet_credential_provider_plugin_duration",
    "kubelet_credential_provider_plugin_errors_total",
    "kubelet_device_plugin_alloc_duration_seconds",
    "kubelet_device_plugin_registration_total",
    "kubelet_eviction_stats_age_seconds",
    "kubelet_evictions",
    "kubelet_graceful_shutdown_end_time_seconds",
    "kubelet_graceful_shutdown_start_time_seconds",
    "kubelet_image_garbage_collected_total",
    "kubelet_imagemanager_inmemory_pulledrecords_usage_percent",
    "kubelet_imagemanager_inmemory_pullintents_usage_percent",
    "kubelet_memory_qos_node_memory_low_bytes",
    "kubelet_memory_qos_node_memory_min_bytes",
    "kubelet_pod_deferred_accepted_resizes_total",
    "kubelet_pod_infeasible_resizes_total",
    "kubelet_pod_pending_resizes",
    "kubelet_pod_resize_duration_milliseconds",
    "kubelet_podcertificate_states",
    "kubelet_server_expiration_renew_errors",
    "kubelet_started_host_process_containers_errors_total",
    "kubelet_started_host_process_containers_total",
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
    "kubelet_volume_stats_health_status_abnormal",
    "kubelet_volume_stats_inodes",
    "kubelet_volume_stats_inodes_free",
    "kubelet_volume_stats_inodes_used",
    "kubelet_volume_stats_used_bytes",
    "plugin_manager_total_plugins",
    "registered_metrics_total",
    "resource_manager_allocation_errors_total",
    "resource_manager_allocations_total",
    "resource_manager_container_assignments",
    "volume_manager_selinux_container_errors_total",
    "volume_manager_selinux_container_warnings_total",
    "volume_manager_selinux_pod_context_mismatch_errors_total",
    "volume_manager_selinux_pod_context_mismatch_warnings_total",
    "volume_manager_selinux_volume_context_mismatch_errors_total",
    "volume_manager_selinux_volume_context_mismatch_warnings_total",
    "volume_manager_selinux_volumes_admitted_total",
];

/// Types by family.
fn families(text: &str) -> BTreeMap<&str, &str> {
    let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let families: BTreeMap<&str, &str> = heads.clone().collect();
    assert_eq!(families.len(), heads.count(), "no family is repeated");
    families
}

fn pod() -> Value {
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["initContainers"] = json!([shell("init", "sleep 1")]);
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "500m", "memory": "64Mi"}});
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod
}

#[test]
fn metrics_of_a_cluster_node_have_every_implemented_family() {
    let cluster = Cluster::with_authorization(json!({"volumeStatsAggPeriod": "1ms"}));
    cluster.wait_until_ready();
    let mut ends = shell_pod("ends", "exit 7");
    ends["spec"]["restartPolicy"] = "Never".into();
    cluster.kubectl.apply(&[bound(pod()), bound(ends)]);
    cluster.running("web");
    cluster.pod_when("ends", "has failed", |pod| pod["status"]["phase"] == "Failed");
    cluster.kubectl.ok(&["logs", "web"]);
    let lines = |node: &Node| node.get("/metrics");
    let text = cluster.node.eventually("the pods are counted", |node| {
        let text = lines(node)?;
        let expected = [
            "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"\"} 1",
            "kubelet_working_pods{config=\"desired\",lifecycle=\"terminated\",static=\"\"} 1",
            "kubelet_terminated_containers_total{container_type=\"container\",exit_code=\"7\",reason=\"Error\"} 1",
        ];
        let starts = number(&text, "kubelet_pod_start_sli_duration_seconds_count");
        if starts < 1.0 {
            return Err(format!("{starts} starts"));
        }
        // Log sizes are measured in a separate pass.
        if !text.contains("kubelet_container_log_filesystem_used_bytes{") {
            return Err("no size of a log".to_owned());
        }
        let absent = expected.iter().find(|line| !text.lines().any(|sample| sample == **line));
        absent.map_or(Ok(text.clone()), |line| Err(format!("no {line} in {text}")))
    });
    let exported = families(&text);
    let is_lost = |(name, kind): &&(&str, &str)| exported.get(name) != Some(kind);
    let lost: Vec<_> = EXPORTED.iter().filter(is_lost).collect();
    assert!(lost.is_empty(), "missing, or of another type: {lost:?}");
    let is_of_another_type =
        |(name, kind): &&(&str, &str)| exported.get(name).is_some_and(|actual| actual != kind);
    assert_eq!(COUNTED_LATER.iter().find(is_of_another_type), None);
    let has_sample = |name: &str| text.lines().any(|line| line.starts_with(name));
    assert!(exported.keys().all(|name| has_sample(name)), "a family without a sample");
    let is_known = |name: &str| {
        EXPORTED.iter().chain(COUNTED_LATER).any(|(known, _)| *known == name)
            || REST.contains(&name)
            || name.starts_with("kubelet_rs_")
    };
    let unknown: Vec<_> = exported.keys().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "families that the Go kubelet does not have: {unknown:?}");
    check_caller_metrics(&cluster, &text);
    super::recorded_metrics::compare(&cluster);
}

fn number(text: &str, sample: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {sample} in {text}")).parse().expect("a number")
}

/// The API server reviewed a token and called the kubelet, and a request of each kind was counted.
fn check_caller_metrics(cluster: &Cluster, text: &str) {
    let host = format!("127.0.0.1:{}", cluster.api.port());
    for sample in [
        "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"containerLogs\",server_type=\"readwrite\"}",
        "kubelet_http_requests_duration_seconds_count{long_running=\"false\",method=\"GET\",path=\"containerLogs\",server_type=\"readwrite\"}",
        "apiserver_delegated_authz_request_total{code=\"201\"}",
        "apiserver_client_certificate_expiration_seconds_count",
        &format!("rest_client_requests_total{{code=\"200\",host=\"{host}\",method=\"PATCH\"}}"),
        &format!("rest_client_request_duration_seconds_count{{host=\"{host}\",verb=\"GET\"}}"),
        &format!("rest_client_response_size_bytes_sum{{host=\"{host}\",verb=\"PATCH\"}}"),
        "kubelet_pod_status_sync_duration_seconds_count",
        "kubelet_node_startup_duration_seconds",
        "kubelet_pleg_pod_relist_duration_seconds_count",
        "kubernetes_feature_enabled{name=\"ContainerCheckpoint\",stage=\"BETA\"}",
        "kubelet_image_manager_ensure_image_requests_total{present_locally=\"true\",pull_policy=\"never\",pull_required=\"false\"}",
        "kubelet_volume_metric_collection_duration_seconds_count{metric_source=\"kubernetes.io/empty-dir\"}",
    ] {
        assert!(number(text, sample) > 0.0, "{sample}");
    }
    let now = "kubelet_http_inflight_requests{long_running=\"false\",method=\"GET\",path=\"metrics\",server_type=\"readonly\"} 1\n";
    assert!(text.contains(now), "the request itself is in flight: {text}");
    cluster.node.get("/healthz").expect("it is healthy");
    let checks = cluster.node.get("/metrics/slis").expect("checks");
    assert!(number(&checks, "process_start_time_seconds") > 1.6e9);
    let le = "apiserver_client_certificate_expiration_seconds_bucket{le=\"1.5552e+07\"}";
    assert!(number(text, le) >= 0.0, "bucket bounds are written as Go writes them");
    let verified = "storage_operation_duration_seconds_count{migrated=\"false\",operation_name=\"verify_controller_attached_volume\",status=\"success\",volume_plugin=\"kubernetes.io/empty-dir\"}";
    assert!(number(text, verified) >= 1.0);
    let updated = "kubelet_cgroup_manager_duration_seconds_count{operation_type=\"update\"}";
    assert!(number(text, updated) >= 1.0);
    assert!(checks.contains("kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 1\n"), "{checks}");
    assert!(
        number(&checks, "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"}")
            >= 1.0
    );
}
