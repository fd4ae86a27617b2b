//! The defaults, one row for each field of KubeletConfiguration.

use crate::support::{Memory, resolve};
use serde_json::{Value, json};

const K8S_PLUGINS: &str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/";

fn table() -> Vec<(&'static str, Value)> {
    [first_half(), second_half()].concat()
}

fn first_half() -> Vec<(&'static str, Value)> {
    vec![
        ("enableServer", json!(true)),
        ("staticPodPath", json!("")),
        ("staticPodURL", json!("")),
        ("staticPodURLHeader", json!({})),
        ("podLogsDir", json!("/var/log/pods")),
        ("syncFrequency", json!("1m0s")),
        ("fileCheckFrequency", json!("20s")),
        ("httpCheckFrequency", json!("20s")),
        ("address", json!("0.0.0.0")),
        ("port", json!(10250)),
        ("readOnlyPort", json!(0)),
        ("volumePluginDir", json!(K8S_PLUGINS)),
        ("providerID", json!("")),
        ("tlsCertFile", json!("")),
        ("tlsPrivateKeyFile", json!("")),
        ("tlsCipherSuites", json!([])),
        ("tlsCurvePreferences", json!([])),
        ("tlsMinVersion", json!("")),
        ("rotateCertificates", json!(false)),
        ("serverTLSBootstrap", json!(false)),
        (
            "authentication",
            json!({"x509": {"clientCAFile": ""}, "webhook": {"enabled": true, "cacheTTL": "2m0s"}, "anonymous": {"enabled": false}}),
        ),
        (
            "authorization",
            json!({"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"}}),
        ),
        ("registryPullQPS", json!(5)),
        ("registryBurst", json!(10)),
        ("imagePullCredentialsVerificationPolicy", json!("NeverVerifyPreloadedImages")),
        ("preloadedImagesVerificationAllowlist", json!([])),
        ("eventRecordQPS", json!(50)),
        ("eventBurst", json!(100)),
        ("enableDebuggingHandlers", json!(true)),
        ("enableContentionProfiling", json!(false)),
        ("healthzPort", json!(10248)),
        ("healthzBindAddress", json!("127.0.0.1")),
        ("oomScoreAdj", json!(-999)),
        ("clusterDomain", json!("")),
        ("clusterDNS", json!([])),
        ("streamingConnectionIdleTimeout", json!("4h0m0s")),
        ("nodeStatusUpdateFrequency", json!("10s")),
        ("nodeStatusReportFrequency", json!("5m0s")),
        ("nodeLeaseDurationSeconds", json!(40)),
        ("imageMinimumGCAge", json!("2m0s")),
        ("imageMaximumGCAge", json!("0s")),
        ("imageGCHighThresholdPercent", json!(85)),
        ("imageGCLowThresholdPercent", json!(80)),
        ("volumeStatsAggPeriod", json!("1m0s")),
        ("kubeletCgroups", json!("")),
        ("systemCgroups", json!("")),
        ("cgroupRoot", json!("")),
        ("cgroupsPerQOS", json!(true)),
        ("cgroupDriver", json!("cgroupfs")),
        ("cpuManagerPolicy", json!("none")),
        ("cpuManagerPolicyOptions", json!({})),
        ("singleProcessOOMKill", Value::Null),
        ("cpuManagerReconcilePeriod", json!("10s")),
        ("memoryManagerPolicy", json!("None")),
        ("topologyManagerPolicy", json!("none")),
        ("topologyManagerScope", json!("container")),
        ("topologyManagerPolicyOptions", json!({})),
        ("qosReserved", json!({})),
        ("runtimeRequestTimeout", json!("2m0s")),
        ("hairpinMode", json!("promiscuous-bridge")),
        ("maxPods", json!(110)),
        ("podCIDR", json!("")),
        ("podPidsLimit", json!(-1)),
        ("resolvConf", json!("/etc/resolv.conf")),
        ("runOnce", json!(false)),
        ("cpuCFSQuota", json!(true)),
    ]
}

