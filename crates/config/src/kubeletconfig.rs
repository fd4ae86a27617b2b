//! `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1): every field with its wire name, type and built-in default.
//!
//! Owns the typed shape and the fixed defaults. Defaults that depend on what the user set are in [`defaults`]; what is
//! allowed is in `validate`. Never reads files.

pub(crate) mod defaults;
pub(crate) mod parts;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use crate::duration::GoDuration;
use parts::{
    Authentication, Authorization, CrashLoopBackOff, Logging, MemoryReservation, MemorySwap,
    ShutdownGracePeriodByPodPriority, Taint, Tracing, UserNamespaces,
};

/// The only `apiVersion` understood.
pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// The only `kind` understood.
pub const KIND: &str = "KubeletConfiguration";

/// Declares a configuration struct, one row per field: name, wire name, type, built-in default.
macro_rules! configuration {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident, $wire:literal: $type:ty = $default:expr;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[doc = concat!("`", $wire, "`, by default `", stringify!($default), "`.")]
                #[serde(rename = $wire)]
                pub $field: $type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}
pub(crate) use configuration;

type Texts = BTreeMap<String, String>;

const fn secs(secs: i64) -> GoDuration {
    GoDuration::from_secs(secs)
}

configuration! {
    /// The node's configuration. In a [`crate::Resolved`] every default is filled in.
    KubeletConfiguration {
        enable_server, "enableServer": bool = true;
        static_pod_path, "staticPodPath": String = String::new();
        pod_logs_dir, "podLogsDir": String = "/var/log/pods".to_owned();
        sync_frequency, "syncFrequency": GoDuration = secs(60);
        file_check_frequency, "fileCheckFrequency": GoDuration = secs(20);
        http_check_frequency, "httpCheckFrequency": GoDuration = secs(20);
        static_pod_url, "staticPodURL": String = String::new();
        static_pod_url_header, "staticPodURLHeader": BTreeMap<String, Vec<String>> = BTreeMap::new();
        address, "address": String = "0.0.0.0".to_owned();
        port, "port": i32 = 10250;
        /// 0 is off.
        read_only_port, "readOnlyPort": i32 = 0;
        volume_plugin_dir, "volumePluginDir": String = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".to_owned();
        provider_id, "providerID": String = String::new();
        tls_cert_file, "tlsCertFile": String = String::new();
        tls_private_key_file, "tlsPrivateKeyFile": String = String::new();
        tls_cipher_suites, "tlsCipherSuites": Vec<String> = Vec::new();
        tls_curve_preferences, "tlsCurvePreferences": Vec<String> = Vec::new();
        /// Empty means 1.2.
        tls_min_version, "tlsMinVersion": String = String::new();
        rotate_certificates, "rotateCertificates": bool = false;
        server_tls_bootstrap, "serverTLSBootstrap": bool = false;
        authentication, "authentication": Authentication = Authentication::default();
        authorization, "authorization": Authorization = Authorization::default();
        /// Pulls per second; 0 is unlimited.
        registry_pull_qps, "registryPullQPS": i32 = 5;
        registry_burst, "registryBurst": i32 = 10;
        image_pull_credentials_verification_policy, "imagePullCredentialsVerificationPolicy": String = "NeverVerifyPreloadedImages".to_owned();
        preloaded_images_verification_allowlist, "preloadedImagesVerificationAllowlist": Vec<String> = Vec::new();
        event_record_qps, "eventRecordQPS": i32 = 50;
        event_burst, "eventBurst": i32 = 100;
        enable_debugging_handlers, "enableDebuggingHandlers": bool = true;
        enable_contention_profiling, "enableContentionProfiling": bool = false;
        /// 0 is off.
        healthz_port, "healthzPort": i32 = 10248;
        healthz_bind_address, "healthzBindAddress": String = "127.0.0.1".to_owned();
        oom_score_adj, "oomScoreAdj": i32 = -999;
        cluster_domain, "clusterDomain": String = String::new();
        cluster_dns, "clusterDNS": Vec<String> = Vec::new();
        streaming_connection_idle_timeout, "streamingConnectionIdleTimeout": GoDuration = secs(4 * 3600);
        node_status_update_frequency, "nodeStatusUpdateFrequency": GoDuration = secs(10);
        node_status_report_frequency, "nodeStatusReportFrequency": GoDuration = secs(300);
        node_lease_duration_seconds, "nodeLeaseDurationSeconds": i32 = 40;
        image_minimum_gc_age, "imageMinimumGCAge": GoDuration = secs(120);
        /// 0 is off.
        image_maximum_gc_age, "imageMaximumGCAge": GoDuration = GoDuration::ZERO;
        image_gc_high_threshold_percent, "imageGCHighThresholdPercent": i32 = 85;
        image_gc_low_threshold_percent, "imageGCLowThresholdPercent": i32 = 80;
        /// Below 0 is off.
        volume_stats_agg_period, "volumeStatsAggPeriod": GoDuration = secs(60);
        kubelet_cgroups, "kubeletCgroups": String = String::new();
        system_cgroups, "systemCgroups": String = String::new();
        cgroup_root, "cgroupRoot": String = String::new();
        cgroups_per_qos, "cgroupsPerQOS": bool = true;
        /// The driver that the runtime reports overrides this.
        cgroup_driver, "cgroupDriver": String = "cgroupfs".to_owned();
        cpu_manager_policy, "cpuManagerPolicy": String = "none".to_owned();
        /// Unset: true on cgroup v1, false on v2; see [`crate::MachineFacts`].
        #[serde(skip_serializing_if = "Option::is_none")]
        single_process_oom_kill, "singleProcessOOMKill": Option<bool> = None;
        cpu_manager_policy_options, "cpuManagerPolicyOptions": Texts = Texts::new();
        cpu_manager_reconcile_period, "cpuManagerReconcilePeriod": GoDuration = secs(10);
        memory_manager_policy, "memoryManagerPolicy": String = "None".to_owned();
        topology_manager_policy, "topologyManagerPolicy": String = "none".to_owned();
        topology_manager_scope, "topologyManagerScope": String = "container".to_owned();
        topology_manager_policy_options, "topologyManagerPolicyOptions": Texts = Texts::new();
        qos_reserved, "qosReserved": Texts = Texts::new();
        runtime_request_timeout, "runtimeRequestTimeout": GoDuration = secs(120);
        hairpin_mode, "hairpinMode": String = "promiscuous-bridge".to_owned();
        max_pods, "maxPods": i32 = 110;
        pod_cidr, "podCIDR": String = String::new();
        /// -1 is unlimited.
        pod_pids_limit, "podPidsLimit": i64 = -1;
        resolv_conf, "resolvConf": String = "/etc/resolv.conf".to_owned();
        run_once, "runOnce": bool = false;
        cpu_cfs_quota, "cpuCFSQuota": bool = true;
        cpu_cfs_quota_period, "cpuCFSQuotaPeriod": GoDuration = GoDuration::from_millis(100);
        /// -1 is all.
        node_status_max_images, "nodeStatusMaxImages": i32 = 50;
        max_open_files, "maxOpenFiles": i64 = 1_000_000;
        content_type, "contentType": String = "application/vnd.kubernetes.protobuf".to_owned();
        kube_api_qps, "kubeAPIQPS": i32 = 50;
        kube_api_burst, "kubeAPIBurst": i32 = 100;
        /// False if it is not set and `maxParallelImagePulls` is 2 or more.
        serialize_image_pulls, "serializeImagePulls": bool = true;
        /// Unset means no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_parallel_image_pulls, "maxParallelImagePulls": Option<i32> = None;
        /// If a configuration file does not set it, the five default thresholds.
        eviction_hard, "evictionHard": Texts = Texts::new();
        eviction_soft, "evictionSoft": Texts = Texts::new();
        eviction_soft_grace_period, "evictionSoftGracePeriod": Texts = Texts::new();
        eviction_pressure_transition_period, "evictionPressureTransitionPeriod": GoDuration = secs(300);
        /// Seconds.
        eviction_max_pod_grace_period, "evictionMaxPodGracePeriod": i32 = 0;
        eviction_minimum_reclaim, "evictionMinimumReclaim": Texts = Texts::new();
        merge_default_eviction_settings, "mergeDefaultEvictionSettings": bool = false;
        pods_per_core, "podsPerCore": i32 = 0;
        enable_controller_attach_detach, "enableControllerAttachDetach": bool = true;
        protect_kernel_defaults, "protectKernelDefaults": bool = false;
        make_iptables_util_chains, "makeIPTablesUtilChains": bool = true;
        iptables_masquerade_bit, "iptablesMasqueradeBit": i32 = 14;
        iptables_drop_bit, "iptablesDropBit": i32 = 15;
        /// As the user gave them; [`crate::Resolved::gates`] has the outcome.
        feature_gates, "featureGates": BTreeMap<String, bool> = BTreeMap::new();
        fail_swap_on, "failSwapOn": bool = true;
        memory_swap, "memorySwap": MemorySwap = MemorySwap::default();
        container_log_max_size, "containerLogMaxSize": String = "10Mi".to_owned();
        container_log_max_files, "containerLogMaxFiles": i32 = 5;
        container_log_max_workers, "containerLogMaxWorkers": i32 = 1;
        container_log_monitor_interval, "containerLogMonitorInterval": GoDuration = secs(10);
        config_map_and_secret_change_detection_strategy, "configMapAndSecretChangeDetectionStrategy": String = "Watch".to_owned();
        system_reserved, "systemReserved": Texts = Texts::new();
        kube_reserved, "kubeReserved": Texts = Texts::new();
        reserved_system_cpus, "reservedSystemCPUs": String = String::new();
        show_hidden_metrics_for_version, "showHiddenMetricsForVersion": String = String::new();
        system_reserved_cgroup, "systemReservedCgroup": String = String::new();
        kube_reserved_cgroup, "kubeReservedCgroup": String = String::new();
        enforce_node_allocatable, "enforceNodeAllocatable": Vec<String> = vec!["pods".to_owned()];
        allowed_unsafe_sysctls, "allowedUnsafeSysctls": Vec<String> = Vec::new();
        kernel_memcg_notification, "kernelMemcgNotification": bool = false;
        logging, "logging": Logging = Logging::default();
        enable_system_log_handler, "enableSystemLogHandler": bool = true;
        enable_system_log_query, "enableSystemLogQuery": bool = false;
        shutdown_grace_period, "shutdownGracePeriod": GoDuration = GoDuration::ZERO;
        shutdown_grace_period_critical_pods, "shutdownGracePeriodCriticalPods": GoDuration = GoDuration::ZERO;
        shutdown_grace_period_by_pod_priority, "shutdownGracePeriodByPodPriority": Vec<ShutdownGracePeriodByPodPriority> = Vec::new();
        crash_loop_back_off, "crashLoopBackOff": CrashLoopBackOff = CrashLoopBackOff::default();
        reserved_memory, "reservedMemory": Vec<MemoryReservation> = Vec::new();
        enable_profiling_handler, "enableProfilingHandler": bool = true;
        enable_debug_flags_handler, "enableDebugFlagsHandler": bool = true;
        seccomp_default, "seccompDefault": bool = false;
        memory_throttling_factor, "memoryThrottlingFactor": f64 = 0.9;
        memory_reservation_policy, "memoryReservationPolicy": String = "None".to_owned();
        register_with_taints, "registerWithTaints": Vec<Taint> = Vec::new();
        register_node, "registerNode": bool = true;
        #[serde(skip_serializing_if = "Option::is_none")]
        tracing, "tracing": Option<Tracing> = None;
        local_storage_capacity_isolation, "localStorageCapacityIsolation": bool = true;
        container_runtime_endpoint, "containerRuntimeEndpoint": String = "unix:///run/containerd/containerd.sock".to_owned();
        /// Empty means the runtime's endpoint.
        image_service_endpoint, "imageServiceEndpoint": String = String::new();
        fail_cgroup_v1, "failCgroupV1": bool = true;
        user_namespaces, "userNamespaces": UserNamespaces = UserNamespaces::default();
    }
}

