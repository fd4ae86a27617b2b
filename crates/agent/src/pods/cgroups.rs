//! A pod's own cgroup: created before its sandbox, removed after it. Only the pod's worker uses this.
//!
//! Owns no state: the cgroup tree is the truth, and existing cgroups are reused. Never waits long for a process that does not
//! exit: its cgroup stays, no new pod waits for it, and the sync loop's scan finds it later.

use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use base_agent::error_chain::chain;
use kubelet_core::pods::resize::steps::{PodLimits, limit_files, parse_limits, usage_file};
use model::cgroup::{CgroupPath, CgroupSettings, CgroupState};
use model::k8s::Pod;
use model::{PodUid, QosClass};
use ports::cgroups::CgroupRemoval;
use ports::host::HostResult;
use resources_agent::admissions::Admissions;
use resources_agent::cgroup_values::{apply_cgroup, cgroup_settings, cgroup_version, pod_rules};
use resources_agent::metrics::{CgroupMetrics, CgroupWork};
use resources_core::cgroup::{CgroupNames, CgroupNumbers, compute_pod_numbers};
use tokio::sync::watch;

use crate::cgroup_problems::CgroupProblems;

/// Delay between attempts to remove a cgroup, which doubles each time: one second in total.
const FIRST_PAUSE: Duration = Duration::from_millis(8);
const MAX_ATTEMPTS: u32 = 8;

/// The cgroups of pods; clones share the handles.
#[derive(Clone, Debug)]
pub(crate) struct PodCgroups {
    pub(crate) ctx: Arc<Context>,
    /// `None` until pods can have cgroups, and if they have none.
    pub(crate) names: watch::Receiver<Option<Arc<CgroupNames>>>,
    pub(crate) admissions: Admissions,
    pub(crate) problems: CgroupProblems,
}

fn cgroup_of(names: &CgroupNames, pod: &Pod) -> CgroupPath {
    names.pod(QosClass::of(pod), &PodUid::of(pod))
}

impl PodCgroups {
    /// The names of cgroups, once they can be created; `None` if pods have none of their own. Waits for the cgroup driver,
    /// which the runtime reports; without a runtime no pod can run either.
    async fn names(&self) -> Option<Arc<CgroupNames>> {
        if !self.ctx.config().cgroups_per_qos {
            return None;
        }
        let mut names = self.names.clone();
        // The sender is dropped only when the process ends.
        let known = names.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }

    /// The settings of the pod's cgroup.
    pub(crate) fn numbers(&self, pod: &Pod) -> CgroupNumbers {
        let mut rules = pod_rules(&self.ctx);
        if self.admissions.disable_quota_of(pod) {
            rules.cpu_quota_period = None;
        }
        compute_pod_numbers(pod, &rules)
    }

    /// Creates the pod's cgroup with its limits; returns its name for the runtime, empty if pods have none.
    pub(crate) async fn ensure(&self, pod: &Pod) -> Result<String, String> {
        let Some(names) = self.names().await else { return Ok(String::new()) };
        let cgroup = cgroup_of(&names, pod);
        let numbers = self.numbers(pod);
        let made = apply_cgroup(&self.ctx, &cgroup, &numbers, CgroupWork::Create).await;
        made.map_err(|error| format!("failed to create container for {cgroup} : {}", chain(&error)))?;
        Ok(cgroup.path.into())
    }

    /// The name of the pod's cgroup for the runtime; empty if pods have none.
    pub(crate) async fn name(&self, pod: &Pod) -> String {
        let Some(names) = self.names().await else { return String::new() };
        cgroup_of(&names, pod).path.into()
    }

    /// Where this kubelet looks for the pod's cgroup; `None` if pods have none, or their names are not known yet.
    pub(crate) fn path(&self, pod: &Pod) -> Option<CgroupPath> {
        self.names.borrow().as_deref().map(|names| cgroup_of(names, pod))
    }

    /// The pod has a cgroup where this kubelet looks for it.
    pub(crate) async fn exists(&self, uid: &PodUid) -> bool {
        for cgroup in self.all_of(uid) {
            if self.ctx.cgroups.exists(&cgroup).await {
                return true;
            }
        }
        false
    }

