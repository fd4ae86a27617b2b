//! Validation: settings, and the exact error lines for them. An empty line means that the setting is accepted.

use crate::support::{Memory, resolve};
use config::{GoDuration, MachineFacts, NodeFlags};

/// The errors of a file with these lines.
fn errors(body: &str) -> String {
    resolve("--config /k.yaml", &Memory::default().with("/k.yaml", body)).err().unwrap_or_default()
}

#[track_caller]
fn check(body: &str, expected: &str) {
    let found = errors(body);
    let found = found.strip_prefix("invalid configuration: ").unwrap_or(&found);
    assert_eq!(found, expected, "{body}");
}

#[test]
fn numbers_are_validated_against_their_ranges() {
    check("nodeLeaseDurationSeconds: -1\n", "nodeLeaseDurationSeconds is -1, but must be above 0");
    check(
        "imageGCHighThresholdPercent: 101\n",
        "imageGCHighThresholdPercent (--image-gc-high-threshold) is 101, but must be from 0 to 100",
    );
    check(
        "imageGCLowThresholdPercent: -1\n",
        "imageGCLowThresholdPercent (--image-gc-low-threshold) is -1, but must be from 0 to 100",
    );
    check(
        "imageGCLowThresholdPercent: 85\n",
        "imageGCLowThresholdPercent (--image-gc-low-threshold) is 85, but must be below imageGCHighThresholdPercent (--image-gc-high-threshold) 85",
    );
    check(
        "imageMinimumGCAge: 3m\nimageMaximumGCAge: 2m\n",
        "imageMaximumGCAge is 2m0s, but must be 0s (off) or more than imageMinimumGCAge (--minimum-image-ttl-duration) 3m0s",
    );
    check("imageMaximumGCAge: 3m\n", "");
    check("registryPullQPS: -1\n", "registryPullQPS (--registry-qps) is -1, but must be 0 or more");
    check("registryBurst: -1\n", "registryBurst (--registry-burst) is -1, but must be 0 or more");
    check("eventRecordQPS: -1\n", "eventRecordQPS (--event-qps) is -1, but must be 0 or more");
    check("eventBurst: -1\n", "eventBurst (--event-burst) is -1, but must be 0 or more");
    check("kubeAPIQPS: -1\n", "kubeAPIQPS (--kube-api-qps) is -1, but must be 0 or more");
    check("kubeAPIBurst: -1\n", "kubeAPIBurst (--kube-api-burst) is -1, but must be 0 or more");
    check("port: 70000\n", "port (--port) is 70000, but must be from 1 to 65535");
    check("readOnlyPort: -1\n", "readOnlyPort (--read-only-port) is -1, but must be from 0 to 65535");
    check("readOnlyPort: 0\n", "");
    check("healthzPort: 65536\n", "healthzPort (--healthz-port) is 65536, but must be from 0 to 65535");
    check("healthzPort: 0\n", "");
    check("oomScoreAdj: -1001\n", "oomScoreAdj (--oom-score-adj) is -1001, but must be from -1000 to 1000");
    check("maxPods: -1\n", "maxPods (--max-pods) is -1, but must be 0 or more");
    check("podsPerCore: -1\n", "podsPerCore (--pods-per-core) is -1, but must be 0 or more");
    check("maxOpenFiles: -1\n", "maxOpenFiles (--max-open-files) is -1, but must be 0 or more");
    check(
        "nodeStatusMaxImages: -2\n",
        "nodeStatusMaxImages (--node-status-max-images) is -2, but must be -1 or more",
    );
    check(
        "containerLogMaxFiles: 1\n",
        "containerLogMaxFiles (--container-log-max-files) is 1, but must be 2 or more",
    );
    check("containerLogMaxWorkers: 0\n", "containerLogMaxWorkers is 0, but must be 1 or more");
    check("containerLogMonitorInterval: 2s\n", "containerLogMonitorInterval is 2s, but must be 3s or more");
    check("iptablesMasqueradeBit: 32\n", "iptablesMasqueradeBit is 32, but must be from 0 to 31");
    check("iptablesDropBit: -1\n", "iptablesDropBit is -1, but must be from 0 to 31");
    check("memoryThrottlingFactor: 0\n", "memoryThrottlingFactor is 0, but must be above 0 and at most 1");
    check("memoryThrottlingFactor: 1\n", "");
    check(
        "memoryThrottlingFactor: 1.5\n",
        "memoryThrottlingFactor is 1.5, but must be above 0 and at most 1",
    );
    check(
        "cpuCFSQuotaPeriod: 10us\n",
        "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) is 10µs, but must be from 1ms to 1s",
    );
    check(
        "cpuCFSQuotaPeriod: 2s\n",
        "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) is 2s, but must be from 1ms to 1s",
    );
}