impl KubeletConfiguration {
    /// A value with every optional part present: its JSON form has all field names.
    pub(crate) fn shape() -> Value {
        let full = Self {
            single_process_oom_kill: Some(false),
            max_parallel_image_pulls: Some(1),
            tracing: Some(Tracing { endpoint: Some(String::new()), sampling_rate_per_million: Some(0) }),
            ..Self::default()
        };
        serde_json::to_value(full).unwrap_or(Value::Null)
    }

    /// `containerLogMaxSize` in bytes.
    #[must_use]
    pub fn container_log_max_bytes(&self) -> i64 {
        // Validation has checked it; only tests can have an invalid size, which is 10Mi.
        model::Amount::parse(&self.container_log_max_size).map_or(10 << 20, model::Amount::units)
    }

    /// `memoryThrottlingFactor` in millionths, for arithmetic in whole bytes.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between nothing and a million"
    )]
    pub fn throttling_millionths(&self) -> u32 {
        (self.memory_throttling_factor * 1e6).round().clamp(0.0, 1e6) as u32
    }

    /// The endpoint for images: `imageServiceEndpoint`, or that of the runtime.
    #[must_use]
    pub fn image_endpoint(&self) -> &str {
        if self.image_service_endpoint.is_empty() {
            &self.container_runtime_endpoint
        } else {
            &self.image_service_endpoint
        }
    }

    /// `evictionHard`, with the default thresholds of the missing signals if `mergeDefaultEvictionSettings` is true.
    #[must_use]
    pub fn effective_eviction_hard(&self) -> BTreeMap<String, String> {
        let mut thresholds =
            if self.merge_default_eviction_settings { defaults::eviction_hard() } else { BTreeMap::new() };
        thresholds.extend(self.eviction_hard.clone());
        thresholds
    }

    /// The name servers of `clusterDNS`. As in the Go kubelet, IPv4 addresses may have leading zeros, and entries that are no
    /// addresses are left out.
    pub fn cluster_dns_ips(&self) -> impl Iterator<Item = IpAddr> {
        self.cluster_dns.iter().filter_map(|server| parse_ip(server))
    }

    /// The entries of `clusterDNS` that are no addresses.
    pub fn invalid_cluster_dns(&self) -> impl Iterator<Item = &str> {
        self.cluster_dns.iter().map(String::as_str).filter(|server| parse_ip(server).is_none())
    }

    /// The JSON object that `/configz` shows, with `kind` and `apiVersion`; fields that are not set are left out.
    #[must_use]
    pub fn configz(&self) -> Value {
        let mut tree = serde_json::to_value(self).unwrap_or(Value::Null);
        let has_default_namespaces = self.user_namespaces == UserNamespaces::default();
        omit_unset(&mut tree);
        if let Some(fields) = tree.as_object_mut().filter(|_| has_default_namespaces) {
            fields.remove("userNamespaces");
        }
        crate::tree::set(&mut tree, "kind", KIND.into());
        crate::tree::set(&mut tree, "apiVersion", API_VERSION.into());
        tree
    }
}

