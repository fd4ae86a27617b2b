//! Converts namespaces, security profiles, SELinux labels and users to CRI messages, and namespaces back.

use cri_api::v1 as wire;
use model::ContainerId;
use model::observation::NamespaceMode;
use model::request::{
    ContainerSecurity, IdMapping, Namespaces, SandboxSecurity, SecurityProfile, SelinuxLabel,
    SupplementalGroupsPolicy, UserNamespace,
};

pub(crate) fn sandbox_security(from: &SandboxSecurity) -> wire::LinuxSandboxSecurityContext {
    wire::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(&from.namespaces)),
        selinux_options: from.selinux.as_ref().map(selinux),
        run_as_user: from.run_as_user.map(int64),
        run_as_group: from.run_as_group.map(int64),
        supplemental_groups: from.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(from.supplemental_groups_policy).into(),
        privileged: from.privileged,
        seccomp: from.seccomp.as_ref().map(profile),
        ..Default::default()
    }
}

#[allow(deprecated, reason = "older runtimes only read the deprecated AppArmor text")]
pub(crate) fn container_security(from: &ContainerSecurity) -> wire::LinuxContainerSecurityContext {
    wire::LinuxContainerSecurityContext {
        capabilities: capabilities(from),
        privileged: from.privileged,
        namespace_options: Some(namespaces(&from.namespaces)),
        selinux_options: from.selinux.as_ref().map(selinux),
        run_as_user: from.run_as.uid.map(int64),
        run_as_group: from.run_as.gid.map(int64),
        run_as_username: from.run_as.username.clone(),
        readonly_rootfs: from.read_only_rootfs,
        supplemental_groups: from.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(from.supplemental_groups_policy).into(),
        no_new_privs: from.no_new_privs,
        masked_paths: from.masked_paths.clone(),
        readonly_paths: from.readonly_paths.clone(),
        seccomp: from.seccomp.as_ref().map(profile),
        apparmor: from.apparmor.as_ref().map(profile),
        apparmor_profile: from.apparmor.as_ref().map(profile_text).unwrap_or_default(),
        ..Default::default()
    }
}

/// `None` if the container requests none: some runtimes handle an empty message differently.
fn capabilities(from: &ContainerSecurity) -> Option<wire::Capability> {
    let has_any = !from.add_capabilities.is_empty() || !from.drop_capabilities.is_empty();
    has_any.then(|| wire::Capability {
        add_capabilities: from.add_capabilities.clone(),
        drop_capabilities: from.drop_capabilities.clone(),
        add_ambient_capabilities: Vec::new(),
    })
}

const fn int64(value: i64) -> wire::Int64Value {
    wire::Int64Value { value }
}

const fn groups_policy(from: SupplementalGroupsPolicy) -> wire::SupplementalGroupsPolicy {
    match from {
        SupplementalGroupsPolicy::Merge => wire::SupplementalGroupsPolicy::Merge,
        SupplementalGroupsPolicy::Strict => wire::SupplementalGroupsPolicy::Strict,
    }
}

fn selinux(from: &SelinuxLabel) -> wire::SeLinuxOption {
    wire::SeLinuxOption {
        user: from.user.clone(),
        role: from.role.clone(),
        r#type: from.kind.clone(),
        level: from.level.clone(),
    }
}

fn profile(from: &SecurityProfile) -> wire::SecurityProfile {
    use wire::security_profile::ProfileType;
    let (kind, localhost_ref) = match from {
        SecurityProfile::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        SecurityProfile::Unconfined => (ProfileType::Unconfined, String::new()),
        SecurityProfile::Localhost(name) => (ProfileType::Localhost, name.clone()),
    };
    wire::SecurityProfile { profile_type: kind.into(), localhost_ref }
}

fn profile_text(from: &SecurityProfile) -> String {
    match from {
        SecurityProfile::RuntimeDefault => "runtime/default".to_owned(),
        SecurityProfile::Unconfined => "unconfined".to_owned(),
        SecurityProfile::Localhost(name) => format!("localhost/{name}"),
    }
}

fn namespaces(from: &Namespaces) -> wire::NamespaceOption {
    // The CRI has a single target field; only the PID namespace uses it.
    let target_id = match &from.pid {
        NamespaceMode::Target(container) => container.as_str().to_owned(),
        NamespaceMode::Pod | NamespaceMode::Container | NamespaceMode::Node => String::new(),
    };
    wire::NamespaceOption {
        network: namespace_mode(&from.network).into(),
        pid: namespace_mode(&from.pid).into(),
        ipc: namespace_mode(&from.ipc).into(),
        target_id,
        userns_options: Some(user_namespace(&from.user)),
    }
}

const fn namespace_mode(from: &NamespaceMode) -> wire::NamespaceMode {
    match from {
        NamespaceMode::Pod => wire::NamespaceMode::Pod,
        NamespaceMode::Container => wire::NamespaceMode::Container,
        NamespaceMode::Node => wire::NamespaceMode::Node,
        NamespaceMode::Target(_) => wire::NamespaceMode::Target,
    }
}

/// The network namespace that a runtime reports. An unknown mode counts as the pod's own, the common case.
pub(crate) fn network_mode(options: Option<&wire::NamespaceOption>) -> NamespaceMode {
    let Some(options) = options else { return NamespaceMode::Pod };
    match wire::NamespaceMode::try_from(options.network) {
        Ok(wire::NamespaceMode::Pod) | Err(_) => NamespaceMode::Pod,
        Ok(wire::NamespaceMode::Container) => NamespaceMode::Container,
        Ok(wire::NamespaceMode::Node) => NamespaceMode::Node,
        Ok(wire::NamespaceMode::Target) => NamespaceMode::Target(ContainerId::new(&options.target_id)),
    }
}

fn user_namespace(from: &UserNamespace) -> wire::UserNamespace {
    match from {
        UserNamespace::Node => {
            wire::UserNamespace { mode: wire::NamespaceMode::Node.into(), uids: Vec::new(), gids: Vec::new() }
        }
        UserNamespace::Pod { uids, gids } => wire::UserNamespace {
            mode: wire::NamespaceMode::Pod.into(),
            uids: id_mappings(uids),
            gids: id_mappings(gids),
        },
    }
}

fn id_mappings(from: &[IdMapping]) -> Vec<wire::IdMapping> {
    from.iter()
        .map(|m| wire::IdMapping { host_id: m.host_id, container_id: m.container_id, length: m.length })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_absent_if_none_are_requested() {
        let none = ContainerSecurity::default();
        assert_eq!(container_security(&none).capabilities, None);
        let some = ContainerSecurity { drop_capabilities: vec!["ALL".to_owned()], ..none };
        let sent = container_security(&some).capabilities.expect("capabilities");
        assert_eq!((sent.add_capabilities.len(), sent.drop_capabilities), (0, vec!["ALL".to_owned()]));
    }
}