#[test]
fn sizes_and_periods_are_validated_against_their_ranges() {
    check("cpuCFSQuotaPeriod: 10ms\n", "");
    check(
        "crashLoopBackOff: {maxContainerRestartPeriod: 0s}\n",
        "crashLoopBackOff.maxContainerRestartPeriod is 0s, but must be from 1s to 300s",
    );
    check(
        "crashLoopBackOff: {maxContainerRestartPeriod: 301s}\n",
        "crashLoopBackOff.maxContainerRestartPeriod is 5m1s, but must be from 1s to 300s",
    );
    check("crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n", "");
    check(
        "userNamespaces: {idsPerPod: 65535}\n",
        "userNamespaces.idsPerPod is 65535, but must be a multiple of 65536, at most 4294967295",
    );
    check(
        "userNamespaces: {idsPerPod: 4294967296}\n",
        "userNamespaces.idsPerPod is 4294967296, but must be a multiple of 65536, at most 4294967295",
    );
    check("userNamespaces: {idsPerPod: 131072}\n", "");
    check("maxParallelImagePulls: 0\n", "maxParallelImagePulls is 0, but must be 1 or more");
    check(
        "evictionMaxPodGracePeriod: -1\n",
        "evictionMaxPodGracePeriod (--eviction-max-pod-grace-period) is -1, but must be 0 or more",
    );
    check(
        "evictionPressureTransitionPeriod: -1s\n",
        "evictionPressureTransitionPeriod (--eviction-pressure-transition-period) is -1s, but must be 0s or more",
    );
    check("syncFrequency: -1s\n", "syncFrequency (--sync-frequency) is -1s, but must be more than 0s");
    check(
        "fileCheckFrequency: -1s\n",
        "fileCheckFrequency (--file-check-frequency) is -1s, but must be more than 0s",
    );
    check(
        "runtimeRequestTimeout: -1s\n",
        "runtimeRequestTimeout (--runtime-request-timeout) is -1s, but must be 0s or more",
    );
    check(
        "shutdownGracePeriod: 500ms\n",
        "shutdownGracePeriod is 500ms, but must be 0s (off) or 1s and more",
    );
    check(
        "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]\n",
        "shutdownGracePeriodByPodPriority is -1 seconds for priority 1, but must be 0 or more",
    );
    check(
        "tracing: {samplingRatePerMillion: 1000001}\n",
        "tracing.samplingRatePerMillion is 1000001, but must be from 0 to 1000000",
    );
    check(
        "logging: {flushFrequency: -1s}\n",
        "logging.flushFrequency (--log-flush-frequency) is -1s, but must be 0s or more",
    );
    check(
        "logging: {verbosity: 4294967295}\n",
        "logging.verbosity (--v) is 4294967295, but must be from 0 to 2147483647",
    );
}

