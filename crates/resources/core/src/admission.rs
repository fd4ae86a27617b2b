//! Whether the node admits a pod (docs/behaviour/admission.md): its sysctls, operating system, groups, AppArmor,
//! declared features, node pressure, and whether it fits. No pod is terminated here, and the machine is not inspected.

mod affinity;
pub mod fit;
pub mod preemption;
pub mod pressure;
mod shortage;

use std::borrow::Cow;

use base_core::declared_features::{UNSUPPORTED, compute_undeclared};
use base_core::node_labels::OS_LABEL;
use base_core::sysctl::dotted;
use config::Features;
use fit::{Fit, FitFacts, compute_fit};
use model::PodUid;
use model::annotations::APPARMOR_ANNOTATION_PREFIX;
use model::containers::{all_containers, spec_of};
use model::k8s::Pod;
use pressure::refuse_under_pressure;

use crate::admission::pressure::NodePressure;
use crate::rejection::Rejection;

/// The facts about the node that admission uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionFacts {
    /// AppArmor is enabled.
    pub has_apparmor: bool,
    /// The runtime supports `supplementalGroupsPolicy` (reported in `Status` of CRI).
    pub supplemental_groups_policy: bool,
    /// The runtime supports user namespaces of pods in the network of the node.
    pub user_namespaces_host_network: bool,
    /// Like `6.1.0-18-amd64`.
    pub kernel_version: String,
    /// `allowedUnsafeSysctls`: names, or prefixes of names with a `*` at the end.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// The pressure conditions of the node.
    pub pressure: NodePressure,
    /// The node is shutting down.
    pub is_shutting_down: bool,
    /// Why the requested CPUs, memory or devices are not available.
    pub resources: Option<Rejection>,
    pub features: Features,
}

/// The decision about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It runs once `victims` have been preempted.
    Admitted {
        victims: Vec<PodUid>,
        /// The resource that is short, if there are victims.
        short_of: String,
    },
    Rejected(Rejection),
}

/// Decides whether the pod is admitted; if several checks fail, the first in the order of docs/behaviour/admission.md is
/// reported. Without `fit` it is not checked whether the pod fits.
#[must_use]
pub fn compute_admission(pod: &Pod, facts: &AdmissionFacts, fit: Option<&FitFacts<'_>>) -> Admission {
    let before = refuse_pod_level_resources(pod, facts)
        .or_else(|| refuse_under_pressure(pod, facts.pressure))
        .or_else(|| refuse_sysctls(pod, facts))
        .or_else(|| facts.resources.clone())
        .or_else(|| refuse_os(pod))
        .or_else(|| refuse_groups_policy(pod, facts));
    if let Some(rejection) = before {
        return Admission::Rejected(rejection);
    }
    let (victims, short_of) = match fit.map_or(Fit::Fits, |fit| compute_fit(pod, fit)) {
        Fit::Fits => (Vec::new(), String::new()),
        Fit::FitsWithout { victims, short_of } => (victims, short_of),
        Fit::Refused(rejection) => return Admission::Rejected(rejection),
    };
    let after = refuse_apparmor(pod, facts)
        .or_else(|| refuse_undeclared_features(pod, facts))
        .or_else(|| refuse_during_shutdown(facts));
    match after {
        Some(rejection) => Admission::Rejected(rejection),
        None => Admission::Admitted { victims, short_of },
    }
}

/// The first reason to reject the pod wherever it fits, if any.
#[must_use]
pub fn compute_rejection(pod: &Pod, facts: &AdmissionFacts) -> Option<Rejection> {
    match compute_admission(pod, facts, None) {
        Admission::Admitted { .. } => None,
        Admission::Rejected(rejection) => Some(rejection),
    }
}

fn refuse_pod_level_resources(pod: &Pod, facts: &AdmissionFacts) -> Option<Rejection> {
    let resources = spec_of(pod).resources.as_ref()?;
    let is_set = [&resources.requests, &resources.limits].into_iter().flatten().any(|list| !list.is_empty());
    (is_set && !facts.features.pod_level_resources).then(|| Rejection {
        reason: Cow::Borrowed("PodLevelResourcesNotSupported"),
        message: "PodLevelResources feature gate is disabled".to_owned(),
    })
}

/// The reason and the message of a pod that arrives during node shutdown.
pub const SHUTTING_DOWN: (&str, &str) = ("NodeShutdown", "Pod was rejected as the node is shutting down.");

/// During node shutdown critical pods are rejected, too.
fn refuse_during_shutdown(facts: &AdmissionFacts) -> Option<Rejection> {
    let (reason, message) = SHUTTING_DOWN;
    facts.is_shutting_down.then(|| Rejection { reason: Cow::Borrowed(reason), message: message.to_owned() })
}

