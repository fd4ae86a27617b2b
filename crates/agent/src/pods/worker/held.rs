//! Objects that a worker keeps packed between its turns and unpacks once for all that a turn does with them.

use std::sync::{Arc, OnceLock};

use model::k8s::{Pod, PodStatus};
use model::{KeptPod, KeptStatus};

/// An object that can be unpacked.
pub(super) trait Unpack {
    type Object;

    fn unpack(&self) -> Arc<Self::Object>;
}

impl Unpack for KeptPod {
    type Object = Pod;

    fn unpack(&self) -> Arc<Pod> {
        self.get()
    }
}

impl Unpack for KeptStatus {
    type Object = PodStatus;

    fn unpack(&self) -> Arc<PodStatus> {
        self.get()
    }
}

/// An object that the worker has, or has not got yet.
pub(super) struct Held<K: Unpack> {
    kept: Option<K>,
    unpacked: OnceLock<Arc<K::Object>>,
}

impl<K: Unpack> Default for Held<K> {
    fn default() -> Self {
        Self::new(None)
    }
}

impl<K: Unpack> Held<K> {
    pub(super) const fn new(kept: Option<K>) -> Self {
        Self { kept, unpacked: OnceLock::new() }
    }

    pub(super) const fn kept(&self) -> Option<&K> {
        self.kept.as_ref()
    }

    /// Returns the one before.
    pub(super) fn set(&mut self, kept: Option<K>) -> Option<K> {
        std::mem::replace(self, Self::new(kept)).kept
    }

    pub(super) fn get(&self) -> Option<Arc<K::Object>> {
        let kept = self.kept.as_ref()?;
        Some(self.unpacked.get_or_init(|| kept.unpack()).clone())
    }

    /// A turn is over.
    pub(super) fn pack(&mut self) {
        self.unpacked = OnceLock::new();
    }
}