#[test]
fn enumerated_values_are_validated() {
    check(
        "hairpinMode: wild\n",
        "hairpinMode (--hairpin-mode) is \"wild\", but must be none, promiscuous-bridge or hairpin-veth",
    );
    check(
        "cgroupDriver: other\n",
        "cgroupDriver (--cgroup-driver) is \"other\", but must be cgroupfs or systemd",
    );
    check(
        "cpuManagerPolicy: dynamic\n",
        "cpuManagerPolicy (--cpu-manager-policy) is \"dynamic\", but must be none or static",
    );
    check(
        "memoryManagerPolicy: static\n",
        "memoryManagerPolicy (--memory-manager-policy) is \"static\", but must be None or Static",
    );
    check(
        "topologyManagerPolicy: some\n",
        "topologyManagerPolicy (--topology-manager-policy) is \"some\", but must be none, best-effort, restricted or single-numa-node",
    );
    check(
        "topologyManagerScope: node\n",
        "topologyManagerScope (--topology-manager-scope) is \"node\", but must be container or pod",
    );
    check(
        "memorySwap: {swapBehavior: UnlimitedSwap}\n",
        "memorySwap.swapBehavior is \"UnlimitedSwap\", but must be empty, NoSwap or LimitedSwap",
    );
    check(
        "memoryReservationPolicy: All\n",
        "memoryReservationPolicy is \"All\", but must be None or TieredReservation",
    );
    check(
        "authorization: {mode: RBAC}\n",
        "authorization.mode (--authorization-mode) is \"RBAC\", but must be AlwaysAllow or Webhook",
    );
    check(
        "configMapAndSecretChangeDetectionStrategy: Poll\n",
        "configMapAndSecretChangeDetectionStrategy is \"Poll\", but must be Get, Cache or Watch",
    );
    check(
        "imagePullCredentialsVerificationPolicy: Sometimes\n",
        "imagePullCredentialsVerificationPolicy is \"Sometimes\", but must be NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify",
    );
    check(
        "logging: {format: xml}\n",
        "logging.format (--logging-format) is \"xml\", but must be text or json",
    );
    check("logging: {format: json}\n", "");
}

#[test]
fn policies_and_strategies_are_validated() {
    check(
        "tlsMinVersion: VersionSSL3\n",
        "tlsMinVersion (--tls-min-version) is \"VersionSSL3\", but must be empty, VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13",
    );
    check(
        "tlsCipherSuites: [TLS_NONE]\n",
        "tlsCipherSuites (--tls-cipher-suites) is \"TLS_NONE\", but must be the name of a TLS cipher suite",
    );
    check("address: localhost\n", "address (--address) is \"localhost\", but must be an IP address");
    check(
        "healthzBindAddress: everywhere\n",
        "healthzBindAddress (--healthz-bind-address) is \"everywhere\", but must be an IP address",
    );
    check(
        "enforceNodeAllocatable: [all]\n",
        "enforceNodeAllocatable (--enforce-node-allocatable) is \"all\", but must be pods, system-reserved, kube-reserved, system-reserved-compressible, kube-reserved-compressible or none",
    );
    // `sysctl/allowlist_test.go`, TestNewAllowlist.
    check("allowedUnsafeSysctls: ['kernel.msg*', kernel.sem, 'kernel/msg*', kernel/sem]\n", "");
    for refused in [" kernel.msg*", "kernel.msg* ", "net.-", "net.*.foo", "net.*/foo"] {
        let text =
            "must be the name of a sysctl such as net.core.somaxconn, or its beginning with * at the end";
        check(
            &format!("allowedUnsafeSysctls: ['{refused}']\n"),
            &format!("allowedUnsafeSysctls (--allowed-unsafe-sysctls) is {refused:?}, but {text}"),
        );
    }
    for refused in ["foo", "foo*", "vm.swappiness"] {
        let text =
            "must be a sysctl of a namespace: kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.* or net.*";
        check(
            &format!("allowedUnsafeSysctls: ['{refused}']\n"),
            &format!("allowedUnsafeSysctls (--allowed-unsafe-sysctls) is {refused:?}, but {text}"),
        );
    }
    check(
        "allowedUnsafeSysctls: ['net.*.x', 'kernel.msg*', 'net.ipv4.*', '*']\n",
        "allowedUnsafeSysctls (--allowed-unsafe-sysctls) is \"net.*.x\", but must be the name of a sysctl such as net.core.somaxconn, or its beginning with * at the end\ninvalid configuration: allowedUnsafeSysctls (--allowed-unsafe-sysctls) is \"*\", but must be the name of a sysctl such as net.core.somaxconn, or its beginning with * at the end",
    );
    check(
        "registerWithTaints: [{key: a, effect: Evict}]\n",
        "registerWithTaints (--register-with-taints) is \"Evict\", but must be NoSchedule, PreferNoSchedule or NoExecute",
    );
    check(
        "podLogsDir: /var/log/../pods\n",
        "podLogsDir is \"/var/log/../pods\", but must be an absolute path in ASCII without ., .. or a / at the end",
    );
    check(
        "podLogsDir: /var/log/pöds\n",
        "podLogsDir is \"/var/log/pöds\", but must be an absolute path in ASCII without ., .. or a / at the end",
    );
    check(
        "podLogsDir: /var/log/pods/\n",
        "podLogsDir is \"/var/log/pods/\", but must be an absolute path in ASCII without ., .. or a / at the end",
    );
    check(
        "reservedSystemCPUs: 3-1\n",
        "reservedSystemCPUs (--reserved-cpus) is \"3-1\", but must be a set of CPUs such as 0-1,4",
    );
    check("reservedSystemCPUs: 0-3,5\n", "");
    check("featureGates: {NoGate: true}\n", "unrecognized feature gate: NoGate");
    check(
        "featureGates: {SidecarContainers: false}\n",
        "cannot set feature gate SidecarContainers to false, feature is locked to true",
    );
}

