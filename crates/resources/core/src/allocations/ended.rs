//! Which containers of a pod have ended for good: a result of `kubelet_core::pods::ended`, kept with the allocation of the pod.

use std::collections::BTreeSet;

/// Which containers of a pod will not run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// These containers.
    Containers(BTreeSet<Box<str>>),
    /// All of them: none runs, and none will.
    All,
}

impl Ended {
    pub const NOTHING: Self = Self::Containers(BTreeSet::new());

    #[must_use]
    pub fn has(&self, container: &str) -> bool {
        match self {
            Self::Containers(names) => names.contains(container),
            Self::All => true,
        }
    }
}

impl Default for Ended {
    fn default() -> Self {
        Self::NOTHING
    }
}
