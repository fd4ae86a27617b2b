//! User and privileges of a container (docs/behaviour/security-context.md). Never inspects the machine: admission checks
//! whether AppArmor is enabled.

use base_core::node_facts::NodeFacts;
use std::path::Path;

use model::annotations::APPARMOR_ANNOTATION_PREFIX;
use model::containers::{ContainerRef, SpecRef, all_containers, spec_of};
use model::k8s::{Pod, PodSecurityContext, SELinuxOptions, SeccompProfile, SecurityContext};
use model::observation::NamespaceMode;
use model::request::{
    ContainerSecurity, ImageObservation, Namespaces, RunAs, SandboxSecurity, SecurityProfile, SelinuxLabel,
    SupplementalGroupsPolicy, UserNamespace,
};
use model::{ContainerId, ContainerKind};

use super::{ConfigError, PodFacts, describe};

/// Security of the pod's sandbox. It always runs with the runtime's default seccomp profile.
///
/// # Errors
/// The required user namespace is missing.
pub fn sandbox_security(pod: &Pod, facts: &PodFacts) -> Result<SandboxSecurity, ConfigError> {
    let context = spec_of(pod).security_context.as_ref();
    Ok(SandboxSecurity {
        namespaces: namespaces(pod, facts)?,
        selinux: context.and_then(|c| c.se_linux_options.as_ref()).map(selinux_label),
        run_as_user: context.and_then(|c| c.run_as_user),
        run_as_group: context.and_then(|c| c.run_as_group),
        supplemental_groups: supplemental_groups(context, facts),
        supplemental_groups_policy: groups_policy(context),
        privileged: all_containers(pod).any(|c| is_privileged(&c)),
        seccomp: Some(SecurityProfile::RuntimeDefault),
    })
}

/// Security of one container: its own settings, else the pod's, else the node's.
///
/// # Errors
/// The image's user violates `runAsNonRoot`, a profile is incomplete, or the required user namespace is missing.
pub fn container_security(
    pod: &Pod,
    container: &ContainerRef<'_>,
    image: &ImageObservation,
    target: Option<&ContainerId>,
    node: &NodeFacts,
    facts: &PodFacts,
) -> Result<ContainerSecurity, ConfigError> {
    let own = container.security_context();
    let of_pod = spec_of(pod).security_context.as_ref();
    verify_non_root(pod, container, image)?;
    let privileged = is_privileged(container);
    let capabilities = own.and_then(|c| c.capabilities.as_ref());
    let selinux = own.and_then(|c| c.se_linux_options.as_ref());
    let (masked_paths, readonly_paths) = proc_paths(own, &node.thermal_throttle_paths);
    Ok(ContainerSecurity {
        namespaces: container_namespaces(pod, container, target, facts)?,
        add_capabilities: capabilities.and_then(|c| c.add.clone()).unwrap_or_default(),
        drop_capabilities: capabilities.and_then(|c| c.drop.clone()).unwrap_or_default(),
        privileged,
        run_as: run_as(own, of_pod, image),
        supplemental_groups: supplemental_groups(of_pod, facts),
        supplemental_groups_policy: groups_policy(of_pod),
        read_only_rootfs: own.and_then(|c| c.read_only_root_filesystem).unwrap_or(false),
        no_new_privs: own.and_then(|c| c.allow_privilege_escalation).is_some_and(|allowed| !allowed),
        masked_paths,
        readonly_paths,
        selinux: selinux.or_else(|| of_pod.and_then(|c| c.se_linux_options.as_ref())).map(selinux_label),
        seccomp: Some(seccomp_profile(own, of_pod, node)?),
        apparmor: apparmor_profile(pod, container)?,
    })
}

/// The user of the image; root if the image sets none.
fn image_user(image: &ImageObservation) -> (Option<i64>, &str) {
    match image.uid {
        Some(uid) => (Some(uid), ""),
        None if image.username.is_empty() => (Some(0), ""),
        None => (None, &image.username),
    }
}