#[test]
fn settings_that_require_or_exclude_each_other_are_validated() {
    check(
        "cgroupsPerQOS: false\n",
        "enforceNodeAllocatable (--enforce-node-allocatable) pods needs cgroupsPerQOS (--cgroups-per-qos) true",
    );
    check("cgroupsPerQOS: false\nenforceNodeAllocatable: []\n", "");
    check("cgroupsPerQOS: false\nenforceNodeAllocatable: [none]\n", "");
    check(
        "cgroupsPerQOS: false\nenforceNodeAllocatable: []\ncgroupDriver: systemd\n",
        "cgroupDriver (--cgroup-driver) systemd needs cgroupsPerQOS (--cgroups-per-qos) true",
    );
    check(
        "cgroupsPerQOS: false\nenforceNodeAllocatable: []\ncgroupRoot: /x\n",
        "cgroupRoot (--cgroup-root) /x needs cgroupsPerQOS (--cgroups-per-qos) true",
    );
    check(
        "systemCgroups: /system\n",
        "systemCgroups (--system-cgroups) /system needs cgroupRoot (--cgroup-root)",
    );
    check("systemCgroups: /system\ncgroupRoot: /x\n", "");
    check(
        "systemCgroups: /\ncgroupRoot: /x\n",
        "systemCgroups (--system-cgroups) / is the root cgroup, in which all processes start",
    );
    check(
        "reservedSystemCPUs: 0-1\nsystemReservedCgroup: /s\n",
        "reservedSystemCPUs (--reserved-cpus) cannot be set together with systemReservedCgroup (--system-reserved-cgroup)",
    );
    check(
        "reservedSystemCPUs: 0-1\nkubeReservedCgroup: /k\n",
        "reservedSystemCPUs (--reserved-cpus) cannot be set together with kubeReservedCgroup (--kube-reserved-cgroup)",
    );
    check(
        "enforceNodeAllocatable: [none, pods]\n",
        "enforceNodeAllocatable (--enforce-node-allocatable): none excludes all others",
    );
    check(
        "enforceNodeAllocatable: [kube-reserved]\n",
        "enforceNodeAllocatable (--enforce-node-allocatable): kube-reserved needs kubeReservedCgroup (--kube-reserved-cgroup)",
    );
    check(
        "enforceNodeAllocatable: [system-reserved, system-reserved-compressible]\nsystemReservedCgroup: /s\n",
        "enforceNodeAllocatable (--enforce-node-allocatable): system-reserved and system-reserved-compressible exclude each other",
    );
    check("enforceNodeAllocatable: [pods, kube-reserved-compressible]\nkubeReservedCgroup: /k\n", "");
    check(
        "evictionSoft: {memory.available: 1Gi}\n",
        "evictionSoft (--eviction-soft) memory.available needs evictionSoftGracePeriod (--eviction-soft-grace-period)",
    );
    // A grace period alone has no effect, and the Go kubelet accepts it (`eviction/helpers.go`, ParseThresholdConfig).
    check("evictionSoftGracePeriod: {memory.available: 1m}\n", "");
    check("evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\n", "");
    // A threshold that is disabled needs none.
    check("evictionSoft: {memory.available: 0%, pid.available: 100%}\n", "");
    check(
        "shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 20s\n",
        "shutdownGracePeriodCriticalPods is 20s, but must be at most shutdownGracePeriod 10s",
    );
    check(
        "shutdownGracePeriod: 10s\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 1}]\n",
        "shutdownGracePeriodByPodPriority cannot be set together with shutdownGracePeriod or shutdownGracePeriodCriticalPods",
    );
}

