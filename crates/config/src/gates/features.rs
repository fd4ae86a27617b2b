//! The gates that this build acts on, as booleans. What a gate changes is decided where its field is read. Gates whose
//! feature is missing are in `not_yet`; those that a setting needs are checked in `validate`.

use super::FeatureGates;

macro_rules! features {
    ($($(#[$doc:meta])* $field:ident: $name:literal,)*) => {
        /// The features that are enabled.
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
    /// A restart rule may restart all containers of the pod.
    restart_all_containers: "RestartAllContainersOnContainerExits",
    /// Environment variables may come from a file that an init container wrote.
    env_files: "EnvFiles",
    /// Projected volumes may have ClusterTrustBundles.
    trust_bundles: "ClusterTrustBundleProjection",
    /// Projected volumes may have certificates that the kubelet requests for the pod.
    pod_certificates: "PodCertificateRequest",
    /// `lifecycle.stopSignal` is passed to the runtime, and the pod status has the signal in force.
    container_stop_signals: "ContainerStopSignals",
    /// `hostnameOverride` of a pod is used.
    hostname_override: "HostnameOverride",
    /// `crashLoopBackOff.maxContainerRestartPeriod` is used.
    crash_loop_back_off_max: "KubeletCrashLoopBackOffMax",
    /// The crash-loop back-off begins with one second and ends with a minute.
    reduced_crash_loop_delays: "ReduceDefaultCrashLoopBackOffDecay",
    /// A worker's request for an observation is answered at once, and not by the next relist.
    on_demand_relist: "PLEGOnDemandRelist",
    /// Relists may be rare while the runtime sends events.
    evented_pleg: "EventedPLEG",
    /// Pods may have resources of their own.
    pod_level_resources: "PodLevelResources",
    /// The resources of a pod as a whole may be changed while it runs.
    pod_level_resize: "InPlacePodLevelResourcesVerticalScaling",
    /// Init containers may be resized while they run.
    resize_init_containers: "InPlacePodVerticalScalingInitContainers",
    /// Guaranteed pods may be resized next to the static policy of the CPU manager.
    resize_exclusive_cpus: "InPlacePodVerticalScalingExclusiveCPUs",
    /// The same next to that of the memory manager.
    resize_exclusive_memory: "InPlacePodVerticalScalingExclusiveMemory",
    /// Pods with resources of their own get CPUs and memory for themselves.
    pod_level_resource_managers: "PodLevelResourceManagers",
    /// Containers with CPUs of their own have no CPU quota.
    disable_cpu_quota_with_exclusive_cpus: "DisableCPUQuotaWithExclusiveCPUs",
    /// `cpuManagerPolicyOptions` may have alpha options.
    cpu_manager_policy_alpha_options: "CPUManagerPolicyAlphaOptions",
    /// The same of beta options.
    cpu_manager_policy_beta_options: "CPUManagerPolicyBetaOptions",
    /// The kubelet translates streams of WebSocket clients, and declares that in the Node.
    extend_websockets: "ExtendWebSocketsToKubelet",
    /// The pod status has the condition `PodReadyToStartContainers`.
    ready_to_start_condition: "PodReadyToStartContainersCondition",
    /// Static pods that refer to objects of the API are rejected.
    no_api_references: "PreventStaticPodAPIReferences",
    /// The endpoint `/checkpoint` exists.
    container_checkpoint: "ContainerCheckpoint",
    /// The endpoint `/flagz` exists.
    flagz: "ComponentFlagz",
    /// The endpoint `/statusz` exists.
    statusz: "ComponentStatusz",
    /// Pulls are recorded, and images pulled with credentials are kept from pods that have none.
    pull_records: "KubeletEnsureSecretPulledImages",
    /// The pod status has the ids of the images of image volumes.
    image_volume_digests: "ImageVolumeWithDigest",
    /// Image calls have the handler of the pod's RuntimeClass.
    runtime_class_in_image_calls: "RuntimeClassInImageCriApi",
    /// Pods are terminated before the machine shuts down.
    graceful_shutdown: "GracefulNodeShutdown",
    /// `shutdownGracePeriodByPodPriority` is used, and the times of the last shutdown are stored and reported.
    graceful_shutdown_by_priority: "GracefulNodeShutdownBasedOnPodPriority",
    /// The writable layers of containers may be on another filesystem than images.
    separate_disk_gc: "KubeletSeparateDiskGC",
    /// Project quotas of the filesystem measure `emptyDir` volumes.
    quota_monitoring: "LocalStorageCapacityIsolationFSQuotaMonitoring",
    /// Memory is throttled, and reserved if the configuration requires it.
    memory_qos: "MemoryQoS",
    /// `qosReserved` is used.
    qos_reserved: "QOSReserved",
    /// Clients may request the log of one stream of a container.
    log_streams: "PodLogsQuerySplitStreams",
    /// The certificate authorities for clients are reloaded when their file changes.
    reload_client_ca: "ReloadKubeletClientCAFile",
    /// A serving certificate is requested for a node without an IP address, too.
    dns_only_serving_certificates: "AllowDNSOnlyNodeCSR",
    /// The serving certificate is reloaded when its files change.
    reload_serving_pair: "ReloadKubeletServerCertificateFile",
    /// The Node is read at registration only if it exists, and not if the kubelet may not create it.
    get_node_on_exists_only: "KubeletRegistrationGetOnExistsOnly",
    /// The Pods API is served.
    pods_api: "PodsAPI",
    /// PodResources does not list pods in a terminal phase.
    list_active_pods: "KubeletPodResourcesListUseActivePods",
    /// Addresses in static pods must be in canonical form.
    strict_addresses: "StrictIPCIDRValidation",
    /// Tolerations may have the operators Lt and Gt.
    comparing_tolerations: "TaintTolerationComparisonOperators",
    /// Lists of the container runtime are streamed in parts.
    cri_list_streaming: "CRIListStreaming",
    /// The pod status has the health of devices.
    device_health: "ResourceHealthStatus",
    /// The runtime measures pods and containers, where it can.
    stats_from_runtime: "PodAndContainerStatsFromCRI",
    /// With the messages of drivers about it.
    device_health_messages: "ResourceHealthStatusMessage",
    /// Pods may use claims of their PodGroup.
    group_claims: "DRAWorkloadResourceClaims",
    /// The Node declares features, and pods that require others are rejected.
    node_declared_features: "NodeDeclaredFeatures",
    /// Pods in the network of the node may have user namespaces, where the runtime supports that.
    user_namespaces_host_network: "UserNamespacesHostNetworkSupport",
    /// Kernel settings that cannot be written in a user namespace, and a kernel log that cannot be read there, are skipped.
    in_user_namespace: "KubeletInUserNamespace",
    /// A restart of the kubelet sets containers back to not ready and not started until their probes have passed.
    status_starts_again: "ChangeContainerStatusOnKubeletRestart",
}

impl Default for Features {
    /// As the table of gates has it.
    fn default() -> Self {
        Self::of(&FeatureGates::default())
    }
}