fn run_as(
    own: Option<&SecurityContext>,
    of_pod: Option<&PodSecurityContext>,
    image: &ImageObservation,
) -> RunAs {
    let gid = own.and_then(|c| c.run_as_group).or_else(|| of_pod.and_then(|c| c.run_as_group));
    match run_as_user(own, of_pod) {
        Some(uid) => RunAs { uid: Some(uid), username: String::new(), gid },
        None => {
            let (uid, username) = image_user(image);
            RunAs { uid, username: username.to_owned(), gid }
        }
    }
}

fn run_as_user(own: Option<&SecurityContext>, of_pod: Option<&PodSecurityContext>) -> Option<i64> {
    own.and_then(|c| c.run_as_user).or_else(|| of_pod.and_then(|c| c.run_as_user))
}

/// `runAsNonRoot` is checked before the container starts, as far as numeric IDs allow.
fn verify_non_root(
    pod: &Pod,
    container: &ContainerRef<'_>,
    image: &ImageObservation,
) -> Result<(), ConfigError> {
    let (own, of_pod) = (container.security_context(), spec_of(pod).security_context.as_ref());
    let wanted =
        own.and_then(|c| c.run_as_non_root).or_else(|| of_pod.and_then(|c| c.run_as_non_root)) == Some(true);
    if !wanted {
        return Ok(());
    }
    let (pod_text, name) = (describe(pod), container.name().to_owned());
    match (run_as_user(own, of_pod), image_user(image)) {
        (Some(0), _) => Err(ConfigError::RunAsRoot { pod: pod_text, container: name }),
        (None, (Some(0), _)) => Err(ConfigError::ImageRunsAsRoot { pod: pod_text, container: name }),
        (None, (None, user)) => {
            Err(ConfigError::ImageUserByName { user: user.to_owned(), pod: pod_text, container: name })
        }
        (Some(_), _) | (None, (Some(_), _)) => Ok(()),
    }
}

fn is_privileged(container: &ContainerRef<'_>) -> bool {
    container.security_context().and_then(|c| c.privileged).unwrap_or(false)
}

fn supplemental_groups(context: Option<&PodSecurityContext>, facts: &PodFacts) -> Vec<i64> {
    let fs_group = context.and_then(|c| c.fs_group);
    let of_spec = context.and_then(|c| c.supplemental_groups.as_deref()).unwrap_or_default();
    fs_group
        .into_iter()
        .chain(of_spec.iter().copied())
        .chain(facts.extra_supplemental_groups.clone())
        .collect()
}

fn groups_policy(context: Option<&PodSecurityContext>) -> SupplementalGroupsPolicy {
    match context.and_then(|c| c.supplemental_groups_policy.as_deref()) {
        Some("Strict") => SupplementalGroupsPolicy::Strict,
        _ => SupplementalGroupsPolicy::Merge,
    }
}

fn selinux_label(options: &SELinuxOptions) -> SelinuxLabel {
    SelinuxLabel {
        user: options.user.clone().unwrap_or_default(),
        role: options.role.clone().unwrap_or_default(),
        kind: options.type_.clone().unwrap_or_default(),
        level: options.level.clone().unwrap_or_default(),
    }
}

/// The namespace modes of the pod's containers.
fn namespaces(pod: &Pod, facts: &PodFacts) -> Result<Namespaces, ConfigError> {
    let spec = spec_of(pod);
    let node_or_pod = |on_node: Option<bool>| match on_node {
        Some(true) => NamespaceMode::Node,
        Some(false) | None => NamespaceMode::Pod,
    };
    let pid = match (spec.host_pid, spec.share_process_namespace) {
        (Some(true), _) => NamespaceMode::Node,
        (_, Some(true)) => NamespaceMode::Pod,
        _ => NamespaceMode::Container,
    };
    let user = match (spec.host_users, &facts.user_namespace) {
        (None | Some(true), _) => UserNamespace::Node,
        (Some(false), Some(ids)) => UserNamespace::Pod { uids: ids.uids.clone(), gids: ids.gids.clone() },
        (Some(false), None) => return Err(ConfigError::NoUserNamespace { pod: describe(pod) }),
    };
    Ok(Namespaces { network: node_or_pod(spec.host_network), pid, ipc: node_or_pod(spec.host_ipc), user })
}