#[test]
fn settings_that_require_or_exclude_each_other_are_validated_further() {
    check(
        "shutdownGracePeriod: 10s\nfeatureGates: {GracefulNodeShutdown: false}\n",
        "shutdownGracePeriod needs the feature gate GracefulNodeShutdown",
    );
    check(
        "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 1}]\nfeatureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\n",
        "shutdownGracePeriodByPodPriority needs the feature gate GracefulNodeShutdownBasedOnPodPriority",
    );
    check(
        "serializeImagePulls: true\nmaxParallelImagePulls: 2\n",
        "maxParallelImagePulls is 2, but must be 1 or not set while serializeImagePulls (--serialize-image-pulls) is true",
    );
    check("serializeImagePulls: true\nmaxParallelImagePulls: 1\n", "");
    check(
        "crashLoopBackOff: {maxContainerRestartPeriod: 10s}\nfeatureGates: {KubeletCrashLoopBackOffMax: false}\n",
        "crashLoopBackOff.maxContainerRestartPeriod needs the feature gate KubeletCrashLoopBackOffMax",
    );
    check(
        "cpuCFSQuotaPeriod: 10ms\nfeatureGates: {CustomCPUCFSQuotaPeriod: false}\n",
        "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) needs the feature gate CustomCPUCFSQuotaPeriod",
    );
    check(
        "registerWithTaints: [{key: a, effect: NoExecute, timeAdded: '2024-01-01T00:00:00Z'}]\n",
        "registerWithTaints a: timeAdded must not be set, the API server sets it",
    );
    check("imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n", "");
    // `images/pullmanager/image_pull_policies_test.go`: patterns without effect would leave out what they were meant for.
    let digest = "38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd";
    for pattern in [
        "image.repo/pokus*/imagename",
        "image.repo/pokus*",
        "image.repo/*/imagename",
        "/*",
        "image.repo/",
        "",
        "*",
        "test.io/test/image1:tagged",
        &format!("test.io/test/image1@sha256:{digest}"),
        "test.io/test/image1 ",
    ] {
        let policy = "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\n";
        check(
            &format!("{policy}preloadedImagesVerificationAllowlist: ['{pattern}']\n"),
            &format!(
                "preloadedImagesVerificationAllowlist is {pattern:?}, but must be the name of an image without tag and digest, or its beginning with /* at the end"
            ),
        );
    }
    check(
        "preloadedImagesVerificationAllowlist: [a]\n",
        "preloadedImagesVerificationAllowlist must be set only if imagePullCredentialsVerificationPolicy is NeverVerifyAllowlistedImages",
    );
    check(
        "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [a]\n",
        "",
    );
    check(
        "imagePullCredentialsVerificationPolicy: AlwaysVerify\nfeatureGates: {KubeletEnsureSecretPulledImages: false}\n",
        "imagePullCredentialsVerificationPolicy needs the feature gate KubeletEnsureSecretPulledImages",
    );
    check(
        "serverTLSBootstrap: true\nfeatureGates: {RotateKubeletServerCertificate: false}\n",
        "serverTLSBootstrap (--rotate-server-certificates) needs the feature gate RotateKubeletServerCertificate",
    );
    check("featureGates: {RotateKubeletServerCertificate: false}\n", "");
    check(
        "enableSystemLogQuery: true\nenableSystemLogHandler: false\n",
        "enableSystemLogQuery true needs enableSystemLogHandler true",
    );
    check("qosReserved: {memory: 50%}\n", "qosReserved (--qos-reserved) needs the feature gate QOSReserved");
    check("qosReserved: {memory: 50%}\nfeatureGates: {QOSReserved: true}\n", "");
    check(
        "logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}\n",
        "logging.vmodule (--vmodule) is only understood with logging.format text",
    );
    check(
        "logging: {options: {json: {splitStream: true}}}\n",
        "logging.options.json.splitStream (--log-json-split-stream) needs the feature gate LoggingAlphaOptions",
    );
}

