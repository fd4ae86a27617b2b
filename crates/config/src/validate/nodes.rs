//! Rules for the node: numbers of pods and requests, DNS, taints, sysctls, back-off, user namespaces.

use super::Check;
use crate::duration::GoDuration;
use crate::node::{is_label_key, is_label_value};

impl Check<'_> {
    pub(super) fn node(&mut self) {
        let config = self.config;
        if config.node_lease_duration_seconds <= 0 {
            self.invalid("nodeLeaseDurationSeconds", config.node_lease_duration_seconds, "above 0");
        }
        self.at_least("eventRecordQPS", config.event_record_qps.into(), 0);
        self.at_least("eventBurst", config.event_burst.into(), 0);
        self.at_least("kubeAPIQPS", config.kube_api_qps.into(), 0);
        self.at_least("kubeAPIBurst", config.kube_api_burst.into(), 0);
        self.at_least("maxOpenFiles", config.max_open_files, 0);
        self.at_least("maxPods", config.max_pods.into(), 0);
        self.at_least("podsPerCore", config.pods_per_core.into(), 0);
        self.at_least("nodeStatusMaxImages", config.node_status_max_images.into(), -1);
        self.one_of("hairpinMode", &config.hairpin_mode, &["none", "promiscuous-bridge", "hairpin-veth"]);
        self.range("iptablesMasqueradeBit", config.iptables_masquerade_bit.into(), 0..=31);
        self.range("iptablesDropBit", config.iptables_drop_bit.into(), 0..=31);
        self.one_of(
            "configMapAndSecretChangeDetectionStrategy",
            &config.config_map_and_secret_change_detection_strategy,
            &["Get", "Cache", "Watch"],
        );
        for sysctl in &config.allowed_unsafe_sysctls {
            if !is_sysctl_pattern(sysctl) {
                let allowed =
                    "the name of a sysctl such as net.core.somaxconn, or its beginning with * at the end";
                self.invalid("allowedUnsafeSysctls", format!("{sysctl:?}"), allowed);
            } else if !has_namespace(sysctl) {
                let allowed =
                    "a sysctl of a namespace: kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.* or net.*";
                self.invalid("allowedUnsafeSysctls", format!("{sysctl:?}"), allowed);
            }
        }
        self.taints();
        self.back_off();
        let ids = config.user_namespaces.ids_per_pod;
        if ids <= 0 || ids % 65536 != 0 || ids > i64::from(u32::MAX) {
            self.invalid("userNamespaces.idsPerPod", ids, "a multiple of 65536, at most 4294967295");
        }
    }

    fn taints(&mut self) {
        for taint in &self.config.register_with_taints {
            if taint.time_added.is_some() {
                let key = &taint.key;
                self.conflict(format!(
                    "registerWithTaints {key}: timeAdded must not be set, the API server sets it"
                ));
            }
            let taint_text = format!("{}={}:{}", taint.key, taint.value, taint.effect);
            if !is_label_key(&taint.key) {
                self.invalid("registerWithTaints", &taint_text, "with a key such as example.com/name");
            }
            if !is_label_value(&taint.value) {
                let allowed = "with a value of at most 63 letters, digits, -, _ and .";
                self.invalid("registerWithTaints", &taint_text, allowed);
            }
            let effect = taint.effect.as_str();
            self.one_of("registerWithTaints", effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }

    fn back_off(&mut self) {
        let longest = self.config.crash_loop_back_off.max_container_restart_period;
        let field = "crashLoopBackOff.maxContainerRestartPeriod";
        let most = GoDuration::from_secs(300);
        if longest < GoDuration::from_secs(1) || longest > most {
            self.invalid(field, longest, "from 1s to 300s");
        }
        if longest != most {
            self.needs_gate(field, "KubeletCrashLoopBackOffMax");
        }
    }
}

/// Each IPC or network namespace has its own value of this sysctl, or of all that begin so. Others belong to the node, and a
/// pod cannot set them.
fn has_namespace(pattern: &str) -> bool {
    let name = pattern.strip_suffix('*').unwrap_or(pattern).replace('/', ".");
    let prefixes = ["kernel.shm", "kernel.msg", "fs.mqueue.", "net."];
    name == "kernel.sem" || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Names with dots or slashes; only the last character may be `*`.
fn is_sysctl_pattern(pattern: &str) -> bool {
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    let whole = if name.len() < pattern.len() { name.trim_end_matches(['.', '/']) } else { name };
    let word = |part: &str| {
        let is_alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        is_alphanumeric(part.chars().next())
            && is_alphanumeric(part.chars().next_back())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    pattern.len() <= 253 && !whole.is_empty() && whole.split(['.', '/']).all(word)
}
