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

use crate::engine::Engine;
use crate::metrics::CgroupWork;
use crate::volumes::chain;

/// From one try to remove a cgroup to the next, doubled each time: a second in all.
const FIRST_PAUSE: Duration = Duration::from_millis(8);
const TRIES: u32 = 8;

impl Engine {
    /// The names of cgroups once all of them can be made; `None` where pods have none of their own. Waits for the
    /// runtime, which says which driver it uses; without it no pod can run either.
    pub(crate) async fn cgroup_names(&self) -> Option<Arc<CgroupNames>> {
        if !self.settings.cgroups.per_qos {
            return None;
        }
        let mut names = self.cgroup_names.clone();
        // Nobody says the names any more only when the process ends.
        let known = names.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }
}

/// Makes the pod's cgroup, with its limits; returns its name for the runtime, empty where pods have none.
pub(crate) async fn ensure(engine: &Engine, pod: &Pod) -> Result<String, String> {
    let Some(names) = engine.cgroup_names().await else { return Ok(String::new()) };
    let cgroup = names.pod(QosClass::of(pod), &PodRef::of(pod).uid);
    let numbers = compute_pod_numbers(pod, &engine.settings.cgroups.pods);
    let made = engine.apply_cgroup(&cgroup, &numbers, CgroupWork::Create).await;
    made.map_err(|error| format!("failed to create container for {cgroup} : {}", chain(&error)))?;
    Ok(cgroup.path.into())
}

/// How the cgroup of a pod that runs is: whether it is there, and, if all of it is asked for, whether it says what it
/// should. What is not known is as it should be: no pod is made again for a look that failed.
pub(crate) async fn state(engine: &Engine, pod: &Pod, with_numbers: bool) -> Option<CgroupState> {
    let names = engine.cgroup_names.borrow().clone()?;
    let cgroup = names.pod(QosClass::of(pod), &PodRef::of(pod).uid);
    let settings = match with_numbers {
        true => engine.cgroup_settings(&compute_pod_numbers(pod, &engine.settings.cgroups.pods)),
        false => CgroupSettings::default(),
    };
    match engine.cgroups.compare(&cgroup, &settings).await {
        Ok(state) => Some(state),
        Err(error) => {
            tracing::warn!(%cgroup, err = chain(&error), "Failed to read pod cgroup");
            None
        }
    }
}

/// Ends what the pod's containers left behind: what still runs there belongs to nobody.
pub(crate) async fn kill_leftovers(engine: &Engine, uid: &PodUid) {
    for cgroup in places_of(engine, uid) {
        if let Err(error) = engine.cgroups.kill(&cgroup).await {
            tracing::warn!(%cgroup, err = chain(&error), "Failed to kill remaining processes of the pod");
        }
    }
}

/// Takes the pod's cgroup away. Returns whether it is gone; where it is not, somebody inside does not die, and a later
/// look tries again.
pub(crate) async fn remove(engine: &Engine, uid: &PodUid) -> bool {
    let began = engine.clock.mono();
    let mut is_gone = true;
    for cgroup in places_of(engine, uid) {
        is_gone &= remove_one(engine, &cgroup).await;
    }
    engine.metrics.cgroup_work(CgroupWork::Destroy, engine.clock.mono().saturating_since(began));
    is_gone
}

async fn remove_one(engine: &Engine, cgroup: &CgroupPath) -> bool {
    let mut pause = FIRST_PAUSE;
    let mut inside = Vec::new();
    for _ in 0..TRIES {
        match engine.cgroups.remove(cgroup).await {
            Ok(CgroupRemoval::Gone) => return true,
            Ok(CgroupRemoval::Busy { pids }) => inside = pids,
            Err(error) => {
                tracing::warn!(%cgroup, err = chain(&error), "Failed to remove pod cgroup");
                return false;
            }
        }
        engine.clock.sleep_until(engine.clock.mono() + pause).await;
        pause *= 2;
        // Who is killed may have had the time to start somebody else.
        let _ = engine.cgroups.kill(cgroup).await;
    }
    tracing::warn!(%cgroup, ?inside, "Processes of the pod do not exit, keeping its cgroup until they have");
    false
}

/// Nothing is made before the names are known, so nothing is missed.
fn places_of(engine: &Engine, uid: &PodUid) -> Vec<CgroupPath> {
    let names = engine.cgroup_names.borrow();
    names.as_ref().map(|names| names.every_place_of(uid).to_vec()).unwrap_or_default()
}

/// The pods that have a cgroup, whoever made it.
pub(crate) async fn all(engine: &Engine) -> Vec<PodUid> {
    let Some(names) = engine.cgroup_names.borrow().clone() else { return Vec::new() };
    let mut found = Vec::new();
    for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
        let children = engine.cgroups.children(&names.qos_cgroup(class)).await;
        found.extend(children.iter().filter_map(|name| kubelet_core::cgroup::name::pod_of(name)));
    }
    found
}
