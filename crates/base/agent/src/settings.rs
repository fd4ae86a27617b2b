//! The settings of the agent that are not fields of the `KubeletConfiguration`: flags, gates, facts about this machine, and
//! what the binary parsed. The configuration itself is read through [`crate::context::Context::config`], and from nowhere else.

use std::net::IpAddr;
use std::path::PathBuf;

use config::{CredentialProviders, FeatureGates, NodeFlags};
use jiff::tz::TimeZone;
use model::BuildInfo;
use model::cgroup::CgroupPath;

/// Plain data, fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct Settings {
    pub node_name: String,
    /// What runs here.
    pub build: BuildInfo,
    pub flags: NodeFlags,
    /// For the metric of each gate; decisions read [`config::Features`].
    pub gates: FeatureGates,
    pub credential_providers: CredentialProviders,
    pub paths: Paths,
    /// The node's addresses, the primary one first.
    pub host_ips: Vec<IpAddr>,
    /// Directories that are searched for `config.json` and `.dockercfg`.
    pub credential_dirs: Vec<PathBuf>,
    /// The machine's time zone: rotated logs are named by local time.
    pub time_zone: TimeZone,
    pub processes: ProcessSettings,
    /// How many of the latest events the recorder keeps. The kubelet itself reads none of them.
    pub kept_events: usize,
}

#[derive(Clone, Debug)]
pub struct Paths {
    /// `/var/lib/kubelet`.
    pub root: PathBuf,
    /// `/var/log/containers`.
    pub container_links: PathBuf,
    /// `/var/log`.
    pub system_logs: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroup_root: PathBuf,
    /// `/dev/kmsg`.
    pub kernel_log: PathBuf,
    /// The configuration file in which logind finds how long it has to delay a shutdown.
    pub logind_drop_in: PathBuf,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            root: "/var/lib/kubelet".into(),
            container_links: "/var/log/containers".into(),
            system_logs: "/var/log".into(),
            cgroup_root: "/sys/fs/cgroup".into(),
            kernel_log: "/dev/kmsg".into(),
            logind_drop_in: "/etc/systemd/logind.conf.d/99-kubelet.conf".into(),
        }
    }
}

impl Paths {
    #[must_use]
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    #[must_use]
    pub fn pod(&self, uid: &model::PodUid) -> PathBuf {
        self.pods().join(uid.as_str())
    }

    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }
}

/// Processes of the node that belong to no pod, and the cgroups for them; `None`: they stay where they are.
#[derive(Clone, Debug, Default)]
pub struct ProcessSettings {
    pub own_pid: u32,
    /// `kubeletCgroups`
    pub kubelet: Option<CgroupPath>,
    /// `--runtime-cgroups`
    pub runtime: Option<CgroupPath>,
    /// `systemCgroups`: for the processes in the root cgroup.
    pub system: Option<CgroupPath>,
    /// The socket of the container runtime.
    pub runtime_socket: PathBuf,
}
