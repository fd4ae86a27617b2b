//! A CSI driver as vendors write them: a gRPC server with the Identity and Node services on a socket in the kubelet's directory,
//! and real mounts. Needs root.
//!
//! A volume is a directory below the driver's state, or a filesystem on a loop device if its context has a `size` in bytes (in memory
//! with `medium: memory`, which every machine can grow while it is mounted), or the loop device itself for block access. Volumes exist as soon as they are asked for, until they are deleted. The state is on disk
//! and in the mount table, so a driver that starts again knows what is mounted.
//!
//! Runs in a thread with its own runtime, so that synchronous tests can use it. Unmounts everything when dropped;
//! [`TestCsiDriver::stop`] ends only the process.

mod act;
mod convert;
mod faults;
mod mounts;
mod server;
mod service;
mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::MonoTime;
use model::csi::{NodeCapabilities, NodeInfo, PublishRequest, StageRequest, VolumeCondition};
use parking_lot::Mutex;
use ports::Clock;
use ports::plugins::PluginInfo;

use crate::PluginRegistrar;
pub use faults::CsiDriverFault;
use faults::Faults;
use server::Server;
use state::Volumes;

use crate::CsiMethod;

/// A running driver.
#[derive(Debug)]
pub struct TestCsiDriver {
    name: String,
    root: PathBuf,
    shared: Arc<Shared>,
    server: Option<Server>,
    registrar: Option<PluginRegistrar>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    volumes: Mutex<Volumes>,
    settings: Mutex<Settings>,
    faults: Faults,
    record: Mutex<Record>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Settings {
    capabilities: NodeCapabilities,
    info: NodeInfo,
}

/// What the kubelet did.
#[derive(Debug, Default)]
struct Record {
    lines: Vec<String>,
    violations: Vec<String>,
    stages: Vec<StageRequest>,
    publishes: Vec<PublishRequest>,
    /// When each call that was answered began and ended.
    times: Vec<(MonoTime, MonoTime)>,
    timeout: Option<String>,
}

impl TestCsiDriver {
    /// Listens on `<root>/plugins/<name>/csi.sock`, and keeps its volumes in the directory `state`. It stages, expands and reports
    /// statistics. The kubelet does not know it until it registers.
    ///
    /// # Panics
    /// The socket cannot be opened.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn serve(root: &Path, name: &str, state: &Path) -> Self {
        let capabilities = NodeCapabilities {
            stage_unstage_volume: true,
            get_volume_stats: true,
            expand_volume: true,
            ..NodeCapabilities::default()
        };
        let info = NodeInfo { node_id: "node-1".to_owned(), ..NodeInfo::default() };
        let shared = Shared {
            name: name.to_owned(),
            volumes: Mutex::new(Volumes::open(state).expect("a directory for the state")),
            settings: Mutex::new(Settings { capabilities, info }),
            faults: Faults::default(),
            record: Mutex::default(),
            clock: Clock::system(),
        };
        let mut driver = Self {
            name: name.to_owned(),
            root: root.to_owned(),
            shared: Arc::new(shared),
            server: None,
            registrar: None,
        };
        driver.start();
        driver
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.root.join("plugins").join(&self.name).join("csi.sock")
    }

    /// Registers as node-driver-registrar does, at `<root>/plugins_registry/<name>-reg.sock`.
    ///
    /// # Panics
    /// The socket cannot be opened.
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn register(&mut self) -> &PluginRegistrar {
        let registry = self.root.join("plugins_registry");
        std::fs::create_dir_all(&registry).expect("the registration directory");
        let info = PluginInfo {
            kind: "CSIPlugin".to_owned(),
            name: self.name.clone(),
            endpoint: self.socket().display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        };
        let socket = registry.join(format!("{}-reg.sock", self.name));
        self.registrar.insert(PluginRegistrar::serve(&socket, info))
    }

    /// Removes the registration socket.
    pub fn unregister(&mut self) {
        self.registrar = None;
    }

    // ---- what happens from outside ----

    /// Ends as if it was killed: connections break, the socket stays, and so do the mounts.
    pub fn stop(&mut self) -> &mut Self {
        self.server = None;
        self
    }