#[test]
fn quantities_and_thresholds_are_validated() {
    check(
        "containerLogMaxSize: 10Xi\n",
        "containerLogMaxSize (--container-log-max-size) is \"10Xi\", but must be a quantity above 0, such as 10Mi",
    );
    check(
        "containerLogMaxSize: 0Mi\n",
        "containerLogMaxSize (--container-log-max-size) is \"0Mi\", but must be a quantity above 0, such as 10Mi",
    );
    check(
        "evictionHard: {memory.free: 1Gi}\n",
        "evictionHard (--eviction-hard) is memory.free=1Gi, but must be for one of allocatableMemory.available, containerfs.available, containerfs.inodesFree, imagefs.available, imagefs.inodesFree, memory.available, nodefs.available, nodefs.inodesFree, pid.available",
    );
    check(
        "evictionHard: {memory.available: lots}\n",
        "evictionHard (--eviction-hard) is memory.available=lots, but must be a quantity above 0, or a share from 0% to 100%",
    );
    check(
        "evictionHard: {memory.available: 101%}\n",
        "evictionHard (--eviction-hard) is memory.available=101%, but must be a quantity above 0, or a share from 0% to 100%",
    );
    check("evictionHard: {memory.available: 0%, nodefs.inodesFree: 5.5%, pid.available: 1k}\n", "");
    check(
        "evictionSoft: {memory.available: -1}\nevictionSoftGracePeriod: {memory.available: 1m}\n",
        "/k.yaml: field evictionSoft[memory.available]: invalid type: integer `-1`, expected a string (put it in quotes)",
    );
    check(
        "evictionMinimumReclaim: {imagefs.available: 1Zi}\n",
        "evictionMinimumReclaim (--eviction-minimum-reclaim) is imagefs.available=1Zi, but must be a quantity of 0 or more, or a share from 0% to 100%",
    );
    check(
        "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: soon}\n",
        "evictionSoftGracePeriod (--eviction-soft-grace-period) is memory.available=soon, but must be a duration of 0s or more, such as 1m30s",
    );
    check(
        "systemReserved: {gpu: '1'}\n",
        "systemReserved (--system-reserved) is gpu=1, but must be of cpu, memory, ephemeral-storage, pid or hugepages-<size>",
    );
    check(
        "systemReserved: {cpu: -1m}\n",
        "systemReserved (--system-reserved) is cpu=-1m, but must be a quantity of 0 or more",
    );
    check(
        "kubeReserved: {cpu: 100m, memory: 1Gi, ephemeral-storage: 1Gi, pid: '10', hugepages-2Mi: 4Mi}\n",
        "",
    );
    check(
        "reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]\n",
        "reservedMemory (--reserved-memory) is 0:cpu=1, but must be of the type memory or hugepages-<size>",
    );
    check(
        "reservedMemory: [{numaNode: 0, limits: {memory: 0}}]\n",
        "reservedMemory (--reserved-memory) is 0:memory=0, but must be a quantity above 0",
    );
    check(
        "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 0, limits: {memory: 2Gi}}]\n",
        "reservedMemory (--reserved-memory) is 0:memory=2Gi, but must be given once per node and type",
    );
    check(
        "reservedMemory: [{numaNode: -1, limits: {memory: 1Gi}}]\n",
        "reservedMemory (--reserved-memory) is -1, but must be 0 or more",
    );
    check(
        "qosReserved: {cpu: 50%}\nfeatureGates: {QOSReserved: true}\n",
        "qosReserved (--qos-reserved) is cpu=50%, but must be memory with a share from 0% to 100%",
    );
}

