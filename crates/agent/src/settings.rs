//! What the tasks need to know of the configuration, in typed form. The binary fills it from `config::Resolved`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::{CredentialProviders, KubeletConfiguration};
use jiff::tz::TimeZone;
use kubelet_core::images::access::VerificationPolicy;
use kubelet_core::images::garbage_collection::ImageGcPolicy;
use kubelet_core::node::eviction::threshold::Threshold;
use kubelet_core::node::shutdown::{GroupPeriod, STATE_FILE};
use kubelet_core::resources::cgroup::{PodRules, QosCgroupRules};
use model::CgroupDriver;
use model::cgroup::CgroupPath;

/// All settings of the agent. Plain data, fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct Settings {
    pub node_name: String,
    pub paths: Paths,
    pub sources: SourceSettings,
    pub network: NetworkSettings,
    pub images: ImageSettings,
    pub logs: LogSettings,
    pub collection: CollectionSettings,
    pub containers: ContainerSettings,
    pub measure: MeasureSettings,
    pub eviction: EvictionSettings,
    pub shutdown: ShutdownSettings,
    pub cgroups: CgroupSettings,
    pub processes: ProcessSettings,
    /// `None` for a standalone kubelet.
    pub node: Option<NodeSettings>,
    /// How often a pod is looked at again although nothing is known to have changed (plus at most half of it).
    pub sync_frequency: Duration,
    /// `cgroupDriver`, for a runtime that does not say which one it uses.
    pub cgroup_driver: CgroupDriver,
    /// What is switched on, for who wants to know.
    pub gates: config::FeatureGates,
    /// Deadline of one runtime call; some calls add to it.
    pub request_timeout: Duration,
    /// How many of the latest events the recorder keeps. The kubelet itself reads none of them.
    pub kept_events: usize,
}

#[derive(Clone, Debug)]
pub struct Paths {
    /// `/var/lib/kubelet`.
    pub root: PathBuf,
    /// `/var/log/pods`.
    pub pod_logs: PathBuf,
    /// `/var/log/containers`.
    pub container_links: PathBuf,
    /// `/var/log`.
    pub system_logs: PathBuf,
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

    /// When pods were last ended for the end of the machine.
    #[must_use]
    pub fn shutdown_state(&self) -> PathBuf {
        self.root.join(STATE_FILE)
    }

    #[must_use]
    pub fn seccomp(&self) -> PathBuf {
        self.root.join("seccomp")
    }
}

#[derive(Clone, Debug)]
pub struct SourceSettings {
    pub manifest_path: Option<PathBuf>,
    pub file_check_frequency: Duration,
    pub manifest_url: Option<String>,
    pub manifest_headers: Vec<(String, String)>,
    pub http_check_frequency: Duration,
}

#[derive(Clone, Debug)]
pub struct NetworkSettings {
    pub cluster_domain: String,
    pub cluster_dns: Vec<IpAddr>,
    pub resolv_conf: Option<PathBuf>,
    /// The node's addresses, the primary one first.
    pub host_ips: Vec<IpAddr>,
    /// Where pods of a standalone node get their addresses; `None` where that is the runtime's own affair.
    pub pod_cidr: Option<String>,
    /// The chains that others expect of a node are kept in its firewall.
    pub firewall_chains: bool,
}

#[derive(Clone, Debug)]
pub struct ImageSettings {
    /// Pulls a second, 0 for no limit.
    pub qps: u32,
    pub burst: u32,
    /// How many pulls may run side by side; `None` for no limit.
    pub max_parallel: Option<usize>,
    /// Where `config.json` and `.dockercfg` are looked for.
    pub credential_dirs: Vec<PathBuf>,
    /// Who must show credentials for an image that is there; `None` keeps no records of pulls either.
    pub verification: Option<VerificationPolicy>,
    /// Programs that are asked for credentials, and where they are.
    pub providers: CredentialProviders,
    pub provider_dir: PathBuf,
    /// When images that nobody uses go.
    pub collection: ImageGcPolicy,
}

