//! Carries out the steps of the schedule, and keeps what is desired after them.

use std::collections::{BTreeMap, BTreeSet};

use crate::invariants::DesiredPod;
use crate::pods::{image_of, manifest, resources};
use crate::schedule::{Action, Fault, PodPlan, Source};
use model::k8s::Pod;
use ports::Cluster;
use ports::cluster::{Deletion, Part, Patch};

use crate::run::observe::{config_patch, version_patch};
use crate::run::stand::Stand;
use crate::run::{Outcome, failed};
use harness::api::NAMESPACE;

/// What was requested so far.
#[derive(Debug, Default)]
pub(crate) struct Requested {
    pub(crate) pods: BTreeMap<String, PodPlan>,
    /// Of API pods, by name.
    uids: BTreeMap<String, String>,
    pub(crate) config_version: u32,
    /// Faults that are in force.
    pub(crate) faults: BTreeSet<Fault>,
    /// Requests to the API that wait for the end of an outage, in their order.
    waiting: Vec<Action>,
    /// How many of each action were carried out.
    pub(crate) counts: BTreeMap<&'static str, usize>,
}

impl Requested {
    pub(crate) fn new() -> Self {
        Self { config_version: 1, ..Self::default() }
    }

    pub(crate) fn desired(&self) -> BTreeSet<DesiredPod> {
        let pods = self.uids.iter();
        pods.map(|(name, uid)| DesiredPod { uid: uid.clone(), name: name.clone() }).collect()
    }

    pub(crate) fn must_run(&self) -> bool {
        !self.faults.contains(&Fault::KubeletKilled) && !self.faults.contains(&Fault::KubeletTerminated)
    }

    pub(crate) async fn act(&mut self, stand: &mut Stand, action: Action, seed: u64) -> Outcome<()> {
        match action {
            Action::Begin(fault) => {
                self.faults.insert(fault);
                self.count(fault.name());
                stand.begin(fault, seed).await
            }
            Action::End(fault) => {
                self.faults.remove(&fault);
                stand.end(fault, seed).await?;
                self.catch_up(stand).await
            }
            change @ (Action::Create(_)
            | Action::Edit(_)
            | Action::Resize(_)
            | Action::Delete { .. }
            | Action::ChangeConfigMap { .. }) => {
                if stand.api.is_none() && needs_api(&change) {
                    self.waiting.push(change);
                    return Ok(());
                }
                self.change(stand, change).await
            }
        }
    }

    async fn catch_up(&mut self, stand: &Stand) -> Outcome<()> {
        if stand.api.is_some() {
            for change in std::mem::take(&mut self.waiting) {
                self.change(stand, change).await?;
            }
        }
        Ok(())
    }

    async fn change(&mut self, stand: &Stand, change: Action) -> Outcome<()> {
        match change {
            Action::Create(plan) => {
                self.count("created");
                self.create(stand, plan).await
            }
            Action::Edit(plan) => {
                self.count("edited");
                self.edit(stand, plan).await
            }
            Action::Resize(plan) => {
                self.count("resized");
                stand.resize(&plan.name, &resources(plan.size))?;
                self.pods.insert(plan.name.clone(), plan);
                Ok(())
            }
            Action::Delete { plan, force } => {
                self.count(if force { "deleted by force" } else { "deleted" });
                self.delete(stand, &plan, force).await
            }
            Action::ChangeConfigMap { version } => {
                self.count("changes of the ConfigMap");
                self.config_version = version;
                let (name, patch) = config_patch(version);
                let patched =
                    stand.admin.config_maps().patch(NAMESPACE, name, Part::Whole, &Patch::Merge(patch)).await;
                patched.map(|_| ()).map_err(failed("change a ConfigMap"))
            }
            Action::Begin(_) | Action::End(_) => Ok(()),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    async fn create(&mut self, stand: &Stand, plan: PodPlan) -> Outcome<()> {
        let manifest = manifest(&plan, &stand.surroundings());
        match plan.source {
            Source::Static => stand.node.apply(&plan.name, &manifest)?,
            Source::Api => {
                let pod: Pod = serde_json::from_value(manifest).map_err(failed("make a pod"))?;
                let pod = stand.admin.pods().create(NAMESPACE, &pod).await.map_err(failed("create a pod"))?;
                self.uids.insert(plan.name.clone(), pod.metadata.uid.unwrap_or_default());
            }
        }
        self.pods.insert(plan.name.clone(), plan);
        Ok(())
    }

    async fn edit(&mut self, stand: &Stand, mut plan: PodPlan) -> Outcome<()> {
        // A resize may wait for the end of an outage before this.
        if let Some(current) = self.pods.get(&plan.name) {
            plan.size = current.size;
        }
        match plan.source {
            Source::Static => stand.node.apply(&plan.name, &manifest(&plan, &stand.surroundings()))?,
            Source::Api => {
                let patch = Patch::Strategic(version_patch(plan.version, image_of(plan.version)));
                let patched = stand.admin.pods().patch(NAMESPACE, &plan.name, Part::Whole, &patch).await;
                patched.map_err(failed(format!("edit pod {}", plan.name)))?;
            }
        }
        self.pods.insert(plan.name.clone(), plan);
        Ok(())
    }

    async fn delete(&mut self, stand: &Stand, plan: &PodPlan, force: bool) -> Outcome<()> {
        self.pods.remove(&plan.name);
        match plan.source {
            Source::Static => stand.node.delete(&plan.name),
            Source::Api => {
                self.uids.remove(&plan.name);
                let deletion = Deletion { grace_seconds: force.then_some(0), uid: None };
                let deleted = stand.admin.pods().delete(NAMESPACE, &plan.name, &deletion).await;
                deleted.map_err(failed(format!("delete pod {}", plan.name)))
            }
        }
    }
}

fn needs_api(change: &Action) -> bool {
    match change {
        Action::Create(plan) | Action::Edit(plan) | Action::Resize(plan) | Action::Delete { plan, .. } => {
            plan.source == Source::Api
        }
        Action::ChangeConfigMap { .. } => true,
        Action::Begin(_) | Action::End(_) => false,
    }
}
