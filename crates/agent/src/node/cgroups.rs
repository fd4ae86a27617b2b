//! The node's cgroups: the cgroup of all pods, the QoS cgroups below it, and the reserved cgroups of the system and of
//! Kubernetes.
//!
//! Owns those cgroups; the cgroup of a pod belongs to its worker. If a cgroup cannot be created the kubelet exits, because
//! pods without limits could exhaust the node. Limits that cannot be set yet, because pods use more, are retried.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use kubelet_core::node::compute_capacity;
use kubelet_core::node::enforcement::{Enforcement, ReservedCgroup, compute_enforcement};
use model::cgroup::CgroupPath;
use model::cpu_set::CpuSet;
use model::{CgroupDriver, MonoTime, QosClass};
use resources_agent::admissions::Admissions;
use resources_agent::cgroup_values::{apply_cgroup, qos_cgroup_rules};
use resources_agent::metrics::CgroupWork;
use resources_core::cgroup::{CgroupNames, CgroupNumbers, QosCgroupNumbers, compute_qos_cgroups};
use resources_core::quantities::Quantities;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::node::machine::machine_facts;

/// Interval at which external changes are reverted and failed updates retried.
const PERIOD: Duration = Duration::from_secs(60);
/// Pods start and end in bursts, so changes are gathered this long before the QoS cgroups are updated.
const BATCH_DELAY: Duration = Duration::from_millis(200);

const ENFORCED: &str = "NodeAllocatableEnforced";
const NOT_ENFORCED: &str = "FailedNodeAllocatableEnforcement";

#[derive(Debug)]
pub(crate) struct NodeCgroups {
    pub(crate) ctx: Arc<Context>,
    pub(crate) admissions: Admissions,
    /// `None` until detected. The names of cgroups depend on it.
    pub(crate) driver: watch::Receiver<Option<CgroupDriver>>,
    /// Set once pods can have cgroups.
    pub(crate) names: watch::Sender<Option<Arc<CgroupNames>>>,
    /// Cancelled if the cgroups cannot be created.
    pub(crate) must_exit: CancellationToken,
}

impl NodeCgroups {
    /// Runs until dropped.
    pub(crate) async fn run(self) {
        let Ok(driver) = self.driver().await else { return };
        let names = Arc::new(CgroupNames::new(driver, &self.ctx.config().cgroup_root));
        let enforcement = enforcement(&self.ctx).await;
        let started = async {
            self.make(&names, driver).await?;
            self.names.send_replace(Some(names.clone()));
            self.enforce_reserved(&names, &enforcement).await
        };
        if let Err(why) = started.await {
            tracing::error!("{why}");
            return self.must_exit.cancel();
        }
        self.keep(&names, &enforcement).await;
    }

    async fn driver(&self) -> Result<CgroupDriver, watch::error::RecvError> {
        let mut driver = self.driver.clone();
        loop {
            if let Some(driver) = *driver.borrow_and_update() {
                return Ok(driver);
            }
            driver.changed().await?;
        }
    }

    /// Creates the cgroup of all pods and the QoS cgroups.
    async fn make(&self, names: &CgroupNames, driver: CgroupDriver) -> Result<(), String> {
        if let Some(root) = names.root()
            && !self.ctx.cgroups.exists(&root).await
        {
            return Err(format!("invalid configuration: cgroup-root {root} doesn't exist"));
        }
        let numbers =
            CgroupNumbers { allowed_cpus: self.allowed_cpus(driver).await, ..CgroupNumbers::default() };
        self.apply(&names.all_pods(), &numbers, CgroupWork::Create).await?;
        self.apply_qos_cgroups(names, &self.qos(), CgroupWork::Create).await
    }

    /// All CPUs, so that systemd leaves the controller `cpuset` to the slice when it reads its units again. With the static policy
    /// containers have sets of CPUs, which do that.
    async fn allowed_cpus(&self, driver: CgroupDriver) -> Option<CpuSet> {
        let is_systemd = driver == CgroupDriver::Systemd && self.ctx.node_facts.cgroup_v2;
        if !is_systemd || self.ctx.config().cpu_manager_policy != "none" {
            return None;
        }
        match self.ctx.machine.topology().await {
            Ok(topology) => Some(topology.cpus()),
            Err(error) => {
                tracing::warn!(
                    err = chain(&error),
                    "Failed to read the CPUs of the machine for the slice of all pods"
                );
                None
            }
        }
    }