    /// The state of a running pod's cgroup: whether it exists and, with `with_numbers`, whether its limits are as desired.
    /// `None` if that cannot be read: a failed read must not cause the pod to be recreated.
    pub(crate) async fn state(&self, pod: &Pod, with_numbers: bool) -> Option<CgroupState> {
        let names = self.names.borrow().clone()?;
        let cgroup = cgroup_of(&names, pod);
        let settings = match with_numbers {
            true => cgroup_settings(&self.ctx, &self.numbers(pod)),
            false => CgroupSettings::default(),
        };
        match self.ctx.cgroups.compare(&cgroup, &settings).await {
            Ok(state) => Some(state),
            Err(error) => {
                tracing::warn!(%cgroup, err = chain(&error), "Failed to read pod cgroup");
                None
            }
        }
    }

    /// The limits of the pod's cgroup as they are to be, and as they are; `None` if pods have no cgroups of their own.
    pub(crate) async fn limits(&self, pod: &Pod) -> Result<Option<(CgroupNumbers, PodLimits)>, String> {
        let Some(names) = self.names().await else { return Ok(None) };
        let cgroup = cgroup_of(&names, pod);
        let version = cgroup_version(&self.ctx);
        let texts = self.ctx.cgroups.read(&cgroup, &limit_files(version)).await;
        let texts = texts.map_err(|error| format!("failed to read cgroup {cgroup}: {}", chain(&error)))?;
        let desired = self.numbers(pod);
        Ok(Some((desired, parse_limits(version, &texts))))
    }

    /// The bytes of memory that the pod uses, if they are known.
    pub(crate) async fn memory_use(&self, pod: &Pod) -> Option<u64> {
        let names = self.names.borrow().clone()?;
        let cgroup = cgroup_of(&names, pod);
        let texts = self.ctx.cgroups.read(&cgroup, &[usage_file(cgroup_version(&self.ctx))]).await.ok()?;
        texts.first()?.as_ref()?.trim().parse().ok()
    }

    /// Sets these limits of the pod's cgroup, and leaves the others.
    pub(crate) async fn set(&self, pod: &Pod, numbers: &CgroupNumbers) -> HostResult<()> {
        let Some(names) = self.names().await else { return Ok(()) };
        let cgroup = cgroup_of(&names, pod);
        apply_cgroup(&self.ctx, &cgroup, numbers, CgroupWork::Update).await
    }

    /// Kills processes that the pod's containers left behind.
    pub(crate) async fn kill_leftovers(&self, uid: &PodUid) {
        for cgroup in self.all_of(uid) {
            if let Err(error) = self.ctx.cgroups.kill(&cgroup).await {
                tracing::warn!(%cgroup, err = chain(&error), "Failed to kill remaining processes of the pod");
            }
        }
    }

    /// Removes the pod's cgroup. Returns whether it is gone; if not, a process in it does not exit, and a later attempt is
    /// made.
    pub(crate) async fn remove(&self, uid: &PodUid) -> bool {
        let began = self.ctx.clock.mono();
        let mut is_gone = true;
        for cgroup in self.all_of(uid) {
            is_gone &= self.remove_one(&cgroup).await;
        }
        self.ctx
            .metrics
            .get::<CgroupMetrics>()
            .worked(CgroupWork::Destroy, self.ctx.clock.mono().saturating_since(began));
        is_gone
    }

    async fn remove_one(&self, cgroup: &CgroupPath) -> bool {
        let mut pause = FIRST_PAUSE;
        let mut inside = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            match self.ctx.cgroups.remove(cgroup).await {
                Ok(CgroupRemoval::Gone) => return true,
                Ok(CgroupRemoval::Busy { pids }) => inside = pids,
                Err(error) => {
                    tracing::warn!(%cgroup, err = chain(&error), "Failed to remove pod cgroup");
                    return false;
                }
            }
            self.ctx.clock.sleep_until(self.ctx.clock.mono() + pause).await;
            pause *= 2;
            // A killed process may have started another one before.
            let _ = self.ctx.cgroups.kill(cgroup).await;
        }
        tracing::warn!(%cgroup, ?inside, "Processes of the pod do not exit, keeping its cgroup until they do");
        false
    }

    /// No cgroup exists before the names are known, so none is missed.
    fn all_of(&self, uid: &PodUid) -> Vec<CgroupPath> {
        let names = self.names.borrow();
        names.as_ref().map(|names| names.candidates_of(uid).to_vec()).unwrap_or_default()
    }

    /// The pods that have a cgroup.
    pub(crate) async fn all(&self) -> Vec<PodUid> {
        let Some(names) = self.names.borrow().clone() else { return Vec::new() };
        let mut found = Vec::new();
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            let children = self.ctx.cgroups.children(&names.qos_cgroup(class)).await;
            found.extend(children.iter().filter_map(|name| resources_core::cgroup::name::pod_of(name)));
        }
        found
    }
}