/// As the pod's, except that an ephemeral container may share the process namespace of its target.
fn container_namespaces(
    pod: &Pod,
    container: &ContainerRef<'_>,
    target: Option<&ContainerId>,
    facts: &PodFacts,
) -> Result<Namespaces, ConfigError> {
    let mut namespaces = namespaces(pod, facts)?;
    let wants_target = match (container.kind, container.spec) {
        (ContainerKind::Ephemeral, SpecRef::Ephemeral(c)) => {
            c.target_container_name.as_deref().is_some_and(|name| !name.is_empty())
        }
        (
            ContainerKind::Init | ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral,
            SpecRef::Full(_) | SpecRef::Ephemeral(_),
        ) => false,
    };
    if let Some(id) = target.filter(|_| wants_target && namespaces.pid == NamespaceMode::Container) {
        namespaces.pid = model::request::target(id.clone());
    }
    Ok(namespaces)
}

const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The masked and the read-only paths of `/proc` and `/sys`.
fn proc_paths(context: Option<&SecurityContext>, thermal_throttle: &[String]) -> (Vec<String>, Vec<String>) {
    if context.and_then(|c| c.proc_mount.as_deref()) == Some("Unmasked") {
        return (Vec::new(), Vec::new());
    }
    let masked =
        MASKED_PATHS.iter().map(|path| (*path).to_owned()).chain(thermal_throttle.iter().cloned()).collect();
    (masked, READONLY_PATHS.iter().map(|path| (*path).to_owned()).collect())
}

fn seccomp_profile(
    own: Option<&SecurityContext>,
    of_pod: Option<&PodSecurityContext>,
    node: &NodeFacts,
) -> Result<SecurityProfile, ConfigError> {
    let chosen = own
        .and_then(|c| c.seccomp_profile.as_ref())
        .or_else(|| of_pod.and_then(|c| c.seccomp_profile.as_ref()));
    let Some(SeccompProfile { type_, localhost_profile }) = chosen else {
        let default = if node.config.seccomp_default { "RuntimeDefault" } else { "Unconfined" };
        return profile("seccompProfile", default, None);
    };
    let on_disk = localhost_profile.as_deref().filter(|path| !path.is_empty()).map(|path| {
        // A name with a leading slash is still relative to the directory.
        Path::new(&node.seccomp_dir).join(path.trim_start_matches('/')).to_string_lossy().into_owned()
    });
    profile("seccompProfile", type_, on_disk)
}

/// Container field, then pod field, then the deprecated annotation.
fn apparmor_profile(pod: &Pod, container: &ContainerRef<'_>) -> Result<Option<SecurityProfile>, ConfigError> {
    let own = container.security_context().and_then(|c| c.app_armor_profile.as_ref());
    let of_pod = spec_of(pod).security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref());
    if let Some(chosen) = own.or(of_pod) {
        let name = chosen.localhost_profile.clone().filter(|name| !name.is_empty());
        return profile("appArmorProfile", &chosen.type_, name).map(Some);
    }
    let annotations = pod.metadata.annotations.as_ref();
    let key = format!("{APPARMOR_ANNOTATION_PREFIX}{}", container.name());
    match annotations.and_then(|all| all.get(&key)).map(String::as_str) {
        None | Some("") => Ok(None),
        Some("runtime/default") => Ok(Some(SecurityProfile::RuntimeDefault)),
        Some("unconfined") => Ok(Some(SecurityProfile::Unconfined)),
        Some(other) => match other.strip_prefix("localhost/") {
            Some(name) => Ok(Some(SecurityProfile::Localhost(name.to_owned()))),
            None => Err(ConfigError::UnknownProfile { kind: "appArmorProfile", value: other.to_owned() }),
        },
    }
}

fn profile(
    kind: &'static str,
    type_: &str,
    localhost: Option<String>,
) -> Result<SecurityProfile, ConfigError> {
    match (type_, localhost) {
        ("RuntimeDefault", _) => Ok(SecurityProfile::RuntimeDefault),
        ("Unconfined", _) => Ok(SecurityProfile::Unconfined),
        ("Localhost", Some(name)) => Ok(SecurityProfile::Localhost(name)),
        ("Localhost", None) => Err(ConfigError::NoLocalhostProfile { kind }),
        (other, _) => Err(ConfigError::UnknownProfile { kind, value: other.to_owned() }),
    }
}