#[test]
fn every_invalid_setting_has_its_own_error_line() {
    let lines = errors("maxPods: -1\nport: 0\noomScoreAdj: 2000\nhairpinMode: wild\nport: 70000\n");
    assert_eq!(lines.lines().count(), 4, "{lines}");
}

#[test]
fn run_once_is_allowed_without_an_api_server() {
    check("runOnce: true\n", "");
    let files = Memory::default().with("/k.yaml", "runOnce: true\n");
    let wrong = resolve("--config /k.yaml --kubeconfig /x", &files).expect_err("refused");
    assert_eq!(
        wrong,
        "invalid configuration: runOnce (--runonce) true needs a kubelet without an API server, but --kubeconfig is set"
    );
}

#[track_caller]
fn check_flags(line: &str, expected: &str) {
    let found = resolve(line, &Memory::default()).err().unwrap_or_default();
    assert_eq!(found.strip_prefix("invalid configuration: ").unwrap_or(&found), expected, "{line}");
}

#[test]
fn node_flags_are_validated() {
    check_flags("--cloud-provider external", "");
    check_flags("--cloud-provider aws", "--cloud-provider is \"aws\", but must be empty or external");
    check_flags("--exit-on-lock-contention", "--exit-on-lock-contention needs --lock-file");
    check_flags(
        "--image-credential-provider-config /c",
        "--image-credential-provider-config and --image-credential-provider-bin-dir must be set both or neither",
    );
    check_flags(
        "--image-credential-provider-bin-dir /b",
        "--image-credential-provider-config and --image-credential-provider-bin-dir must be set both or neither",
    );
    check_flags(
        "--image-credential-provider-config /c --image-credential-provider-bin-dir /b",
        "cannot read --image-credential-provider-config /c: no such file",
    );
    check_flags(
        "--node-ip 10.0.0.1,10.0.0.2",
        "--node-ip is \"10.0.0.1,10.0.0.2\", but must be one IP address, or one IPv4 and one IPv6 address, neither of them unspecified",
    );
    check_flags("--node-ip ::", "");
    check_flags(
        "--node-ip 0.0.0.0,fd00::1",
        "--node-ip is \"0.0.0.0,fd00::1\", but must be one IP address, or one IPv4 and one IPv6 address, neither of them unspecified",
    );
    check_flags(
        "--node-ip here",
        "--node-ip is \"here\", but must be one IP address, or one IPv4 and one IPv6 address, neither of them unspecified",
    );
    check_flags(
        "--node-labels a=b=c",
        "--node-labels is \"b=c\", but must be label values: at most 63 letters, digits, -, _ and .",
    );
    check_flags(
        "--node-labels -x=1",
        "--node-labels is \"-x\", but must be label keys such as example.com/name",
    );
    check_flags(
        "--container-runtime-endpoint=",
        "containerRuntimeEndpoint (--container-runtime-endpoint) is empty, but must be the address of the runtime's socket",
    );
    check_flags("--sync-frequency 0", "syncFrequency (--sync-frequency) is 0s, but must be more than 0s");
}

