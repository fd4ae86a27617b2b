//! Rules for security contexts.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use base_core::names;
use model::k8s::{AppArmorProfile, PodSpec, SeccompProfile, SecurityContext};

use super::Findings;

const ID_RANGE: RangeInclusive<i64> = 0..=2_147_483_647;

pub(super) fn check_pod_security(spec: &PodSpec, found: &mut Findings<'_>) {
    let Some(context) = &spec.security_context else {
        return;
    };
    let path = "spec.securityContext";
    let ids = [
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
        ("fsGroup", context.fs_group),
    ];
    for (field, id) in ids {
        check_id(&format!("{path}.{field}"), id, found);
    }
    for (index, group) in context.supplemental_groups.iter().flatten().enumerate() {
        check_id(&format!("{path}.supplementalGroups[{index}]"), Some(*group), found);
    }
    let policy = context.supplemental_groups_policy.as_deref();
    found.one_of(format!("{path}.supplementalGroupsPolicy"), policy, &["Merge", "Strict"]);
    let policy = context.fs_group_change_policy.as_deref();
    found.one_of(format!("{path}.fsGroupChangePolicy"), policy, &["Always", "OnRootMismatch"]);
    check_seccomp(&format!("{path}.seccompProfile"), context.seccomp_profile.as_ref(), found);
    check_apparmor(&format!("{path}.appArmorProfile"), context.app_armor_profile.as_ref(), found);
    let mut seen = BTreeSet::new();
    for (index, sysctl) in context.sysctls.iter().flatten().enumerate() {
        let path = format!("{path}.sysctls[{index}].name");
        if sysctl.name.is_empty() {
            found.required(path, "");
        } else if let Some(problem) = names::sysctl_name_problem(&sysctl.name) {
            found.invalid(path, sysctl.name.as_str(), problem);
        } else if !seen.insert(base_core::sysctl::dotted(&sysctl.name)) {
            found.duplicate(path, &sysctl.name);
        }
    }
}

fn check_id(path: &str, id: Option<i64>, found: &mut Findings<'_>) {
    if let Some(id) = id {
        found.in_range(path, id, ID_RANGE);
    }
}

pub(super) fn check_container_security(
    path: &str,
    context: &SecurityContext,
    spec: &PodSpec,
    found: &mut Findings<'_>,
) {
    check_id(&format!("{path}.runAsUser"), context.run_as_user, found);
    check_id(&format!("{path}.runAsGroup"), context.run_as_group, found);
    let proc_mount = context.proc_mount.as_deref();
    found.one_of(format!("{path}.procMount"), proc_mount, &["Default", "Unmasked"]);
    if proc_mount == Some("Unmasked") && spec.host_users != Some(false) {
        found.invalid(format!("{path}.procMount"), "Unmasked", "`hostUsers` must be false to use `Unmasked`");
    }
    if context.allow_privilege_escalation == Some(false) {
        let path = format!("{path}.allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            found.invalid(path.as_str(), false, detail);
        }
        let added = context.capabilities.as_ref().and_then(|c| c.add.as_deref()).unwrap_or_default();
        if added.iter().any(|capability| capability == "CAP_SYS_ADMIN" || capability == "SYS_ADMIN") {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            found.invalid(path.as_str(), false, detail);
        }
    }
    check_seccomp(&format!("{path}.seccompProfile"), context.seccomp_profile.as_ref(), found);
    check_apparmor(&format!("{path}.appArmorProfile"), context.app_armor_profile.as_ref(), found);
}

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn check_seccomp(path: &str, profile: Option<&SeccompProfile>, found: &mut Findings<'_>) {
    let Some(SeccompProfile { type_, localhost_profile }) = profile else {
        return;
    };
    let name = localhost_profile.as_deref().unwrap_or_default();
    let name_path = format!("{path}.localhostProfile");
    match (type_.as_str(), name) {
        ("", _) => found.required(format!("{path}.type"), ""),
        ("Localhost", "") => found.required(name_path, "must be set when seccomp type is Localhost"),
        ("Localhost", name) => {
            if let Some(problem) = names::inner_path_problem(name) {
                found.invalid(name_path, name, problem);
            }
        }
        (_, "") => found.one_of(format!("{path}.type"), Some(type_), &PROFILE_TYPES),
        (_, name) => found.invalid(name_path, name, "can only be set when seccomp type is Localhost"),
    }
}

fn check_apparmor(path: &str, profile: Option<&AppArmorProfile>, found: &mut Findings<'_>) {
    let Some(AppArmorProfile { type_, localhost_profile }) = profile else {
        return;
    };
    let name = localhost_profile.as_deref().unwrap_or_default();
    let name_path = format!("{path}.localhostProfile");
    match (type_.as_str(), name) {
        ("", _) => found.required(format!("{path}.type"), "type is required when appArmorProfile is set"),
        ("Localhost", "") => found.required(name_path, "must be set when AppArmor type is Localhost"),
        ("Localhost", name) if name.trim() != name => {
            found.invalid(name_path, name, "must not be padded with whitespace");
        }
        ("Localhost", _) => {}
        (_, "") => found.one_of(format!("{path}.type"), Some(type_), &PROFILE_TYPES),
        (_, name) => found.invalid(name_path, name, "can only be set when AppArmor type is Localhost"),
    }
}
