//! The table of all flags, by topic. Data only; defaults are those of the field or [`crate::NodeFlags`] a flag sets.

use super::Kind::{
    Bool, Duration, Gates, Headers, Int32, Int64, Ip, Level, List, Map, Quantity, ReservedMemory, Taints,
    Text, Thresholds, VModule, Version,
};
use super::Topic;
use super::{Flag, Kind, Target};

/// A flag that has no configuration field.
const fn node(name: &'static str, kind: Kind, field: &'static str, topic: Topic, help: &'static str) -> Flag {
    Flag { name, kind, topic, target: Target::Node(field), help }
}

const fn deprecated_node(
    name: &'static str,
    kind: Kind,
    field: &'static str,
    topic: Topic,
    help: &'static str,
) -> Flag {
    Flag { name, kind, topic, target: Target::DeprecatedNode(field), help }
}

/// A flag that sets a configuration field.
const fn field(name: &'static str, kind: Kind, path: &'static str, topic: Topic, help: &'static str) -> Flag {
    Flag { name, kind, topic, target: Target::Field(path), help }
}

/// A deprecated flag.
const fn deprecated(
    name: &'static str,
    kind: Kind,
    path: &'static str,
    topic: Topic,
    help: &'static str,
) -> Flag {
    Flag { name, kind, topic, target: Target::DeprecatedField(path), help }
}

const fn ignored(name: &'static str, kind: Kind) -> Flag {
    Flag { name, kind, topic: Topic::Accepted, target: Target::Ignored, help: "Was a flag of cAdvisor." }
}

const fn action(name: &'static str, kind: Kind, help: &'static str) -> Flag {
    Flag { name, kind, topic: Topic::Global, target: Target::Action, help }
}

/// Makes the table from rows of a constructor with its arguments, and the description.
macro_rules! flags {
    ($($make:ident($($argument:expr),*) $($help:literal)?;)*) => { &[$($make($($argument,)* $($help)?)),*] };
}