fn second_half() -> Vec<(&'static str, Value)> {
    vec![
        ("cpuCFSQuotaPeriod", json!("100ms")),
        ("nodeStatusMaxImages", json!(50)),
        ("maxOpenFiles", json!(1_000_000)),
        ("contentType", json!("application/vnd.kubernetes.protobuf")),
        ("kubeAPIQPS", json!(50)),
        ("kubeAPIBurst", json!(100)),
        ("serializeImagePulls", json!(true)),
        ("maxParallelImagePulls", Value::Null),
        (
            "evictionHard",
            json!({
                "memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
                "imagefs.available": "15%", "imagefs.inodesFree": "5%",
            }),
        ),
        ("evictionSoft", json!({})),
        ("evictionSoftGracePeriod", json!({})),
        ("evictionMaxPodGracePeriod", json!(0)),
        ("evictionMinimumReclaim", json!({})),
        ("mergeDefaultEvictionSettings", json!(false)),
        ("evictionPressureTransitionPeriod", json!("5m0s")),
        ("podsPerCore", json!(0)),
        ("enableControllerAttachDetach", json!(true)),
        ("protectKernelDefaults", json!(false)),
        ("makeIPTablesUtilChains", json!(true)),
        ("iptablesMasqueradeBit", json!(14)),
        ("iptablesDropBit", json!(15)),
        ("featureGates", json!({})),
        ("failSwapOn", json!(true)),
        ("memorySwap", json!({"swapBehavior": ""})),
        ("containerLogMaxSize", json!("10Mi")),
        ("containerLogMaxFiles", json!(5)),
        ("containerLogMaxWorkers", json!(1)),
        ("containerLogMonitorInterval", json!("10s")),
        ("configMapAndSecretChangeDetectionStrategy", json!("Watch")),
        ("systemReserved", json!({})),
        ("kubeReserved", json!({})),
        ("reservedSystemCPUs", json!("")),
        ("showHiddenMetricsForVersion", json!("")),
        ("systemReservedCgroup", json!("")),
        ("kubeReservedCgroup", json!("")),
        ("enforceNodeAllocatable", json!(["pods"])),
        ("allowedUnsafeSysctls", json!([])),
        ("kernelMemcgNotification", json!(false)),
        (
            "logging",
            json!({
                "format": "text", "flushFrequency": "5s", "verbosity": 0, "vmodule": [],
                "options": {
                    "text": {"splitStream": false, "infoBufferSize": "0"},
                    "json": {"splitStream": false, "infoBufferSize": "0"},
                },
            }),
        ),
        ("enableSystemLogHandler", json!(true)),
        ("enableSystemLogQuery", json!(false)),
        ("shutdownGracePeriod", json!("0s")),
        ("shutdownGracePeriodCriticalPods", json!("0s")),
        ("shutdownGracePeriodByPodPriority", json!([])),
        ("crashLoopBackOff", json!({"maxContainerRestartPeriod": "5m0s"})),
        ("reservedMemory", json!([])),
        ("enableProfilingHandler", json!(true)),
        ("enableDebugFlagsHandler", json!(true)),
        ("seccompDefault", json!(false)),
        ("memoryThrottlingFactor", json!(0.9)),
        ("memoryReservationPolicy", json!("None")),
        ("registerWithTaints", json!([])),
        ("registerNode", json!(true)),
        ("tracing", Value::Null),
        ("localStorageCapacityIsolation", json!(true)),
        ("containerRuntimeEndpoint", json!("unix:///run/containerd/containerd.sock")),
        ("imageServiceEndpoint", json!("")),
        ("failCgroupV1", json!(true)),
        ("userNamespaces", json!({"idsPerPod": 65536})),
    ]
}

#[test]
fn configuration_file_fields_have_the_defaults_of_v1beta1() {
    let files = Memory::default().with("/k.yaml", "");
    let resolved = resolve("--config /k.yaml", &files).expect("valid");
    let tree = serde_json::to_value(&resolved.kubelet).expect("serializes");
    for (field, expected) in table() {
        assert_eq!(tree.get(field).unwrap_or(&Value::Null), &expected, "{field}");
    }
    let known: Vec<&str> = table().iter().map(|(field, _)| *field).collect();
    for field in tree.as_object().expect("an object").keys() {
        assert!(known.contains(&field.as_str()), "{field} has no row");
    }
}

#[test]
fn fields_have_the_legacy_defaults_without_a_config_file() {
    let kubelet = resolve("", &Memory::default()).expect("valid").kubelet;
    assert!(kubelet.authentication.anonymous.enabled);
    assert!(!kubelet.authentication.webhook.enabled);
    assert_eq!(kubelet.authorization.mode, "AlwaysAllow");
    assert_eq!(kubelet.read_only_port, 10255);
    assert!(kubelet.eviction_hard.is_empty());
    let tree = serde_json::to_value(&kubelet).expect("serializes");
    let old = ["authentication", "authorization", "readOnlyPort", "evictionHard"];
    for (field, expected) in table().into_iter().filter(|(field, _)| !old.contains(field)) {
        assert_eq!(tree.get(field).unwrap_or(&Value::Null), &expected, "{field}");
    }
}

#[test]
fn flags_without_a_field_have_the_defaults_of_the_go_kubelet() {
    let flags = resolve("", &Memory::default()).expect("valid").flags;
    assert_eq!(flags.root_dir, "/var/lib/kubelet");
    assert_eq!(flags.cert_dir, "/var/lib/kubelet/pki");
    assert_eq!(flags.housekeeping_interval.to_string(), "10s");
    assert_eq!(flags.max_housekeeping_interval.to_string(), "15s");
    assert!(flags.minimum_container_ttl.is_zero());
    assert_eq!(flags.maximum_dead_containers_per_container, 1);
    assert_eq!(flags.maximum_dead_containers, -1);
    assert!(flags.standalone() && flags.lock_file.is_empty() && !flags.exit_on_lock_contention);
}

#[test]
fn configz_has_the_fields_of_the_go_kubelet() {
    let recorded = include_str!("recorded_configz.json");
    let files = Memory::default().raw("/k.json", recorded);
    let shown = resolve("--config /k.json", &files).expect("valid").kubelet.configz();
    let recorded: Value = serde_json::from_str(recorded).expect("a recording");
    assert_eq!(shown, recorded);
}

#[test]
fn configz_decodes_to_the_same_configuration() {
    let files =
        Memory::default().with("/k.yaml", "maxPods: 5\ntracing: {endpoint: here}\nsyncFrequency: 90s\n");
    let resolved = resolve("--config /k.yaml", &files).expect("valid");
    let shown = resolved.kubelet.configz();
    assert_eq!(shown["kind"], "KubeletConfiguration");
    assert_eq!(shown["apiVersion"], "kubelet.config.k8s.io/v1beta1");
    assert_eq!(shown["syncFrequency"], "1m30s");
    let again = Memory::default().raw("/k.json", &shown.to_string());
    assert_eq!(resolve("--config /k.json", &again).expect("valid").kubelet, resolved.kubelet);
}