/// An address; the numbers of an IPv4 address are decimal, whatever zeros they begin with.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    let without_zeros = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let plain: Vec<String> = text.split('.').map(without_zeros).collect();
    plain.join(".").parse().ok()
}

/// Numbers and booleans whose zero value means "not set"; for the others, zero is a value.
const ZERO_IS_UNSET: [&str; 17] = [
    "enableContentionProfiling",
    "eventBurst",
    "evictionMaxPodGracePeriod",
    "kernelMemcgNotification",
    "kubeAPIBurst",
    "maxOpenFiles",
    "maxPods",
    "nodeLeaseDurationSeconds",
    "podsPerCore",
    "port",
    "protectKernelDefaults",
    "readOnlyPort",
    "registryBurst",
    "rotateCertificates",
    "runOnce",
    "serverTLSBootstrap",
    "splitStream",
];
/// Strings that are shown even if they are empty.
const SHOWN_EMPTY: [&str; 2] = ["containerRuntimeEndpoint", "resolvConf"];
/// Structs, which are shown even if no field of them is set; the other objects are maps.
const STRUCTS: [&str; 8] = [
    "anonymous",
    "authentication",
    "authorization",
    "crashLoopBackOff",
    "logging",
    "memorySwap",
    "webhook",
    "x509",
];

fn omit_unset(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    fields.values_mut().for_each(omit_unset);
    fields.retain(|key, value| {
        let is_among = |names: &[&str]| names.contains(&key.as_str());
        match value {
            Value::Null => false,
            Value::Bool(is_set) => *is_set || !is_among(&ZERO_IS_UNSET),
            Value::Number(number) => number.as_f64() != Some(0.0) || !is_among(&ZERO_IS_UNSET),
            Value::String(text) => !text.is_empty() || is_among(&SHOWN_EMPTY),
            Value::Array(values) => !values.is_empty(),
            Value::Object(fields) => !fields.is_empty() || is_among(&STRUCTS),
        }
    });
}