#[test]
fn node_labels_that_the_control_plane_trusts_are_rejected() {
    for fine in [
        "color=red",
        "example.com/zone=a",
        "kubelet.kubernetes.io/x=1",
        "a.node.kubernetes.io/x=1",
        "kubernetes.io/hostname=h",
        "kubernetes.io/os=linux",
        "beta.kubernetes.io/instance-type=big",
        "node.kubernetes.io/instance-type=big",
        "failure-domain.beta.kubernetes.io/zone=z",
        "topology.kubernetes.io/region=r",
        "notkubernetes.io/x=1",
    ] {
        check_flags(&format!("--node-labels {fine}"), "");
    }
    for bad in ["kubernetes.io/x=1", "k8s.io/x=1", "foo.kubernetes.io/x=1", "node-role.kubernetes.io/master="]
    {
        let found = resolve(&format!("--node-labels {bad}"), &Memory::default()).expect_err(bad);
        assert!(
            found.contains("--node-labels is") && found.contains("but must be outside kubernetes.io"),
            "{found}"
        );
    }
}

#[test]
fn cgroup_v1_and_swap_are_checked_against_the_machine() {
    let on = |body: &str, cgroup_v1, swap_on| {
        let files = Memory::default().with("/k.yaml", body);
        let resolved = resolve("--config /k.yaml", &files).expect("valid");
        match resolved.check_machine(&MachineFacts { cgroup_v1, swap_on }) {
            Ok(warnings) => warnings.join("\n"),
            Err(errors) => format!("error: {errors}"),
        }
    };
    assert_eq!(on("", false, false), "");
    assert!(on("", true, false).starts_with("error: invalid configuration: this machine uses cgroup v1"));
    assert_eq!(
        on("failCgroupV1: false\n", true, false),
        "cgroup v1 support is in maintenance mode, please migrate to cgroup v2"
    );
    assert!(on("", false, true).contains("failSwapOn (--fail-swap-on)"));
    assert_eq!(on("failSwapOn: false\n", false, true), "");
    let limited = "failCgroupV1: false\nfailSwapOn: false\nmemorySwap: {swapBehavior: LimitedSwap}\n";
    assert!(on(limited, true, true).contains("memorySwap.swapBehavior is LimitedSwap"));
    assert_eq!(on(limited, false, true), "");
    assert!(
        on("failCgroupV1: false\nsingleProcessOOMKill: false\n", true, false)
            .contains("singleProcessOOMKill")
    );
    assert_eq!(on("singleProcessOOMKill: false\n", false, false), "");
}

#[test]
fn node_name_is_the_hostname_override_or_the_host_name_in_lower_case() {
    let named = |hostname_override: &str, hostname: &str| {
        let flags = NodeFlags { hostname_override: hostname_override.to_owned(), ..NodeFlags::default() };
        flags.node_name(hostname).map_err(|error| error.to_string())
    };
    assert_eq!(named("", " Node-1.Example.COM\n"), Ok("node-1.example.com".to_owned()));
    assert_eq!(named("Other", "node"), Ok("other".to_owned()));
    assert!(named("", "").is_err_and(|error| error.contains("the host name is \"\"")));
    assert!(
        named("under_score", "x")
            .is_err_and(|error| error.contains("--hostname-override is \"under_score\""))
    );
    assert!(named("", &"a".repeat(254)).is_err());
}

#[test]
fn node_ips_are_parsed() {
    let flags = resolve("--node-ip 10.0.0.1,fd00::1", &Memory::default()).expect("valid").flags;
    let expected: Vec<std::net::IpAddr> =
        vec!["10.0.0.1".parse().expect("v4"), "fd00::1".parse().expect("v6")];
    assert_eq!(flags.node_ips(), expected);
    assert_eq!(GoDuration::from_secs(10).as_std(), flags.housekeeping_interval.into());
}
