//! Iterates over the containers of a pod spec, with their kind.

use std::collections::BTreeMap;
use std::fmt;

use crate::k8s::{Container, EphemeralContainer, Pod, PodSpec};

/// The kind of a container, which determines when it starts, whether it restarts and in which order it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKind {
    /// Runs to completion before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: starts in line, then stays next to the main containers.
    Sidecar,
    Regular,
    /// Added to a running pod for debugging; never restarted.
    Ephemeral,
}

impl ContainerKind {
    /// Listed under `spec.initContainers`.
    #[must_use]
    pub const fn is_init_list(self) -> bool {
        matches!(self, Self::Init | Self::Sidecar)
    }
}

/// One container of a pod spec.
#[derive(Clone, Copy, Debug)]
pub struct ContainerRef<'a> {
    pub kind: ContainerKind,
    /// Position within its own list (`initContainers`, `containers` or `ephemeralContainers`).
    pub index: usize,
    pub spec: SpecRef<'a>,
}

/// Ephemeral containers have their own API type; this enum gives uniform access to both.
#[derive(Clone, Copy, Debug)]
pub enum SpecRef<'a> {
    Full(&'a Container),
    Ephemeral(&'a EphemeralContainer),
}

/// Reads a field that both API types have.
macro_rules! both {
    ($self:ident, $field:ident) => {
        match $self.spec {
            SpecRef::Full(c) => &c.$field,
            SpecRef::Ephemeral(c) => &c.$field,
        }
    };
}

impl<'a> ContainerRef<'a> {
    #[must_use]
    pub fn name(&self) -> &'a str {
        both!(self, name)
    }

    #[must_use]
    pub fn image(&self) -> &'a str {
        both!(self, image).as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn image_pull_policy(&self) -> Option<&'a str> {
        both!(self, image_pull_policy).as_deref()
    }

    #[must_use]
    pub fn command(&self) -> &'a [String] {
        both!(self, command).as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn args(&self) -> &'a [String] {
        both!(self, args).as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn env(&self) -> &'a [crate::k8s::EnvVar] {
        both!(self, env).as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn env_from(&self) -> &'a [crate::k8s::EnvFromSource] {
        both!(self, env_from).as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn ports(&self) -> &'a [crate::k8s::ContainerPort] {
        both!(self, ports).as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn volume_mounts(&self) -> &'a [crate::k8s::VolumeMount] {
        both!(self, volume_mounts).as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn volume_devices(&self) -> &'a [crate::k8s::VolumeDevice] {
        both!(self, volume_devices).as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn resources(&self) -> Option<&'a crate::k8s::ResourceRequirements> {
        both!(self, resources).as_ref()
    }

    #[must_use]
    pub fn security_context(&self) -> Option<&'a crate::k8s::SecurityContext> {
        both!(self, security_context).as_ref()
    }

    #[must_use]
    pub fn lifecycle(&self) -> Option<&'a crate::k8s::Lifecycle> {
        both!(self, lifecycle).as_ref()
    }

    #[must_use]
    pub fn working_dir(&self) -> &'a str {
        both!(self, working_dir).as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn stdin(&self) -> bool {
        both!(self, stdin).unwrap_or(false)
    }

    #[must_use]
    pub fn stdin_once(&self) -> bool {
        both!(self, stdin_once).unwrap_or(false)
    }

    #[must_use]
    pub fn tty(&self) -> bool {
        both!(self, tty).unwrap_or(false)
    }

    #[must_use]
    pub fn termination_message_path(&self) -> &'a str {
        both!(self, termination_message_path).as_deref().unwrap_or("/dev/termination-log")
    }

    #[must_use]
    pub fn termination_message_policy(&self) -> &'a str {
        both!(self, termination_message_policy).as_deref().unwrap_or("File")
    }

    /// Only regular and init containers have probes; the API rejects them on ephemeral ones.
    #[must_use]
    pub fn liveness_probe(&self) -> Option<&'a crate::k8s::Probe> {
        self.full().and_then(|c| c.liveness_probe.as_ref())
    }

    #[must_use]
    pub fn readiness_probe(&self) -> Option<&'a crate::k8s::Probe> {
        self.full().and_then(|c| c.readiness_probe.as_ref())
    }

    #[must_use]
    pub fn startup_probe(&self) -> Option<&'a crate::k8s::Probe> {
        self.full().and_then(|c| c.startup_probe.as_ref())
    }

    /// The container's own `restartPolicy`, which overrides the pod's.
    #[must_use]
    pub fn restart_policy(&self) -> Option<&'a str> {
        self.full().and_then(|c| c.restart_policy.as_deref())
    }

    #[must_use]
    pub fn restart_policy_rules(&self) -> &'a [crate::k8s::ContainerRestartRule] {
        self.full().and_then(|c| c.restart_policy_rules.as_deref()).unwrap_or_default()
    }

    #[must_use]
    pub fn resize_policy(&self) -> &'a [crate::k8s::ContainerResizePolicy] {
        self.full().and_then(|c| c.resize_policy.as_deref()).unwrap_or_default()
    }

    #[must_use]
    pub fn full(&self) -> Option<&'a Container> {
        match self.spec {
            SpecRef::Full(c) => Some(c),
            SpecRef::Ephemeral(_) => None,
        }
    }
}

