//! Flags of earlier Kubernetes versions that 1.36 does not have, and what to do instead, for the error message.

/// Name (or start of the name if it ends in `*`), what to do instead.
const REMOVED: &[(&str, &str)] = &[
    ("container-runtime", "use --container-runtime-endpoint"),
    ("pod-infra-container-image", "set the sandbox image in the container runtime"),
    ("keep-terminated-pod-volumes", "remove it: volumes of finished pods are always cleaned up"),
    ("master-service-namespace", "remove it: the namespace is always default"),
    ("register-schedulable", "use registerWithTaints in the file given by --config"),
    ("host-ipc-sources", "use pod security admission"),
    ("host-network-sources", "use pod security admission"),
    ("host-pid-sources", "use pod security admission"),
    ("allow-privileged", "use pod security admission"),
    ("network-plugin*", "set up CNI in the container runtime"),
    ("cni-*", "set up CNI in the container runtime"),
    ("docker*", "use a CRI runtime through --container-runtime-endpoint"),
    ("image-pull-progress-deadline", "set it in the container runtime"),
    ("non-masquerade-cidr", "set up masquerading in the network plugin"),
    ("cloud-config", "set it for the external cloud controller manager"),
    ("azure-*", "use --image-credential-provider-config"),
    ("experimental-kernel-memcg-notification", "use kernelMemcgNotification in the file given by --config"),
    ("experimental-qos-reserved", "use qosReserved in the file given by --config"),
    ("experimental-check-node-capabilities-before-mount", "remove it: there is no such check"),
    ("experimental-bootstrap-kubeconfig", "use --bootstrap-kubeconfig"),
    ("experimental-fail-swap-on", "use failSwapOn in the file given by --config"),
    ("dynamic-config-dir", "use --config and --config-dir"),
    ("cadvisor-port", "read /metrics/cadvisor on the kubelet's own port"),
    ("really-crash-for-testing", "remove it"),
    ("chaos-chance", "remove it"),
    ("iptables-masquerade-bit", "remove it: the bit is no longer used"),
    ("iptables-drop-bit", "remove it: the bit is no longer used"),
    ("redirect-container-streaming", "remove it: streams always go through the kubelet"),
    ("seccomp-profile-root", "put profiles below seccomp in the root directory"),
    ("enable-cadvisor-json-endpoints", "read /metrics/cadvisor"),
    ("require-kubeconfig", "remove it: set --kubeconfig to use an API server"),
    ("api-servers", "use --kubeconfig"),
    ("bootstrap-checkpoint-path", "remove it"),
    ("node-status-update-period", "use nodeStatusUpdateFrequency in the file given by --config"),
    ("log-dir", "redirect standard error"),
    ("log-file*", "redirect standard error"),
    ("logtostderr", "remove it: the log always goes to standard error"),
    ("alsologtostderr", "remove it: the log always goes to standard error"),
    ("stderrthreshold", "remove it: the log always goes to standard error"),
    ("log-backtrace-at", "remove it"),
    ("add-dir-header", "remove it"),
    ("skip-headers", "remove it"),
    ("skip-log-headers", "remove it"),
    ("one-output", "remove it"),
];

/// What to do instead of using a removed flag. `name` has `-` between words.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    REMOVED
        .iter()
        .find(|(removed, _)| {
            removed.strip_suffix('*').map_or(*removed == name, |start| name.starts_with(start))
        })
        .map(|(_, instead)| *instead)
}
