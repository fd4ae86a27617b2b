//! Keeps running containers on the CPUs that they should have: the shared pool changes whenever a container gets CPUs of its own.
//!
//! Owns the CPUs that were last set for each container. Which container should have which CPUs is in [`Admissions`]; what to set is
//! decided in `resources_core::cpus`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base_agent::cache::PodCache;
use base_agent::context::Context;
use model::containers::all_containers;
use model::cpu_set::CpuSet;
use model::request::LinuxResources;
use model::{ContainerId, ContainerState, PodUid};
use parking_lot::Mutex;
use resources_core::cpus::{ContainerCpuState, CpuUpdate, compute_cpu_updates};

use crate::admissions::Admissions;

/// A shorter `cpuManagerReconcilePeriod` would keep a CPU busy.
const MIN_PERIOD: Duration = Duration::from_secs(1);

/// A handle; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cpusets {
    /// What was last set. Has no entry for containers of an earlier kubelet until they were set once, and none where that seemed to
    /// fail.
    set: Arc<Mutex<BTreeMap<ContainerId, CpuSet>>>,
}

/// A running container.
struct Running {
    pod: PodUid,
    name: String,
    id: ContainerId,
}

impl Cpusets {
    /// The container was created with these CPUs.
    pub fn record(&self, id: &ContainerId, cpus: &str) {
        if let Ok(cpus) = cpus.parse::<CpuSet>()
            && !cpus.is_empty()
        {
            self.set.lock().insert(id.clone(), cpus);
        }
    }

    fn last_set(&self, id: &ContainerId) -> Option<CpuSet> {
        self.set.lock().get(id).cloned()
    }

    /// Sets the CPUs of all running containers that have others, after each change and each period. Never returns.
    pub async fn keep(self, ctx: Arc<Context>, admissions: Admissions, cache: PodCache) {
        let mut changes = admissions.pin_changes();
        let period = ctx.config().cpu_manager_reconcile_period.as_std().max(MIN_PERIOD);
        loop {
            changes.borrow_and_update();
            self.reconcile(&ctx, &admissions, &cache).await;
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = ctx.clock.sleep_until(ctx.clock.mono() + period) => {}
            }
        }
    }

    async fn reconcile(&self, ctx: &Context, admissions: &Admissions, cache: &PodCache) {
        let running = running_containers(admissions, cache);
        let known: BTreeSet<&ContainerId> = running.iter().map(|container| &container.id).collect();
        self.set.lock().retain(|id, _| known.contains(id));
        for container in &running {
            self.settle(ctx, admissions, &container.pod, &container.name, &container.id).await;
        }
    }

    /// Sets the CPUs of a running container, if they are not those that it should have.
    pub async fn settle(
        &self,
        ctx: &Context,
        admissions: &Admissions,
        pod: &PodUid,
        name: &str,
        id: &ContainerId,
    ) {
        let now = ContainerCpuState::Running { set: self.last_set(id) };
        let updates =
            admissions.read(|table| compute_cpu_updates(&table.pinned().1.cpus, [(pod, name, &now)]));
        for update in updates {
            let CpuUpdate::Set(cpus) = update else { continue };
            let resources = LinuxResources { cpuset_cpus: cpus.to_string(), ..LinuxResources::default() };
            match ctx.runtime.update_container_resources(id, &resources).await {
                Ok(()) => {
                    tracing::info!(podUID = %pod, containerName = name, containerID = %id, cpus = %cpus, "Set CPUs of container");
                    self.set.lock().insert(id.clone(), cpus);
                }
                // It may have taken effect all the same. It is tried again after a period.
                Err(error) => {
                    self.set.lock().remove(id);
                    tracing::warn!(podUID = %pod, containerName = name, containerID = %id, err = %error, "Failed to set CPUs of container");
                }
            }
        }
    }
}

fn running_containers(admissions: &Admissions, cache: &PodCache) -> Vec<Running> {
    let mut running = Vec::new();
    for pod in admissions.admitted() {
        let uid = PodUid::of(&pod);
        let Some(observed) = cache.get(&uid) else { continue };
        for container in all_containers(&pod) {
            let newest = observed.newest(container.name());
            let newest = newest.filter(|newest| newest.state == ContainerState::Running);
            running.extend(newest.map(|newest| Running {
                pod: uid.clone(),
                name: container.name().to_owned(),
                id: newest.id.clone(),
            }));
        }
    }
    running
}
