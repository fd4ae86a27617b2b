//! What this node remembers of volumes that may grow, while pods use them. What is done when is decided in
//! `volumes_core::csi::expansion`.

use std::collections::BTreeMap;

use model::k8s::PersistentVolumeClaim;
use parking_lot::Mutex;
use volumes_core::csi::expansion::Known;
use volumes_core::csi::staging::StagedVolume;

/// What is known of volumes that pods use.
#[derive(Debug, Default)]
pub struct Expansions(Mutex<BTreeMap<StagedVolume, Known>>);

impl Expansions {
    pub(crate) fn known(&self, volume: &StagedVolume, claim: &PersistentVolumeClaim) -> Known {
        *self.0.lock().entry(volume.clone()).or_insert_with(|| Known::of(claim))
    }

    pub(crate) fn change(&self, volume: &StagedVolume, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.0.lock().get_mut(volume) {
            change(known);
        }
    }

    /// Forgets the other volumes.
    pub(crate) fn retain(&self, is_used: impl Fn(&StagedVolume) -> bool) {
        self.0.lock().retain(|volume, _| is_used(volume));
    }
}