    /// Starts again on a new socket in place of the old one; ends the process first if it still runs.
    ///
    /// # Panics
    /// The socket cannot be opened.
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn start(&mut self) -> &mut Self {
        self.stop();
        self.shared.volumes.lock().load().expect("the state");
        self.server = Some(Server::start(&self.socket(), &self.shared).expect("a socket"));
        self
    }

    pub fn set_capabilities(&self, change: impl FnOnce(&mut NodeCapabilities)) -> &Self {
        change(&mut self.shared.settings.lock().capabilities);
        self
    }

    pub fn set_info(&self, change: impl FnOnce(&mut NodeInfo)) -> &Self {
        change(&mut self.shared.settings.lock().info);
        self
    }

    /// The volume is deleted on the storage: calls that need it fail with `NotFound`.
    pub fn delete_volume(&self, volume_id: &str) -> &Self {
        self.shared.volumes.lock().delete(volume_id);
        self
    }

    /// What a driver with the capability reports about the volume; normal at first.
    pub fn set_condition(&self, volume_id: &str, condition: VolumeCondition) -> &Self {
        self.shared.volumes.lock().conditions.insert(volume_id.to_owned(), condition);
        self
    }

    /// Refuses to expand a volume to more than this.
    pub fn set_max_bytes(&self, bytes: u64) -> &Self {
        self.shared.volumes.lock().max_bytes = bytes;
        self
    }

    /// The fault applies to the next call of that method. Faults queue up.
    pub fn fault(&self, method: CsiMethod, fault: CsiDriverFault) -> &Self {
        self.shared.faults.push(method, fault);
        self
    }

    /// The fault applies to every call of that method for which no other is queued, until it is `None` again.
    pub fn fault_always(&self, method: CsiMethod, fault: Option<CsiDriverFault>) -> &Self {
        self.shared.faults.set_always(method, fault);
        self
    }

    /// From now on this many of 100 calls that change a volume meet a fault, which the seed chooses: an error or a lost
    /// connection, before or after the act.
    pub fn fault_by_seed(&self, seed: u64, percent: u64) -> &Self {
        self.shared.faults.set_random(seed, percent);
        self
    }

    /// Removes all faults that have not been applied yet. Calls that hang go on hanging.
    pub fn clear_faults(&self) -> &Self {
        self.shared.faults.clear();
        self
    }

    /// Carries out every call that hangs, whether its caller still waits or not, and answers it.
    pub fn release(&self) -> &Self {
        self.shared.faults.release();
        self
    }

    // ---- inspection ----

    /// The number of calls that hang, with or without a caller that waits.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.shared.faults.held()
    }

    /// Every call that changes something, in order: `NodePublishVolume vol-1`.
    #[must_use]
    pub fn call_lines(&self) -> Vec<String> {
        self.shared.record.lock().lines.clone()
    }

    #[must_use]
    pub fn stage_requests(&self) -> Vec<StageRequest> {
        self.shared.record.lock().stages.clone()
    }

    #[must_use]
    pub fn publish_requests(&self) -> Vec<PublishRequest> {
        self.shared.record.lock().publishes.clone()
    }

    /// When each call began and ended, in the order of their answers; calls that hang are not among them.
    #[must_use]
    pub fn call_times(&self) -> Vec<(MonoTime, MonoTime)> {
        self.shared.record.lock().times.clone()
    }

    /// What the kubelet must never do and did, with the driver's answer. Empty if it follows the specification.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shared.record.lock().violations.clone()
    }

    /// The deadline of the last call, in the format of gRPC: `120000m`.
    #[must_use]
    pub fn last_timeout(&self) -> Option<String> {
        self.shared.record.lock().timeout.clone()
    }

    /// The volumes that are staged, and where.
    #[must_use]
    pub fn staged(&self) -> Vec<(String, PathBuf)> {
        self.shared.volumes.lock().staged()
    }

    /// The volumes that are published, and where.
    #[must_use]
    pub fn published(&self) -> Vec<(String, PathBuf)> {
        self.shared.volumes.lock().published()
    }

    /// The directory with the files of a volume without a size.
    #[must_use]
    pub fn directory(&self, volume_id: &str) -> PathBuf {
        self.shared.volumes.lock().directory(volume_id)
    }
}

impl Drop for TestCsiDriver {
    fn drop(&mut self) {
        self.registrar = None;
        self.stop();
        self.shared.volumes.lock().unmount_all();
        let _ = std::fs::remove_file(self.socket());
    }
}