impl fmt::Display for ContainerRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const EMPTY_SPEC: &PodSpec = &PodSpec {
    active_deadline_seconds: None,
    affinity: None,
    automount_service_account_token: None,
    containers: Vec::new(),
    dns_config: None,
    dns_policy: None,
    enable_service_links: None,
    ephemeral_containers: None,
    host_aliases: None,
    host_ipc: None,
    host_network: None,
    host_pid: None,
    host_users: None,
    hostname: None,
    hostname_override: None,
    image_pull_secrets: None,
    init_containers: None,
    node_name: None,
    node_selector: None,
    os: None,
    overhead: None,
    preemption_policy: None,
    priority: None,
    priority_class_name: None,
    readiness_gates: None,
    resource_claims: None,
    resources: None,
    restart_policy: None,
    runtime_class_name: None,
    scheduler_name: None,
    scheduling_gates: None,
    scheduling_group: None,
    security_context: None,
    service_account: None,
    service_account_name: None,
    set_hostname_as_fqdn: None,
    share_process_namespace: None,
    subdomain: None,
    termination_grace_period_seconds: None,
    tolerations: None,
    topology_spread_constraints: None,
    volumes: None,
};

/// The spec of a pod; without one, a spec without containers.
#[must_use]
pub fn spec_of(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap_or(EMPTY_SPEC)
}

/// `spec.initContainers` in order: init containers and sidecars.
pub fn init_containers(pod: &Pod) -> impl DoubleEndedIterator<Item = ContainerRef<'_>> + Clone {
    spec_of(pod).init_containers.as_deref().unwrap_or_default().iter().enumerate().map(|(index, c)| {
        let is_sidecar = c.restart_policy.as_deref() == Some("Always");
        let kind = if is_sidecar { ContainerKind::Sidecar } else { ContainerKind::Init };
        ContainerRef { kind, index, spec: SpecRef::Full(c) }
    })
}

/// `spec.containers` in order.
pub fn regular_containers(pod: &Pod) -> impl DoubleEndedIterator<Item = ContainerRef<'_>> + Clone {
    spec_of(pod).containers.iter().enumerate().map(|(index, c)| ContainerRef {
        kind: ContainerKind::Regular,
        index,
        spec: SpecRef::Full(c),
    })
}

/// `spec.ephemeralContainers` in order.
pub fn ephemeral_containers(pod: &Pod) -> impl DoubleEndedIterator<Item = ContainerRef<'_>> + Clone {
    spec_of(pod)
        .ephemeral_containers
        .as_deref()
        .unwrap_or_default()
        .iter()
        .enumerate()
        .map(|(index, c)| ContainerRef { kind: ContainerKind::Ephemeral, index, spec: SpecRef::Ephemeral(c) })
}

/// Every container: the init list, the regular ones, the ephemeral ones.
pub fn all_containers(pod: &Pod) -> impl DoubleEndedIterator<Item = ContainerRef<'_>> + Clone {
    init_containers(pod).chain(regular_containers(pod)).chain(ephemeral_containers(pod))
}

/// The containers of a pod by name, for more than one search.
#[derive(Clone, Debug)]
pub struct ContainersByName<'a>(BTreeMap<&'a str, ContainerRef<'a>>);

impl<'a> ContainersByName<'a> {
    #[must_use]
    pub fn of(pod: &'a Pod) -> Self {
        // As in a search, of several containers with one name the first counts.
        Self(all_containers(pod).rev().map(|container| (container.name(), container)).collect())
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<ContainerRef<'a>> {
        self.0.get(name).copied()
    }
}

/// The container of that name; names are unique across all three lists. A loop over names uses [`ContainersByName`].
#[must_use]
pub fn find_container<'a>(pod: &'a Pod, name: &str) -> Option<ContainerRef<'a>> {
    all_containers(pod).find(|c| c.name() == name)
}