/// Every flag, in the order of the help text.
pub const FLAGS: &[Flag] = flags! {
    node("config", Text, "config", Topic::Configuration)
        "The KubeletConfiguration file, in YAML or JSON, as an absolute path or relative to the working directory. Without it the built-in defaults apply. Command line flags override its values.";
    node("config-dir", Text, "configDir", Topic::Configuration)
        "Directory of drop-in files (*.conf), which override the values of the configuration file. They are applied in lexical order.";
    deprecated("feature-gates", Gates, "featureGates", Topic::Configuration)
        "Feature gates to enable or disable.";
    node("lock-file", Text, "lockFile", Topic::Configuration)
        "File that the kubelet locks, so that only one kubelet runs.";
    node("exit-on-lock-contention", Bool, "exitOnLockContention", Topic::Configuration)
        "Exit when another process opens or locks the lock file. Needs --lock-file.";
    deprecated("runonce", Bool, "runOnce", Topic::Configuration)
        "Start the static pods, wait until they run, report the result and exit. Not with --kubeconfig.";
    node("root-dir", Text, "rootDir", Topic::Node)
        "Directory of the kubelet's files: volumes, plugins and checkpoints.";
    node("hostname-override", Text, "hostnameOverride", Topic::Node)
        "Name of the node and value of its hostname label and address, instead of the host name of the machine.";
    node("node-ip", Text, "nodeIp", Topic::Node)
        "IP address of the node, or one IPv4 and one IPv6 address for dual stack, separated by a comma. 0.0.0.0 or :: selects the default address of that family. If empty, the kubelet uses the node's default address.";
    node("node-labels", Map, "nodeLabels", Topic::Node)
        "Labels to add when the node registers. Labels in the kubernetes.io namespace must begin with kubelet.kubernetes.io or node.kubernetes.io, or be allowed for kubelets.";
    field("provider-id", Text, "providerID", Topic::Node)
        "Unique identifier of the machine at its cloud provider.";
    node("cloud-provider", Text, "cloudProvider", Topic::Node)
        "Cloud provider: empty, or external if a cloud controller manager initializes the node.";
    deprecated("register-node", Bool, "registerNode", Topic::Node)
        "Register the node with the API server. Without effect if there is no --kubeconfig.";
    deprecated("register-with-taints", Taints, "registerWithTaints", Topic::Node)
        "Taints of the node when it registers. Without effect if --register-node is false.";
    deprecated("node-status-update-frequency", Duration, "nodeStatusUpdateFrequency", Topic::Node)
        "How often the kubelet computes the node status. It must fit to the grace period of the node controller.";
    deprecated("node-status-max-images", Int32, "nodeStatusMaxImages", Topic::Node)
        "Maximum number of images in the node status; -1 is no limit.";
    deprecated("max-pods", Int32, "maxPods", Topic::Node)
        "Maximum number of pods on this node.";
    deprecated("pods-per-core", Int32, "podsPerCore", Topic::Node)
        "Maximum number of pods per core, at most --max-pods in total; 0 is no limit.";
    deprecated("enable-controller-attach-detach", Bool, "enableControllerAttachDetach", Topic::Node)
        "Let the attach/detach controller attach and detach the volumes of this node, and not the kubelet.";
    deprecated("volume-plugin-dir", Text, "volumePluginDir", Topic::Node)
        "Directory that is searched for third-party volume plugins.";
    deprecated("volume-stats-agg-period", Duration, "volumeStatsAggPeriod", Topic::Node)
        "How often the kubelet computes the disk usage of all volumes; negative disables it.";
    deprecated("pod-manifest-path", Text, "staticPodPath", Topic::StaticPods)
        "File of static pods, or directory of such files. Files whose names begin with a dot are ignored.";
    deprecated("manifest-url", Text, "staticPodURL", Topic::StaticPods)
        "URL of static pod manifests.";
    deprecated("manifest-url-header", Headers, "staticPodURLHeader", Topic::StaticPods)
        "HTTP headers for requests to --manifest-url. A name may be given more than once.";
    deprecated("sync-frequency", Duration, "syncFrequency", Topic::StaticPods)
        "Maximum time between two syncs of a running pod.";
    deprecated("file-check-frequency", Duration, "fileCheckFrequency", Topic::StaticPods)
        "How often the kubelet checks the files of static pods.";
    deprecated("http-check-frequency", Duration, "httpCheckFrequency", Topic::StaticPods)
        "How often the kubelet checks --manifest-url.";
    deprecated("container-runtime-endpoint", Text, "containerRuntimeEndpoint", Topic::Runtime)
        "Endpoint of the container runtime: a unix socket.";
    deprecated("runtime-request-timeout", Duration, "runtimeRequestTimeout", Topic::Runtime)
        "Timeout of all runtime requests except long-running ones: pull, logs, exec and attach.";
    node("runtime-cgroups", Text, "runtimeCgroups", Topic::Runtime)
        "Absolute name of the cgroup in which the container runtime is created and runs.";
    field("seccomp-default", Bool, "seccompDefault", Topic::Runtime)
        "Use RuntimeDefault as the seccomp profile of all workloads that set none.";
    deprecated("allowed-unsafe-sysctls", List, "allowedUnsafeSysctls", Topic::Runtime)
        "Unsafe sysctls, or patterns of them that end in *, that pods may set.";
    deprecated("container-log-max-size", Text, "containerLogMaxSize", Topic::Runtime)
        "Size at which the log file of a container is rotated, such as 10Mi.";
    deprecated("container-log-max-files", Int32, "containerLogMaxFiles", Topic::Runtime)
        "Maximum number of log files of a container; at least 2.";
    deprecated_node("minimum-container-ttl-duration", Duration, "minimumContainerTtl", Topic::Runtime)
        "Minimum age of a dead container before it is garbage collected, such as 300ms, 10s or 2h45m.";
    deprecated_node("maximum-dead-containers-per-container", Int32, "maximumDeadContainersPerContainer", Topic::Runtime)
        "Maximum number of dead instances to retain per container. Each takes up some disk space.";
    deprecated_node("maximum-dead-containers", Int32, "maximumDeadContainers", Topic::Runtime)
        "Maximum number of dead containers to retain on the node; negative is no limit.";
    deprecated("image-service-endpoint", Text, "imageServiceEndpoint", Topic::Images)
        "Endpoint of the image service. If empty, it is --container-runtime-endpoint.";
    deprecated("registry-qps", Int32, "registryPullQPS", Topic::Images)
        "Maximum number of image pulls per second; 0 is no limit.";
    deprecated("registry-burst", Int32, "registryBurst", Topic::Images)
        "Maximum burst of image pulls, while --registry-qps is not exceeded on average. Only used if --registry-qps is above 0.";
    deprecated("serialize-image-pulls", Bool, "serializeImagePulls", Topic::Images)
        "Pull one image at a time. Set to false only where the runtime can pull in parallel.";
    deprecated("minimum-image-ttl-duration", Duration, "imageMinimumGCAge", Topic::Images)
        "Minimum age of an unused image before it is garbage collected, such as 300ms, 10s or 2h45m.";
    deprecated("image-gc-high-threshold", Int32, "imageGCHighThresholdPercent", Topic::Images)
        "Disk usage in percent above which image garbage collection always runs, 0 to 100; 100 disables it.";
    deprecated("image-gc-low-threshold", Int32, "imageGCLowThresholdPercent", Topic::Images)
        "Disk usage in percent down to which image garbage collection frees space, and below which it never runs, 0 to 100. Must be below --image-gc-high-threshold.";
    node("image-credential-provider-config", Text, "imageCredentialProviderConfig", Topic::Images)
        "Configuration file of credential provider plugins, or a directory of such files. Needs --image-credential-provider-bin-dir.";
    node("image-credential-provider-bin-dir", Text, "imageCredentialProviderBinDir", Topic::Images)
        "Directory of the executables of credential provider plugins.";
    deprecated("enable-server", Bool, "enableServer", Topic::Server)
        "Enable the kubelet's server.";
    deprecated("address", Ip, "address", Topic::Server)
        "IP address for the kubelet to serve on; 0.0.0.0 or :: for all addresses.";
    deprecated("port", Int32, "port", Topic::Server)
        "Port for the kubelet to serve on.";
    deprecated("read-only-port", Int32, "readOnlyPort", Topic::Server)
        "Port for the kubelet to serve on read-only, without authentication and authorization; 0 disables it.";
    deprecated("healthz-port", Int32, "healthzPort", Topic::Server)
        "Port of the local healthz endpoint; 0 disables it.";
    deprecated("healthz-bind-address", Ip, "healthzBindAddress", Topic::Server)
        "IP address for the healthz server to serve on; 0.0.0.0 or :: for all addresses.";
    deprecated("anonymous-auth", Bool, "authentication.anonymous.enabled", Topic::Server)
        "Allow anonymous requests to the kubelet's server. Requests that no other authentication method rejects are anonymous: user system:anonymous, group system:unauthenticated.";
    deprecated("authentication-token-webhook", Bool, "authentication.webhook.enabled", Topic::Server)
        "Use the TokenReview API to authenticate bearer tokens.";
    deprecated("authentication-token-webhook-cache-ttl", Duration, "authentication.webhook.cacheTTL", Topic::Server)
        "How long to cache responses from the webhook token authenticator.";
    deprecated("client-ca-file", Text, "authentication.x509.clientCAFile", Topic::Server)
        "Certificate authorities: a request with a client certificate that one of them signed is authenticated as the CommonName of the certificate.";
    deprecated("authorization-mode", Text, "authorization.mode", Topic::Server)
        "Authorization mode of the kubelet's server: AlwaysAllow or Webhook. Webhook uses the SubjectAccessReview API.";
    deprecated("authorization-webhook-cache-authorized-ttl", Duration, "authorization.webhook.cacheAuthorizedTTL", Topic::Server)
        "How long to cache \"authorized\" responses from the webhook authorizer.";
    deprecated("authorization-webhook-cache-unauthorized-ttl", Duration, "authorization.webhook.cacheUnauthorizedTTL", Topic::Server)
        "How long to cache \"unauthorized\" responses from the webhook authorizer.";
    node("cert-dir", Text, "certDir", Topic::Server)
        "Directory of the TLS certificates. Ignored for the serving certificate if --tls-cert-file and --tls-private-key-file are set.";
    deprecated("tls-cert-file", Text, "tlsCertFile", Topic::Server)
        "File with the x509 serving certificate and any intermediate certificates after it. If it and --tls-private-key-file are empty, a self-signed certificate and key are created in --cert-dir.";
    deprecated("tls-private-key-file", Text, "tlsPrivateKeyFile", Topic::Server)
        "File with the x509 private key for --tls-cert-file.";
    deprecated("tls-cipher-suites", List, "tlsCipherSuites", Topic::Server)
        "Cipher suites of the server. If empty, the default ones.";
    deprecated("tls-min-version", Text, "tlsMinVersion", Topic::Server)
        "Minimum TLS version: VersionTLS12 or VersionTLS13.";
    deprecated("rotate-server-certificates", Bool, "serverTLSBootstrap", Topic::Server)
        "Request serving certificates from the API server, and rotate them before they expire. A controller must approve the CertificateSigningRequests.";
    deprecated("rotate-certificates", Bool, "rotateCertificates", Topic::Server)
        "Rotate the kubelet's client certificate: request a new one from the API server before it expires.";
    deprecated("enable-debugging-handlers", Bool, "enableDebuggingHandlers", Topic::Server)
        "Enable the server's endpoints for log collection and for running commands in containers.";
    deprecated("contention-profiling", Bool, "enableContentionProfiling", Topic::Server)
        "Enable profiling of lock contention.";
    deprecated("streaming-connection-idle-timeout", Duration, "streamingConnectionIdleTimeout", Topic::Server)
        "Maximum time that a streaming connection can be idle before it is closed, such as 5m.";
    node("kubeconfig", Text, "kubeconfig", Topic::Cluster)
        "Path of a kubeconfig file, which specifies how to connect to the API server. Without it the kubelet runs in standalone mode.";
    node("bootstrap-kubeconfig", Text, "bootstrapKubeconfig", Topic::Cluster)
        "Path of a kubeconfig file for requesting the first client certificate if the file of --kubeconfig does not exist or its certificate is no longer valid. The kubelet then writes a kubeconfig file with the certificate and key to --kubeconfig, and stores both in --cert-dir.";
    deprecated("kube-api-content-type", Text, "contentType", Topic::Cluster)
        "Content type of requests to the API server.";
    deprecated("kube-api-qps", Int32, "kubeAPIQPS", Topic::Cluster)
        "Queries per second to the API server. Events and node heartbeats are limited separately.";
    deprecated("kube-api-burst", Int32, "kubeAPIBurst", Topic::Cluster)
        "Burst of requests to the API server. Events and node heartbeats are limited separately.";
    deprecated("event-qps", Int32, "eventRecordQPS", Topic::Cluster)
        "Maximum number of events created per second; 0 is no limit.";
    deprecated("event-burst", Int32, "eventBurst", Topic::Cluster)
        "Maximum burst of events, while --event-qps is not exceeded on average. Only used if --event-qps is above 0.";
    deprecated("fail-swap-on", Bool, "failSwapOn", Topic::Resources)
        "Fail to start if swap is enabled on the node.";
    field("fail-cgroupv1", Bool, "failCgroupV1", Topic::Resources)
        "Fail to start on a host that uses cgroup v1.";
    deprecated("oom-score-adj", Int32, "oomScoreAdj", Topic::Resources)
        "The oom_score_adj of the kubelet process, from -1000 to 1000.";
    deprecated("max-open-files", Int64, "maxOpenFiles", Topic::Resources)
        "Number of files that the kubelet process can open.";
    deprecated("kubelet-cgroups", Text, "kubeletCgroups", Topic::Resources)
        "Absolute name of the cgroup in which the kubelet is created and runs.";
    deprecated("system-cgroups", Text, "systemCgroups", Topic::Resources)
        "Absolute name of the cgroup for all processes, other than those of the kernel, that are not in a cgroup below /. If empty, none is moved. Needs --cgroup-root; undoing it requires a reboot.";
    deprecated("cgroup-root", Text, "cgroupRoot", Topic::Resources)
        "Root cgroup for pods. The container runtime handles it as far as it can. If empty, the default of the container runtime.";
    deprecated("cgroups-per-qos", Bool, "cgroupsPerQOS", Topic::Resources)
        "Create a hierarchy of cgroups for QoS classes and pods.";
    deprecated("cgroup-driver", Text, "cgroupDriver", Topic::Resources)
        "Driver that the kubelet uses for cgroups of the host: cgroupfs or systemd. The driver that the runtime reports overrides it.";
    deprecated("cpu-manager-policy", Text, "cpuManagerPolicy", Topic::Resources)
        "CPU manager policy: none or static.";
    deprecated("cpu-manager-policy-options", Map, "cpuManagerPolicyOptions", Topic::Resources)
        "Options of the CPU manager policy. If empty, the default behaviour of the policy.";
    deprecated("cpu-manager-reconcile-period", Duration, "cpuManagerReconcilePeriod", Topic::Resources)
        "How often the CPU manager reconciles, such as 10s or 1m. If not set, --node-status-update-frequency.";
    deprecated("memory-manager-policy", Text, "memoryManagerPolicy", Topic::Resources)
        "Memory manager policy: None or Static.";
    deprecated("reserved-memory", ReservedMemory, "reservedMemory", Topic::Resources)
        "Memory reserved for system processes per NUMA node and memory type. The total of each type must equal the sum of --kube-reserved, --system-reserved and --eviction-hard.";
    deprecated("topology-manager-policy", Text, "topologyManagerPolicy", Topic::Resources)
        "Topology manager policy: none, best-effort, restricted or single-numa-node.";
    deprecated("topology-manager-policy-options", Map, "topologyManagerPolicyOptions", Topic::Resources)
        "Options of the topology manager policy. If empty, the default behaviour of the policy.";
    deprecated("topology-manager-scope", Text, "topologyManagerScope", Topic::Resources)
        "Scope at which the topology manager collects hints and applies its policy: container or pod.";
    deprecated("qos-reserved", Map, "qosReserved", Topic::Resources)
        "Percentage of the memory requests of a QoS class that lower QoS classes cannot use, such as memory=50%. Needs the feature gate QOSReserved.";
    deprecated("pod-max-pids", Int64, "podPidsLimit", Topic::Resources)
        "Maximum number of processes per pod. If -1, the kubelet uses the number of allocatable processes of the node.";
    deprecated("cpu-cfs-quota", Bool, "cpuCFSQuota", Topic::Resources)
        "Enforce CPU limits with CFS quotas for containers that specify CPU limits.";
    deprecated("cpu-cfs-quota-period", Duration, "cpuCFSQuotaPeriod", Topic::Resources)
        "CFS quota period, cpu.cfs_period_us, from 1ms to 1s. Other values than 100ms need the feature gate CustomCPUCFSQuotaPeriod.";
    deprecated("protect-kernel-defaults", Bool, "protectKernelDefaults", Topic::Resources)
        "Fail if kernel settings differ from what the kubelet needs. If false, the kubelet changes them.";
    deprecated("reserved-cpus", Text, "reservedSystemCPUs", Topic::Resources)
        "CPUs or ranges of CPUs reserved for the system and Kubernetes, such as 0-1,4. It overrides the cpu of --system-reserved and --kube-reserved.";
    deprecated("system-reserved", Map, "systemReserved", Topic::Resources)
        "Resources reserved for system processes outside of Kubernetes, such as cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000.";
    deprecated("kube-reserved", Map, "kubeReserved", Topic::Resources)
        "Resources reserved for the system components of Kubernetes, such as cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000.";
    deprecated("system-reserved-cgroup", Text, "systemReservedCgroup", Topic::Resources)
        "Absolute name of the top cgroup of system processes outside of Kubernetes, such as /system.slice, on which --system-reserved is enforced.";
    deprecated("kube-reserved-cgroup", Text, "kubeReservedCgroup", Topic::Resources)
        "Absolute name of the top cgroup of Kubernetes components, such as /podruntime.slice, on which --kube-reserved is enforced.";
    deprecated("enforce-node-allocatable", List, "enforceNodeAllocatable", Topic::Resources)
        "Levels of node allocatable enforcement: none, or pods, system-reserved, kube-reserved, system-reserved-compressible and kube-reserved-compressible. The reserved levels need --system-reserved-cgroup or --kube-reserved-cgroup.";
    deprecated("local-storage-capacity-isolation", Bool, "localStorageCapacityIsolation", Topic::Resources)
        "Isolate local ephemeral storage: count it as a resource of the node, and limit it for pods. Set to false only where the filesystem of the root directory cannot be measured.";
    node("housekeeping-interval", Duration, "housekeepingInterval", Topic::Resources)
        "Interval between container housekeepings.";
    node("max-housekeeping-interval", Duration, "maxHousekeepingInterval", Topic::Resources)
        "Maximum interval between container housekeepings.";
    deprecated("eviction-hard", Thresholds, "evictionHard", Topic::Eviction)
        "Eviction thresholds, such as memory.available<1Gi, that trigger pod eviction at once if they are met.";
    deprecated("eviction-soft", Thresholds, "evictionSoft", Topic::Eviction)
        "Eviction thresholds, such as memory.available<1.5Gi, that trigger pod eviction if they are met for their grace period.";
    deprecated("eviction-soft-grace-period", Map, "evictionSoftGracePeriod", Topic::Eviction)
        "How long a soft eviction threshold must be met before it triggers pod eviction, such as memory.available=1m30s.";
    deprecated("eviction-pressure-transition-period", Duration, "evictionPressureTransitionPeriod", Topic::Eviction)
        "How long to wait before the kubelet leaves an eviction pressure condition.";
    deprecated("eviction-max-pod-grace-period", Int32, "evictionMaxPodGracePeriod", Topic::Eviction)
        "Maximum grace period in seconds for terminating pods when a soft eviction threshold is met. If negative, the period of the pod.";
    deprecated("eviction-minimum-reclaim", Map, "evictionMinimumReclaim", Topic::Eviction)
        "Minimum amount of a resource that the kubelet reclaims when it evicts pods because that resource is under pressure, such as imagefs.available=2Gi.";
    deprecated("kernel-memcg-notification", Bool, "kernelMemcgNotification", Topic::Eviction)
        "Use the kernel's memcg notifications, and not polling alone, to learn that a memory eviction threshold is crossed.";
    deprecated_node("experimental-allocatable-ignore-eviction", Bool, "experimentalAllocatableIgnoreEviction", Topic::Eviction)
        "Ignore hard eviction thresholds when node allocatable is calculated.";
    deprecated("cluster-domain", Text, "clusterDomain", Topic::Network)
        "Domain of this cluster. The kubelet adds it to the search domains of the host for all containers.";
    deprecated("cluster-dns", List, "clusterDNS", Topic::Network)
        "IP addresses of DNS servers, for the DNS of containers in pods with the policy ClusterFirst. All of them must serve the same records.";
    deprecated("resolv-conf", Text, "resolvConf", Topic::Network)
        "Resolver configuration file on which the DNS configuration of containers is based. If empty, none is used.";
    deprecated("hairpin-mode", Text, "hairpinMode", Topic::Network)
        "How the kubelet sets up hairpin NAT, so that the endpoints of a Service balance to themselves: promiscuous-bridge, hairpin-veth or none.";
    deprecated("pod-cidr", Text, "podCIDR", Topic::Network)
        "CIDR for pod IP addresses, only used in standalone mode. In a cluster it comes from the control plane.";
    deprecated("make-iptables-util-chains", Bool, "makeIPTablesUtilChains", Topic::Network)
        "Ensure the iptables utility rules of the kubelet on the host.";
    field("v", Level, "logging.verbosity", Topic::Logging)
        "Log level verbosity.";
    field("vmodule", VModule, "logging.vmodule", Topic::Logging)
        "Log levels for source files, as file=level,… Only with the text format.";
    field("log-flush-frequency", Duration, "logging.flushFrequency", Topic::Logging)
        "Maximum time between log flushes.";
    deprecated("logging-format", Text, "logging.format", Topic::Logging)
        "Log format: text or json.";
    deprecated("log-text-split-stream", Bool, "logging.options.text.splitStream", Topic::Logging)
        "In text format, write errors to standard error and other messages to standard output. Needs the feature gate LoggingAlphaOptions.";
    deprecated("log-text-info-buffer-size", Quantity, "logging.options.text.infoBufferSize", Topic::Logging)
        "In text format with split streams, bytes of messages that are buffered, such as 512, 1K or 2Mi; 0 disables buffering. Needs the feature gate LoggingAlphaOptions.";
    deprecated("log-json-split-stream", Bool, "logging.options.json.splitStream", Topic::Logging)
        "In JSON format, write errors to standard error and other messages to standard output. Needs the feature gate LoggingAlphaOptions.";
    deprecated("log-json-info-buffer-size", Quantity, "logging.options.json.infoBufferSize", Topic::Logging)
        "In JSON format with split streams, bytes of messages that are buffered, such as 512, 1K or 2Mi; 0 disables buffering. Needs the feature gate LoggingAlphaOptions.";
    node("local-socket-mode", Text, "localSocketMode", Topic::Own)
        "Mode of the socket that commands such as kubelet why ask: 0600 lets only root open it, 0660 also the group of --local-socket-group. Whoever may open it can read logs and run commands in containers.";
    node("local-socket-group", Text, "localSocketGroup", Topic::Own)
        "Group of the socket that commands such as kubelet why ask, by name or number. Needs --local-socket-mode=0660.";
    node("single-node", Bool, "singleNode", Topic::Own)
        "Serve the Kubernetes API of this node, for kubectl on a machine without a cluster. Its objects are in the directory single-node below --root-dir. Not with --kubeconfig.";
    node("single-node-address", Text, "singleNodeAddress", Topic::Own)
        "Address of the API of --single-node. Pods that use the API reach it there; with 127.0.0.1 these are pods with the host's network.";
    node("single-node-port", Int32, "singleNodePort", Topic::Own)
        "Port of the API of --single-node.";
    node("admin-kubeconfig", Text, "adminKubeconfig", Topic::Own)
        "Path of the kubeconfig that --single-node writes for the administrator.";
    node("admin-kubeconfig-group", Text, "adminKubeconfigGroup", Topic::Own)
        "Group that may read the kubeconfig of --admin-kubeconfig and so do everything on this node, by name or number. Empty: root only.";
    node("single-node-key", Text, "singleNodeKey", Topic::Own)
        "Path of the key that encrypts the Secrets of --single-node on disk; made at the first start. Keep a copy: without it a backup cannot be read.";
    deprecated_node("experimental-mounter-path", Text, "experimentalMounterPath", Topic::Accepted)
        "Path of the mounter binary. If empty, the default mount.";
    ignored("application-metrics-count-limit", Int32);
    ignored("boot-id-file", Text);
    ignored("container-hints", Text);
    ignored("containerd", Text);
    ignored("containerd-namespace", Text);
    ignored("enable-load-reader", Bool);
    ignored("event-storage-age-limit", Text);
    ignored("event-storage-event-limit", Text);
    ignored("global-housekeeping-interval", Duration);
    ignored("log-cadvisor-usage", Bool);
    ignored("machine-id-file", Text);
    ignored("storage-driver-user", Text);
    ignored("storage-driver-password", Text);
    ignored("storage-driver-host", Text);
    ignored("storage-driver-db", Text);
    ignored("storage-driver-table", Text);
    ignored("storage-driver-secure", Bool);
    ignored("storage-driver-buffer-duration", Duration);
    action("help", Bool)
        "Show this help.";
    action("version", Version)
        "Print the version and exit; --version=raw prints all build information.";
};
