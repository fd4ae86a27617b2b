//! A pod's own cgroup: made before its sandbox, gone after it. The pod's worker is the only one who calls this.
//!
//! Owns nothing: the trees are the truth, and what is there is taken over. Never waits long for a process that will not
//! end: it stays behind with its cgroup, no new pod waits for it, and the sync loop's scan finds both later.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::cgroup::{CgroupNames, compute_pod_numbers};
use model::cgroup::{CgroupPath, CgroupSettings, CgroupState};
use model::k8s::Pod;
use model::{PodRef, PodUid, QosClass};
use ports::cgroups::CgroupRemoval;
use tokio::sync::watch;

use crate::context::Context;
use crate::error_chain::chain;
use crate::metrics::CgroupWork;

/// From one try to remove a cgroup to the next, doubled each time: a second in all.
const FIRST_PAUSE: Duration = Duration::from_millis(8);
const TRIES: u32 = 8;

/// Pods' cgroups; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct PodCgroups {
    pub(crate) ctx: Arc<Context>,
    /// `None` until pods can have cgroups, and where they have none.
    pub(crate) names: watch::Receiver<Option<Arc<CgroupNames>>>,
}

impl PodCgroups {
    /// The names of cgroups once all of them can be made; `None` where pods have none of their own. Waits for the
    /// runtime, which says which driver it uses; without it no pod can run either.
    async fn names(&self) -> Option<Arc<CgroupNames>> {
        if !self.ctx.settings.cgroups.per_qos {
            return None;
        }
        let mut names = self.names.clone();
        // The sender goes away only when the process ends.
        let known = names.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }

    /// Makes the pod's cgroup, with its limits; returns its name for the runtime, empty where pods have none.
    pub(crate) async fn ensure(&self, pod: &Pod) -> Result<String, String> {
        let Some(names) = self.names().await else { return Ok(String::new()) };
        let cgroup = names.pod(QosClass::of(pod), &PodRef::of(pod).uid);
        let numbers = compute_pod_numbers(pod, &self.ctx.settings.cgroups.pods);
        let made = self.ctx.apply_cgroup(&cgroup, &numbers, CgroupWork::Create).await;
        made.map_err(|error| format!("failed to create container for {cgroup} : {}", chain(&error)))?;
        Ok(cgroup.path.into())
    }

    /// How the cgroup of a pod that runs is: whether it is there, and, if all of it is asked for, whether it says what it
    /// should. What is not known is as it should be: no pod is made again for a look that failed.
    pub(crate) async fn state(&self, pod: &Pod, with_numbers: bool) -> Option<CgroupState> {
        let names = self.names.borrow().clone()?;
        let cgroup = names.pod(QosClass::of(pod), &PodRef::of(pod).uid);
        let settings = match with_numbers {
            true => self.ctx.cgroup_settings(&compute_pod_numbers(pod, &self.ctx.settings.cgroups.pods)),
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

    /// Ends what the pod's containers left behind: what still runs there belongs to nobody.
    pub(crate) async fn kill_leftovers(&self, uid: &PodUid) {
        for cgroup in self.all_of(uid) {
            if let Err(error) = self.ctx.cgroups.kill(&cgroup).await {
                tracing::warn!(%cgroup, err = chain(&error), "Failed to kill remaining processes of the pod");
            }
        }
    }

    /// Takes the pod's cgroup away. Returns whether it is gone; where it is not, somebody inside does not die, and a later
    /// look tries again.
    pub(crate) async fn remove(&self, uid: &PodUid) -> bool {
        let began = self.ctx.clock.mono();
        let mut is_gone = true;
        for cgroup in self.all_of(uid) {
            is_gone &= self.remove_one(&cgroup).await;
        }
        self.ctx.metrics.cgroup_work(CgroupWork::Destroy, self.ctx.clock.mono().saturating_since(began));
        is_gone
    }

    async fn remove_one(&self, cgroup: &CgroupPath) -> bool {
        let mut pause = FIRST_PAUSE;
        let mut inside = Vec::new();
        for _ in 0..TRIES {
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
            // Who is killed may have had the time to start somebody else.
            let _ = self.ctx.cgroups.kill(cgroup).await;
        }
        tracing::warn!(%cgroup, ?inside, "Processes of the pod do not exit, keeping its cgroup until they have");
        false
    }

    /// Nothing is made before the names are known, so nothing is missed.
    fn all_of(&self, uid: &PodUid) -> Vec<CgroupPath> {
        let names = self.names.borrow();
        names.as_ref().map(|names| names.every_place_of(uid).to_vec()).unwrap_or_default()
    }

    /// The pods that have a cgroup, whoever made it.
    pub(crate) async fn all(&self) -> Vec<PodUid> {
        let Some(names) = self.names.borrow().clone() else { return Vec::new() };
        let mut found = Vec::new();
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            let children = self.ctx.cgroups.children(&names.qos_cgroup(class)).await;
            found.extend(children.iter().filter_map(|name| kubelet_core::cgroup::name::pod_of(name)));
        }
        found
    }
}