    /// Sets the limits of the reserved cgroups, which must exist; otherwise the configuration is invalid.
    async fn enforce_reserved(&self, names: &CgroupNames, plan: &Enforcement) -> Result<(), String> {
        for ReservedCgroup { of, cgroup, numbers } in &plan.reserved {
            let path = names.existing(cgroup);
            let applied = match self.ctx.cgroups.exists(&path).await {
                true => self.apply(&path, numbers, CgroupWork::Update).await,
                false => Err(format!("cgroup {path} doesn't exist")),
            };
            let recorder = &self.ctx.recorder;
            if let Err(why) = applied {
                let message = format!("Failed to enforce {of} Reserved Cgroup Limits on {cgroup:?}: {why}");
                recorder.node_warning(NOT_ENFORCED, message.clone());
                return Err(message);
            }
            let of = of.to_lowercase();
            recorder.node_normal(ENFORCED, format!("Updated limits on {of} reserved cgroup {cgroup}"));
        }
        Ok(())
    }

    /// Updates the limits when pods change, and reverts external changes.
    async fn keep(&self, names: &CgroupNames, enforcement: &Enforcement) {
        let clock = self.ctx.clock;
        let mut changes = self.admissions.changes();
        let (mut known, mut is_enforced) = (QosCgroupNumbers::default(), false);
        let mut repair_at = MonoTime::ZERO;
        loop {
            let is_due = clock.mono() >= repair_at;
            let qos = self.qos();
            if is_due {
                is_enforced = self.enforce_on_pods(names, enforcement, is_enforced).await;
                repair_at = clock.mono() + PERIOD;
            }
            if is_due || qos != known {
                match self.apply_qos_cgroups(names, &qos, CgroupWork::Update).await {
                    Ok(()) => known = qos,
                    Err(why) => tracing::warn!(err = why, "Failed to update QoS cgroups"),
                }
            }
            tokio::select! {
                Ok(()) = changes.changed() => clock.sleep_until(clock.mono() + BATCH_DELAY).await,
                () = clock.sleep_until(repair_at) => {}
            }
        }
    }

    /// Sets the limits of the cgroup of all pods, and returns whether that succeeded. Records an event when they are set for
    /// the first time, and for each failure.
    async fn enforce_on_pods(&self, names: &CgroupNames, plan: &Enforcement, was_enforced: bool) -> bool {
        let cgroup = names.all_pods();
        let recorder = &self.ctx.recorder;
        match self.apply(&cgroup, &plan.all_pods, CgroupWork::Update).await {
            Ok(()) => {
                if !was_enforced {
                    recorder.node_normal(ENFORCED, "Updated Node Allocatable limit across pods");
                    // Tasks that wait for the cgroup also find its limits set.
                    self.names.send_modify(|_| {});
                }
                true
            }
            Err(why) => {
                let message = format!("Failed to update Node Allocatable Limits {:?}: {why}", &*cgroup.path);
                recorder.node_warning(NOT_ENFORCED, message);
                false
            }
        }
    }

    fn qos(&self) -> QosCgroupNumbers {
        self.admissions
            .read(|allocations| compute_qos_cgroups(allocations.held(), &qos_cgroup_rules(&self.ctx)))
    }

    async fn apply_qos_cgroups(
        &self,
        names: &CgroupNames,
        qos: &QosCgroupNumbers,
        work: CgroupWork,
    ) -> Result<(), String> {
        if qos.all_pods != CgroupNumbers::default() {
            self.apply(&names.all_pods(), &qos.all_pods, work).await?;
        }
        self.apply(&names.qos_cgroup(QosClass::Burstable), &qos.burstable, work).await?;
        self.apply(&names.qos_cgroup(QosClass::BestEffort), &qos.best_effort, work).await
    }

    async fn apply(
        &self,
        cgroup: &CgroupPath,
        numbers: &CgroupNumbers,
        work: CgroupWork,
    ) -> Result<(), String> {
        apply_cgroup(&self.ctx, cgroup, numbers, work).await.map_err(|error| chain(&error))
    }
}

/// Allocatable and reserved resources.
async fn enforcement(ctx: &Context) -> Enforcement {
    let config = ctx.config();
    let machine = ctx.machine.info();
    let sizes = machine.hugepage_sizes.clone();
    let max_processes = max_processes(ctx).await;
    let (no_devices, no_more) = (BTreeMap::new(), Quantities::new());
    let machine = machine_facts(machine, None);
    let capacity = compute_capacity(config, &machine, &no_devices, &no_more);
    compute_enforcement(config, &capacity, max_processes, &sizes)
}

/// The kernel's limit of processes: the smaller of `pid_max` and `threads-max`.
async fn max_processes(ctx: &Context) -> Option<i64> {
    let files = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    let texts = ctx.files.read_each(files.map(Into::into).to_vec()).await;
    texts.into_iter().flatten().filter_map(|text| text.trim().parse().ok()).min()
}