fn refuse_os(pod: &Pod) -> Option<Rejection> {
    let labelled = pod.metadata.labels.as_ref().and_then(|labels| labels.get(OS_LABEL));
    if labelled.is_some_and(|os| os != "linux") {
        return Some(Rejection {
            reason: Cow::Borrowed("PodOSSelectorNodeLabelDoesNotMatch"),
            message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
                .to_owned(),
        });
    }
    spec_of(pod).os.as_ref().filter(|os| os.name != "linux").map(|_| Rejection {
        reason: Cow::Borrowed("PodOSNotSupported"),
        message: "Failed to admit pod as the OS field doesn't match node OS".to_owned(),
    })
}

fn refuse_groups_policy(pod: &Pod, facts: &AdmissionFacts) -> Option<Rejection> {
    let context = spec_of(pod).security_context.as_ref()?;
    let is_strict = context.supplemental_groups_policy.as_deref() == Some("Strict");
    (is_strict && !facts.supplemental_groups_policy).then(|| Rejection {
        reason: Cow::Borrowed("SupplementalGroupsPolicyNotSupported"),
        message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
    })
}

/// Sysctls that are namespaced, harmless to other pods, and without effect on the pod's resources; some only since a
/// kernel version.
const SAFE_SYSCTLS: [(&str, (u32, u32)); 12] = [
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// The namespace of a namespaced sysctl.
fn namespace_of(sysctl: &str) -> Option<&'static str> {
    let is_ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| sysctl.starts_with(prefix));
    if is_ipc || sysctl == "kernel.sem" {
        return Some("ipc");
    }
    sysctl.starts_with("net.").then_some("net")
}

fn refuse_sysctls(pod: &Pod, facts: &AdmissionFacts) -> Option<Rejection> {
    let context = spec_of(pod).security_context.as_ref()?;
    let problem =
        context.sysctls.iter().flatten().find_map(|s| sysctl_problem(pod, &dotted(&s.name), facts))?;
    Some(Rejection {
        reason: Cow::Borrowed("SysctlForbidden"),
        message: format!("forbidden sysctl: {problem}"),
    })
}

fn sysctl_problem(pod: &Pod, sysctl: &str, facts: &AdmissionFacts) -> Option<String> {
    let spec = spec_of(pod);
    let namespace = namespace_of(sysctl);
    let is_shared = match namespace {
        Some("ipc") => spec.host_ipc == Some(true),
        Some(_) => spec.host_network == Some(true),
        None => false,
    };
    let kernel = kernel_version(&facts.kernel_version);
    let is_safe = SAFE_SYSCTLS.iter().any(|(name, since)| *name == sysctl && kernel >= *since);
    let is_allowed = facts.allowed_unsafe_sysctls.iter().map(|pattern| dotted(pattern)).any(|pattern| {
        pattern.strip_suffix('*').map_or(pattern == sysctl, |prefix| sysctl.starts_with(prefix))
    });
    match namespace {
        Some(namespace) if is_shared && (is_safe || is_allowed) => {
            Some(format!("{sysctl:?} not allowed with host {namespace} enabled"))
        }
        Some(_) if is_safe || is_allowed => None,
        // In a namespace shared with the node it would change the node, so no list can allow it.
        Some(_) | None => Some(format!("{sysctl:?} not allowlisted")),
    }
}

/// Major and minor number; unreadable parts count as 0.
fn kernel_version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn refuse_apparmor(pod: &Pod, facts: &AdmissionFacts) -> Option<Rejection> {
    if facts.has_apparmor || !wants_apparmor(pod) {
        return None;
    }
    Some(Rejection {
        reason: Cow::Borrowed("AppArmor"),
        message: "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned(),
    })
}

fn refuse_undeclared_features(pod: &Pod, facts: &AdmissionFacts) -> Option<Rejection> {
    let message = compute_undeclared(pod, facts.features, facts.user_namespaces_host_network)?;
    Some(Rejection { reason: Cow::Borrowed(UNSUPPORTED), message })
}

