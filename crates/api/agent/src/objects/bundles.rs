//! ClusterTrustBundles of projected volumes, watched while some pod has such a volume.
//!
//! Owns one reflector for each requested selection, shared by the pods that request it; it ends with the last of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use base_agent::context::Context;
use model::k8s::TrustBundle;
use parking_lot::Mutex;
use ports::Clock;
use ports::cluster::Selection;
use tokio::sync::watch;
use volumes_core::bundle::{BundleRequirement, MAX_SELECTOR};

use super::ObjectError;
use super::source::{Access, wait_for_sync};
use crate::reflector::{CollectionOf, Reflector, Store, StoreReader};

const KIND: &str = "clustertrustbundle";

/// The bundles of one selection.
#[derive(Debug)]
pub(super) struct Selected {
    /// `None`: it selects nothing, or its selector is too long.
    seen: Option<StoreReader<TrustBundle>>,
}

impl Selected {
    /// In the order of their names.
    pub(crate) async fn get(&self, clock: Clock) -> Result<Vec<Arc<TrustBundle>>, ObjectError> {
        let Some(seen) = &self.seen else { return Ok(Vec::new()) };
        let mut seen = seen.clone();
        wait_for_sync(clock, &mut seen, KIND).await?;
        let objects = seen.borrow().objects.values().cloned().collect();
        Ok(objects)
    }

    pub(crate) fn changes(&self) -> Option<StoreReader<TrustBundle>> {
        self.seen.clone()
    }
}

/// All selections that pods request. Holds weak references; the pods own the selections.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    by_requirement: Mutex<BTreeMap<BundleRequirement, Weak<Selected>>>,
}

impl Bundles {
    pub(crate) fn of(
        &self,
        ctx: &Arc<Context>,
        access: &Access,
        requirement: &BundleRequirement,
    ) -> Arc<Selected> {
        let mut known = self.by_requirement.lock();
        known.retain(|_, selected| selected.strong_count() > 0);
        if let Some(selected) = known.get(requirement).and_then(Weak::upgrade) {
            return selected;
        }
        let seen = selection(requirement).map(|selection| follow(ctx, access, selection));
        let selected = Arc::new(Selected { seen });
        known.insert(requirement.clone(), Arc::downgrade(&selected));
        selected
    }
}

fn selection(requirement: &BundleRequirement) -> Option<Selection> {
    let (fields, labels) = match requirement {
        BundleRequirement::Named(name) => (format!("metadata.name={name}"), None),
        BundleRequirement::Signed { labels: Some(labels), .. } if labels.len() > MAX_SELECTOR => return None,
        BundleRequirement::Signed { signer, labels } => {
            (format!("spec.signerName={signer}"), Some(labels.clone()?).filter(|labels| !labels.is_empty()))
        }
    };
    Some(Selection { namespace: None, fields: Some(fields), labels })
}

/// Starts a reflector of the selection, which ends when its last reader is dropped.
fn follow(ctx: &Arc<Context>, access: &Access, selection: Selection) -> StoreReader<TrustBundle> {
    let (sender, seen) = watch::channel(Store::default());
    let of: CollectionOf<TrustBundle> = |cluster| cluster.trust_bundles();
    let reflector = Reflector::new(ctx, &access.cluster, of, KIND, selection, sender.clone());
    ctx.tasks.spawn_isolated("ClusterTrustBundle reflector", async move {
        tokio::select! {
            () = reflector.run() => {}
            () = sender.closed() => {}
        }
    });
    seen
}