#[derive(Clone, Debug)]
pub struct LogSettings {
    pub max_size_bytes: u64,
    pub max_files: usize,
    /// So many logs are rotated at the same time.
    pub max_workers: usize,
    pub monitor_interval: Duration,
    /// Of the machine: rotated files are named by local time.
    pub time_zone: TimeZone,
}

#[derive(Clone, Debug)]
pub struct CollectionSettings {
    pub min_age: Duration,
    /// Negative: no limit.
    pub max_per_container: i64,
    /// Negative: no limit.
    pub max_total: i64,
}

/// What the Node object is made from, besides the machine.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    pub config: Arc<KubeletConfiguration>,
    pub flags: Arc<config::NodeFlags>,
}

/// How this node uses cgroups.
#[derive(Clone, Debug)]
pub struct CgroupSettings {
    /// `cgroupsPerQOS`: pods have cgroups of their own, below those of their classes.
    pub per_qos: bool,
    /// `cgroupRoot`: what all that is below.
    pub root: String,
    pub pods: PodRules,
    pub qos: QosCgroupRules,
    /// What is reserved, and enforced.
    pub config: Arc<KubeletConfiguration>,
}

/// Processes of the node that are no pod's, and the cgroups that they belong into; `None`: wherever they are.
#[derive(Clone, Debug, Default)]
pub struct ProcessSettings {
    pub own_pid: u32,
    /// `oomScoreAdj`: our own.
    pub oom_score_adj: i32,
    /// `kubeletCgroups`
    pub kubelet: Option<CgroupPath>,
    /// `--runtime-cgroups`
    pub runtime: Option<CgroupPath>,
    /// `systemCgroups`: for what is in the root of all cgroups.
    pub system: Option<CgroupPath>,
    /// Where the runtime listens.
    pub runtime_socket: PathBuf,
}

/// Where measurements are taken, and how often disks are walked through.
#[derive(Clone, Debug)]
pub struct MeasureSettings {
    /// `/sys/fs/cgroup`.
    pub cgroup_root: PathBuf,
    /// `/dev/kmsg`.
    pub kernel_log: PathBuf,
    /// How old what is known of a pod's volumes may be; `None`: they are not measured.
    pub volume_stats_period: Option<Duration>,
}

impl Default for MeasureSettings {
    fn default() -> Self {
        Self {
            cgroup_root: PathBuf::from("/sys/fs/cgroup"),
            kernel_log: PathBuf::from("/dev/kmsg"),
            volume_stats_period: Some(Duration::from_secs(60)),
        }
    }
}

/// What the node keeps free, and who must go for it.
#[derive(Clone, Debug, Default)]
pub struct EvictionSettings {
    pub thresholds: Vec<Threshold>,
    /// How long the node shows pressure after it was last seen.
    pub transition: Duration,
    /// The most seconds that a pod gets where a soft threshold was passed.
    pub max_pod_grace: i64,
    /// What pods take of the node's disk is limited as they say.
    pub limits_storage: bool,
    /// Images may lie apart from what containers write.
    pub may_split: bool,
    /// The kernel is asked to tell when memory runs short.
    pub by_kernel: bool,
}

/// How pods are ended before the machine is.
#[derive(Clone, Debug)]
pub struct ShutdownSettings {
    /// None: they end with it.
    pub periods: Vec<GroupPeriod>,
    /// When it was is kept, and shown as a metric.
    pub keeps_times: bool,
    /// Where logind is told how long it has to wait.
    pub logind_drop_in: PathBuf,
}

impl Default for ShutdownSettings {
    fn default() -> Self {
        Self {
            periods: Vec::new(),
            keeps_times: true,
            logind_drop_in: PathBuf::from("/etc/systemd/logind.conf.d/99-kubelet.conf"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct ContainerSettings {
    pub back_off_max: Duration,
    pub seccomp_default: bool,
    pub cpu_cfs_quota: bool,
    pub cpu_cfs_quota_period: Duration,
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Size of a pod's own range of user ids.
    pub user_ids_per_pod: u32,
    pub max_pods: u32,
}