/// Some container requests an AppArmor profile, including the runtime's default.
fn wants_apparmor(pod: &Pod) -> bool {
    let of_pod = spec_of(pod).security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref());
    let of_containers =
        all_containers(pod).filter_map(|c| c.security_context().and_then(|s| s.app_armor_profile.as_ref()));
    let by_field = of_pod.into_iter().chain(of_containers).any(|profile| profile.type_ != "Unconfined");
    let annotations = pod.metadata.annotations.iter().flatten();
    let by_annotation = annotations
        .filter(|(key, _)| key.starts_with(APPARMOR_ANNOTATION_PREFIX))
        .any(|(_, profile)| !profile.is_empty() && profile != "unconfined");
    by_field || by_annotation
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn facts() -> AdmissionFacts {
        AdmissionFacts {
            has_apparmor: false,
            supplemental_groups_policy: false,
            user_namespaces_host_network: false,
            kernel_version: "6.1.0-18-amd64".to_owned(),
            allowed_unsafe_sysctls: vec!["kernel.msg*".to_owned(), "net.core.somaxconn".to_owned()],
            resources: None,
            pressure: NodePressure::default(),
            is_shutting_down: false,
            features: Features::default(),
        }
    }

    #[track_caller]
    fn check_with(facts: &AdmissionFacts, spec: &Value, expected: &str) {
        let mut spec = spec.clone();
        spec["containers"] = spec.get("containers").cloned().unwrap_or_else(|| json!([]));
        let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let found = compute_rejection(&pod, facts).map(|r| format!("{}: {}", r.reason, r.message));
        assert_eq!(found.unwrap_or_else(|| "welcome".to_owned()), expected);
    }

    #[track_caller]
    fn check_sysctl(name: &str, expected: &str) {
        let spec = json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        check_with(&facts(), &spec, expected);
    }

    #[test]
    fn safe_and_allowed_sysctls_pass() {
        for name in SAFE_SYSCTLS.map(|(name, _)| name) {
            check_sysctl(name, "welcome");
        }
        check_sysctl("kernel.msgmax", "welcome");
        check_sysctl("net.core.somaxconn", "welcome");
        check_sysctl("net/ipv4/tcp_rmem", "welcome");
    }

    /// The order of the Go kubelet's handlers: AppArmor, declared features, node shutdown.
    #[test]
    fn pod_that_requires_an_undeclared_feature_is_rejected_after_apparmor_and_before_shutdown() {
        let needs = json!({"hostNetwork": true, "hostUsers": false});
        let undeclared = "PodFeatureUnsupported: Pod requires node features that are not available: \
                          UserNamespacesHostNetworkSupport";
        check_with(&facts(), &needs, undeclared);
        check_with(&AdmissionFacts { is_shutting_down: true, ..facts() }, &needs, undeclared);
        let mut confined = needs.clone();
        confined["securityContext"] = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
        let apparmor = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host";
        check_with(&facts(), &confined, apparmor);
        let features = Features { node_declared_features: false, ..Features::default() };
        check_with(&AdmissionFacts { features, ..facts() }, &needs, "welcome");
    }

    /// `sysctl/allowlist_test.go`, TestAllowlist.
    #[test]
    fn sysctl_allowlist_table() {
        let allowed = ["kernel.msg*", "kernel.sem", "net.b.*"].map(str::to_owned).to_vec();
        let facts = AdmissionFacts { allowed_unsafe_sysctls: allowed, ..facts() };
        let is_admitted = |name: &str, host: &str| {
            let mut spec = json!({"containers": [],
                "securityContext": {"sysctls": [{"name": name, "value": name}]}});
            if !host.is_empty() {
                spec[host] = true.into();
            }
            compute_rejection(&serde_json::from_value(json!({ "spec": spec })).unwrap(), &facts).is_none()
        };
        for name in [
            "kernel.shm_rmid_forced",
            "kernel/shm_rmid_forced",
            "net.ipv4.ip_local_port_range",
            "kernel.msgmax",
            "kernel.sem",
            "kernel/sem",
        ] {
            assert!(is_admitted(name, ""), "{name}");
        }
        for (name, host) in [
            ("kernel.shm_rmid_forced", "hostIPC"),
            ("net.ipv4.ip_local_port_range", "hostNetwork"),
            ("foo", ""),
            ("net.a.b.c", ""),
            ("net.ipv4.ip_local_port_range.a.b.c", ""),
            ("kernel.msgmax", "hostIPC"),
            ("kernel.sem", "hostIPC"),
            ("net.b.c", "hostNetwork"),
        ] {
            assert!(!is_admitted(name, host), "{name} {host}");
        }
    }

    /// `sysctl/safe_sysctls_test.go`: what is safe from which kernel on.
    #[test]
    fn safe_sysctl_allowlist_by_kernel_version_table() {
        const ALWAYS: [&str; 5] = [
            "kernel.shm_rmid_forced",
            "net.ipv4.ip_local_port_range",
            "net.ipv4.tcp_syncookies",
            "net.ipv4.ping_group_range",
            "net.ipv4.ip_unprivileged_port_start",
        ];
        const SINCE_3_16: [&str; 1] = ["net.ipv4.ip_local_reserved_ports"];
        const LATER: [&str; 6] = [
            "net.ipv4.tcp_keepalive_time",
            "net.ipv4.tcp_fin_timeout",
            "net.ipv4.tcp_keepalive_intvl",
            "net.ipv4.tcp_keepalive_probes",
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_wmem",
        ];
        for (kernel, expected) in [
            ("", [true, false, false]),
            ("3.18.0-957.27.2.el7.x86_64", [true, true, false]),
            ("5.15.0-75-generic", [true, true, true]),
        ] {
            let facts = AdmissionFacts { kernel_version: kernel.to_owned(), ..facts() };
            for (names, is_safe) in [&ALWAYS[..], &SINCE_3_16, &LATER].into_iter().zip(expected) {
                for name in names {
                    let spec = json!({"containers": [],
                        "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
                    let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
                    let found = compute_rejection(&pod, &facts).is_none();
                    assert_eq!(found, is_safe, "{kernel}: {name}");
                }
            }
        }
    }

    #[test]
    fn other_sysctls_are_forbidden() {
        check_sysctl("kernel.sem", r#"SysctlForbidden: forbidden sysctl: "kernel.sem" not allowlisted"#);
        check_sysctl(
            "vm.swappiness",
            r#"SysctlForbidden: forbidden sysctl: "vm.swappiness" not allowlisted"#,
        );
    }

    #[test]
    fn sysctls_without_a_namespace_cannot_be_allowed() {
        let facts = AdmissionFacts { allowed_unsafe_sysctls: vec!["*".to_owned()], ..facts() };
        let spec = json!({"securityContext": {"sysctls": [{"name": "vm.swappiness", "value": "1"}]}});
        check_with(&facts, &spec, r#"SysctlForbidden: forbidden sysctl: "vm.swappiness" not allowlisted"#);
    }

    #[test]
    fn sysctls_of_a_namespace_shared_with_the_node_are_forbidden() {
        let sysctls = |name| json!({"sysctls": [{"name": name, "value": "1"}]});
        check_with(
            &facts(),
            &json!({"hostNetwork": true, "securityContext": sysctls("net.ipv4.tcp_syncookies")}),
            r#"SysctlForbidden: forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled"#,
        );
        check_with(
            &facts(),
            &json!({"hostIPC": true, "securityContext": sysctls("kernel.shm_rmid_forced")}),
            r#"SysctlForbidden: forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled"#,
        );
    }

    #[test]
    fn sysctls_can_be_safe_only_since_a_kernel_version() {
        let spec = json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}});
        let forbidden = r#"SysctlForbidden: forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted"#;
        check_with(&AdmissionFacts { kernel_version: "4.14.1".to_owned(), ..facts() }, &spec, forbidden);
        check_with(&AdmissionFacts { kernel_version: "4.15".to_owned(), ..facts() }, &spec, "welcome");
        check_with(&AdmissionFacts { kernel_version: "?".to_owned(), ..facts() }, &spec, forbidden);
    }

    #[test]
    fn apparmor_profile_needs_apparmor_on_the_host() {
        let refused = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host";
        let of_pod = |kind| json!({"securityContext": {"appArmorProfile": {"type": kind}}});
        check_with(&facts(), &of_pod("RuntimeDefault"), refused);
        check_with(&facts(), &of_pod("Unconfined"), "welcome");
        let has_it = AdmissionFacts { has_apparmor: true, ..facts() };
        check_with(&has_it, &of_pod("RuntimeDefault"), "welcome");
        let container = json!({"name": "a", "securityContext": {"appArmorProfile": {"type": "Localhost"}}});
        check_with(&facts(), &json!({"containers": [container]}), refused);
    }

    #[test]
    fn deprecated_apparmor_annotation_is_honoured() {
        let pod = |value: &str| -> Pod {
            let key = format!("{APPARMOR_ANNOTATION_PREFIX}a");
            serde_json::from_value(json!({"metadata": {"annotations": {key: value}}})).unwrap()
        };
        assert!(compute_rejection(&pod("localhost/x"), &facts()).is_some());
        assert!(compute_rejection(&pod("unconfined"), &facts()).is_none());
    }

    /// The reason to reject a pod on a full node, or `-`.
    #[track_caller]
    fn check_admission(spec: &Value, expected: &str) {
        let node = model::k8s::Node::default();
        let allocatable = [("pods".to_owned(), model::k8s::Quantity("0".to_owned()))].into();
        let fit = FitFacts {
            may_preempt: true,
            node: &node,
            allocatable: &allocatable,
            active: &[],
            features: Features::default(),
        };
        let found = match compute_admission(&pod_of(spec), &facts(), Some(&fit)) {
            Admission::Admitted { victims, .. } => {
                assert_eq!(victims, []);
                "-".into()
            }
            Admission::Rejected(rejection) => rejection.reason,
        };
        assert_eq!(found, expected, "{spec}");
    }

    fn pod_of(spec: &Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn first_failed_admission_check_is_reported() {
        let mut spec = json!({
            "containers": [{"name": "a"}], "nodeSelector": {"x": "y"}, "os": {"name": "windows"},
            "securityContext": {"sysctls": [{"name": "kernel.x", "value": "1"}], "supplementalGroupsPolicy": "Strict",
                                "appArmorProfile": {"type": "RuntimeDefault"}},
        });
        let short =
            AdmissionFacts { pressure: NodePressure { disk: true, ..NodePressure::default() }, ..facts() };
        assert_eq!(compute_rejection(&pod_of(&spec), &short).map(|r| r.reason).as_deref(), Some("Evicted"));
        check_admission(&spec, "SysctlForbidden");
        spec["securityContext"]["sysctls"] = json!([]);
        check_admission(&spec, "PodOSNotSupported");
        spec["os"] = json!({"name": "linux"});
        check_admission(&spec, "SupplementalGroupsPolicyNotSupported");
        spec["securityContext"]["supplementalGroupsPolicy"] = json!("Merge");
        check_admission(&spec, "OutOfpods");
        let ending = AdmissionFacts { is_shutting_down: true, ..facts() };
        let alone =
            |spec: &Value| compute_rejection(&pod_of(spec), &ending).map(|rejection| rejection.reason);
        assert_eq!(alone(&spec).as_deref(), Some("AppArmor"));
        spec["securityContext"]["appArmorProfile"] = Value::Null;
        assert_eq!(alone(&spec).as_deref(), Some("NodeShutdown"));
    }

    #[test]
    fn node_shutdown_rejects_all_pods() {
        let ending = AdmissionFacts { is_shutting_down: true, ..facts() };
        let refused = "NodeShutdown: Pod was rejected as the node is shutting down.";
        check_with(&ending, &json!({}), refused);
        check_with(&ending, &json!({"priority": 2_000_001_000}), refused);
        check_with(&facts(), &json!({}), "welcome");
    }

    #[test]
    fn strict_supplemental_groups_policy_needs_runtime_support() {
        let strict = json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}});
        let refused = "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node";
        check_with(&facts(), &strict, refused);
        check_with(&AdmissionFacts { supplemental_groups_policy: true, ..facts() }, &strict, "welcome");
        check_with(&facts(), &json!({"securityContext": {"supplementalGroupsPolicy": "Merge"}}), "welcome");
    }

    #[test]
    fn pod_level_resources_need_their_feature_gate() {
        let off = AdmissionFacts {
            features: Features { pod_level_resources: false, ..Features::default() },
            ..facts()
        };
        let own = json!({"resources": {"limits": {"cpu": "1"}}});
        check_with(&facts(), &own, "welcome");
        check_with(&off, &own, "PodLevelResourcesNotSupported: PodLevelResources feature gate is disabled");
        check_with(&off, &json!({"resources": {}}), "welcome");
    }

    #[test]
    fn pod_os_for_another_operating_system_is_rejected() {
        check_with(&facts(), &json!({"os": {"name": "linux"}}), "welcome");
        check_with(
            &facts(),
            &json!({"os": {"name": "windows"}}),
            "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
        );
    }

    /// `predicate_test.go` (TestRejectPodAdmissionBasedOnOSSelector): the label of the pod counts, a node selector is for
    /// the affinity predicate.
    #[test]
    fn pod_label_for_another_operating_system_is_rejected() {
        let refused = |labels: Value| {
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": {"containers": []}}))
                    .unwrap();
            compute_rejection(&pod, &facts())
                .map(|rejection| format!("{}: {}", rejection.reason, rejection.message))
        };
        let text = "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match \
                    node label";
        assert_eq!(refused(json!({"kubernetes.io/os": "linux"})), None);
        assert_eq!(refused(json!({})), None);
        assert_eq!(refused(json!({"kubernetes.io/os": "windows"})).as_deref(), Some(text));
        assert_eq!(refused(json!({"kubernetes.io/os": ""})).as_deref(), Some(text));
        check_with(&facts(), &json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), "welcome");
    }
}
