//! The gates this build acts on, as plain booleans for those who decide. Names stand here only; what a gate changes is
//! decided where its field is read. Gates whose feature is missing are in `not_yet`, those checked with a setting in
//! `validate`.

use super::FeatureGates;

macro_rules! features {
    ($($(#[$doc:meta])* $field:ident: $name:literal,)*) => {
        /// What is switched on. Copied to whoever decides.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Features {
            $($(#[$doc])* pub $field: bool,)*
        }

        impl Features {
            /// The gates behind the fields.
            pub const GATES: &[&str] = &[$($name),*];

            #[must_use]
            pub fn of(gates: &FeatureGates) -> Self {
                Self { $($field: gates.enabled($name),)* }
            }
        }
    };
}

features! {
    /// Containers may have a restart policy and rules of their own.
    container_restart_rules: "ContainerRestartRules",
    /// A rule may ask to begin the whole pod again.
    restart_all_containers: "RestartAllContainersOnContainerExits",
    /// Variables may come from a file that an init container wrote.
    env_files: "EnvFiles",
    /// Volumes may show certificates that the cluster trusts.
    trust_bundles: "ClusterTrustBundleProjection",
    /// `lifecycle.stopSignal` is passed to the runtime.
    container_stop_signals: "ContainerStopSignals",
    /// `hostnameOverride` of a pod counts.
    hostname_override: "HostnameOverride",
    /// `crashLoopBackOff.maxContainerRestartPeriod` counts.
    crash_loop_back_off_max: "KubeletCrashLoopBackOffMax",
    /// Crash-loop delays go from one second to a minute.
    reduced_crash_loop_delays: "ReduceDefaultCrashLoopBackOffDecay",
    /// A worker's request for a look is answered at once, not by the next relist.
    on_demand_relist: "PLEGOnDemandRelist",
    /// Relists may be rare while the runtime tells of what happens.
    evented_pleg: "EventedPLEG",
    /// Pods may have resources of their own.
    pod_level_resources: "PodLevelResources",
    /// Streams of clients that speak WebSocket are translated here, and the node says so.
    extend_websockets: "ExtendWebSocketsToKubelet",
    /// The condition `PodReadyToStartContainers` is written.
    ready_to_start_condition: "PodReadyToStartContainersCondition",
    /// Static pods that refer to any object of the API are refused.
    no_api_references: "PreventStaticPodAPIReferences",
    /// The state of a container may be written to a file: `/checkpoint`.
    container_checkpoint: "ContainerCheckpoint",
    /// `/flagz` is there.
    flagz: "ComponentFlagz",
    /// `/statusz` is there.
    statusz: "ComponentStatusz",
    /// Pulls are recorded, and images pulled with credentials are kept from pods that have none.
    pull_records: "KubeletEnsureSecretPulledImages",
    /// Pods are ended before the machine is.
    graceful_shutdown: "GracefulNodeShutdown",
    /// `shutdownGracePeriodByPodPriority` counts, and it is kept when pods were ended.
    graceful_shutdown_by_priority: "GracefulNodeShutdownBasedOnPodPriority",
    /// Images may lie on another filesystem than what containers write.
    separate_disk_gc: "KubeletSeparateDiskGC",
    /// Filesystems with project quotas count what is in `emptyDir` volumes.
    quota_monitoring: "LocalStorageCapacityIsolationFSQuotaMonitoring",
    /// Memory is throttled, and reserved where the configuration says so.
    memory_qos: "MemoryQoS",
    /// `qosReserved` counts.
    qos_reserved: "QOSReserved",
    /// The log of one stream of a container may be asked for.
    log_streams: "PodLogsQuerySplitStreams",
    /// A new authority of clients is believed as soon as its file has it.
    reload_client_ca: "ReloadKubeletClientCAFile",
    /// A new serving certificate is served as soon as its files have it.
    reload_serving_pair: "ReloadKubeletServerCertificateFile",
    /// The Node is created without a look whether it is there.
    creates_node_first: "KubeletRegistrationGetOnExistsOnly",
    /// PodResources lists no pods that are over.
    list_active_pods: "KubeletPodResourcesListUseActivePods",
    /// Addresses in pods of manifests are spelled in one way only.
    strict_addresses: "StrictIPCIDRValidation",
    /// Tolerations may compare numbers.
    comparing_tolerations: "TaintTolerationComparisonOperators",
    /// A restart of the kubelet sets containers back to not ready and not started until their probes have passed.
    status_starts_again: "ChangeContainerStatusOnKubeletRestart",
}

impl Default for Features {
    /// As the table of gates has it.
    fn default() -> Self {
        Self::of(&FeatureGates::default())
    }
}
