//! Flags of earlier Kubernetes versions that 1.36 no longer takes, so that the error can say what to do instead.
//! Data and look-up only.

/// Name (or start of the name if it ends in `*`), the release that dropped it, what to do instead.
const GONE: &[(&str, &str, &str)] = &[
    ("container-runtime", "1.27", "every runtime is reached through --container-runtime-endpoint"),
    ("pod-infra-container-image", "1.35", "set the sandbox image in the container runtime"),
    ("keep-terminated-pod-volumes", "1.31", "remove it: volumes of finished pods are always cleaned up"),
    ("master-service-namespace", "1.31", "remove it: the namespace is always default"),
    ("register-schedulable", "1.29", "use registerWithTaints in the file given by --config"),
    ("host-ipc-sources", "1.13", "use pod security admission"),
    ("host-network-sources", "1.13", "use pod security admission"),
    ("host-pid-sources", "1.13", "use pod security admission"),
    ("allow-privileged", "1.15", "use pod security admission"),
    ("network-plugin*", "1.24", "set up CNI in the container runtime"),
    ("cni-*", "1.24", "set up CNI in the container runtime"),
    ("docker*", "1.24", "use a CRI runtime through --container-runtime-endpoint"),
    ("image-pull-progress-deadline", "1.24", "set it in the container runtime"),
    ("non-masquerade-cidr", "1.24", "set up masquerading in the network plugin"),
    ("cloud-config", "1.31", "give it to the external cloud controller manager"),
    ("azure-*", "1.31", "use --image-credential-provider-config"),
    (
        "experimental-kernel-memcg-notification",
        "1.23",
        "use kernelMemcgNotification in the file given by --config",
    ),
    ("experimental-qos-reserved", "1.11", "use qosReserved in the file given by --config"),
    ("experimental-check-node-capabilities-before-mount", "1.25", "remove it: there is nothing to check"),
    ("experimental-bootstrap-kubeconfig", "1.20", "use --bootstrap-kubeconfig"),
    ("experimental-fail-swap-on", "1.9", "use failSwapOn in the file given by --config"),
    ("dynamic-config-dir", "1.24", "use --config and --config-dir"),
    ("cadvisor-port", "1.12", "read /metrics/cadvisor on the kubelet's own port"),
    ("really-crash-for-testing", "1.28", "remove it"),
    ("chaos-chance", "1.21", "remove it"),
    ("iptables-masquerade-bit", "1.28", "remove it: the bit is no longer used"),
    ("iptables-drop-bit", "1.28", "remove it: the bit is no longer used"),
    ("redirect-container-streaming", "1.20", "remove it: streams always go through the kubelet"),
    ("seccomp-profile-root", "1.23", "put profiles below seccomp in the root directory"),
    ("enable-cadvisor-json-endpoints", "1.22", "read /metrics/cadvisor"),
    ("require-kubeconfig", "1.10", "remove it: give --kubeconfig to have an API server"),
    ("api-servers", "1.6", "use --kubeconfig"),
    ("bootstrap-checkpoint-path", "1.19", "remove it"),
    ("node-status-update-period", "1.6", "use nodeStatusUpdateFrequency in the file given by --config"),
    ("log-dir", "1.26", "redirect standard error"),
    ("log-file*", "1.26", "redirect standard error"),
    ("logtostderr", "1.26", "remove it: the log always goes to standard error"),
    ("alsologtostderr", "1.26", "remove it: the log always goes to standard error"),
    ("stderrthreshold", "1.26", "remove it: the log always goes to standard error"),
    ("log-backtrace-at", "1.26", "remove it"),
    ("add-dir-header", "1.26", "remove it"),
    ("skip-headers", "1.26", "remove it"),
    ("skip-log-headers", "1.26", "remove it"),
    ("one-output", "1.26", "remove it"),
];

/// Since when a flag is gone and what replaces it. `name` with `-` between words.
pub(crate) fn find(name: &str) -> Option<(&'static str, &'static str)> {
    GONE.iter()
        .find(|(gone, ..)| gone.strip_suffix('*').map_or(*gone == name, |start| name.starts_with(start)))
        .map(|(_, since, instead)| (*since, *instead))
}
