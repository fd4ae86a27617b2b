//! Requests to a container runtime: sandbox and container configurations. `kubelet-core` computes them, `cri` converts them to
//! CRI messages.

use std::collections::BTreeMap;

use crate::env_value::EnvValue;
use crate::ids::{ContainerId, PodRef};
use crate::observation::NamespaceMode;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRequest {
    pub pod: PodRef,
    pub attempt: u32,
    pub hostname: String,
    /// `/var/log/pods/<ns>_<name>_<uid>`.
    pub log_directory: String,
    pub dns: DnsRequest,
    pub port_mappings: Vec<PortMapping>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub cgroup_parent: String,
    pub sysctls: BTreeMap<String, String>,
    pub security: SandboxSecurity,
    /// RuntimeClass overhead; without values if the pod has none.
    pub overhead: Option<LinuxResources>,
    /// Sum of the containers' resources.
    pub resources: Option<LinuxResources>,
    /// The handler of the pod's RuntimeClass; empty means the runtime's default.
    pub runtime_handler: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsRequest {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    pub protocol: Protocol,
    pub container_port: i32,
    pub host_port: i32,
    pub host_ip: String,
}

/// Namespaces of a sandbox or container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    pub network: NamespaceMode,
    pub pid: NamespaceMode,
    pub ipc: NamespaceMode,
    pub user: UserNamespace,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UserNamespace {
    #[default]
    Node,
    Pod {
        uids: Vec<IdMapping>,
        gids: Vec<IdMapping>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMapping {
    pub host_id: u32,
    pub container_id: u32,
    pub length: u32,
}

/// A range of user or group IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdRange {
    pub first: u32,
    pub length: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityProfile {
    RuntimeDefault,
    Unconfined,
    /// A file below `<root>/seccomp` (absolute path), or the name of a loaded AppArmor profile.
    Localhost(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelinuxLabel {
    pub user: String,
    pub role: String,
    pub kind: String,
    pub level: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SupplementalGroupsPolicy {
    #[default]
    Merge,
    Strict,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSecurity {
    pub namespaces: Namespaces,
    pub selinux: Option<SelinuxLabel>,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub supplemental_groups: Vec<i64>,
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    pub privileged: bool,
    pub seccomp: Option<SecurityProfile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRequest {
    pub name: String,
    /// The instance number: equals the restart count.
    pub attempt: u32,
    /// The runtime's reference to the image on this node.
    pub image: String,
    /// The image in the spec.
    pub user_specified_image: String,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: String,
    pub env: Vec<(String, EnvValue)>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    /// CDI devices: `vendor.com/class=device`.
    pub cdi_devices: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Relative to the sandbox's log directory: `<container>/<restart>.log`.
    pub log_path: String,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    pub resources: LinuxResources,
    pub security: ContainerSecurity,
    pub stop_signal: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    pub container_path: String,
    pub host_path: String,
    pub read_only: bool,
    pub recursive_read_only: bool,
    pub selinux_relabel: bool,
    pub propagation: Propagation,
    /// The image of an image volume, instead of a host path.
    pub image: Option<MountedImage>,
    /// The subPath of the image; empty for the whole image.
    pub image_sub_path: String,
}

/// The image of an image volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedImage {
    /// The runtime's reference to it.
    pub reference: String,
    /// As the pod names it: CRI-O checks signatures by this name, and refuses a mount without it.
    pub user_specified_image: String,
    /// Those of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Of the pod's RuntimeClass; empty without the gate `RuntimeClassInImageCriApi`.
    pub runtime_handler: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub container_path: String,
    pub host_path: String,
    /// `r`, `w`, `m` in any combination.
    pub permissions: String,
}

/// Resource limits for the container's cgroup. `None` uses the runtime's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinuxResources {
    pub cpu_shares: Option<i64>,
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<i64>,
    pub memory_limit_bytes: Option<i64>,
    pub memory_swap_limit_bytes: Option<i64>,
    pub oom_score_adj: Option<i64>,
    pub cpuset_cpus: String,
    pub cpuset_mems: String,
    /// Page size (`2MB`, `1GB`, as the kernel names them) to limit in bytes.
    pub hugepage_limits: Vec<(String, u64)>,
    /// Raw cgroup v2 files and values.
    pub unified: BTreeMap<String, String>,
}

/// User and group of the container's first process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunAs {
    pub uid: Option<i64>,
    pub username: String,
    pub gid: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerSecurity {
    pub namespaces: Namespaces,
    pub add_capabilities: Vec<String>,
    pub drop_capabilities: Vec<String>,
    pub privileged: bool,
    pub run_as: RunAs,
    pub supplemental_groups: Vec<i64>,
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    pub read_only_rootfs: bool,
    pub no_new_privs: bool,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    pub selinux: Option<SelinuxLabel>,
    pub seccomp: Option<SecurityProfile>,
    pub apparmor: Option<SecurityProfile>,
}

/// An image to look up, pull or remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageRequest {
    pub image: String,
    /// Those of the pod that needs it.
    pub annotations: BTreeMap<String, String>,
    /// Of the pod's RuntimeClass; empty without the gate `RuntimeClassInImageCriApi`.
    pub runtime_handler: String,
}

/// Registry credentials.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistryAuth {
    pub username: String,
    pub password: String,
    pub auth: String,
    pub server_address: String,
    pub identity_token: String,
    pub registry_token: String,
}

/// Only the user name, without secrets, for logs.
impl std::fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryAuth")
            .field("username", &self.username)
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

/// An image in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageObservation {
    pub id: String,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    pub size_bytes: u64,
    /// The image's numeric user, if it names one by number.
    pub uid: Option<i64>,
    /// The image's user by name, if it names one so.
    pub username: String,
    pub pinned: bool,
    /// The handler that it was pulled for, if the runtime keeps one copy for each.
    pub runtime_handler: String,
}

/// Result of running a command in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecResult {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
}

/// A target for the shared PID namespace of ephemeral containers.
#[must_use]
pub const fn target(container: ContainerId) -> NamespaceMode {
    NamespaceMode::Target(container)
}
