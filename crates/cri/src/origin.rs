//! Which sandbox a container belongs to. A container's status does not say so on the wire, its line in a listing does;
//! as a container never moves, what was learned once stays true. Bounded by what the node runs: every listing of the
//! whole node replaces the table.

use std::collections::HashMap;

use model::{ContainerId, SandboxId};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Origins {
    sandbox_of: Mutex<HashMap<ContainerId, SandboxId>>,
}

impl Origins {
    pub(crate) fn get(&self, container: &ContainerId) -> Option<SandboxId> {
        self.sandbox_of.lock().get(container).cloned()
    }

    pub(crate) fn learn(&self, container: ContainerId, sandbox: SandboxId) {
        self.sandbox_of.lock().insert(container, sandbox);
    }

    /// Adds what a listing said.
    pub(crate) fn learn_all(&self, pairs: impl Iterator<Item = (ContainerId, SandboxId)>) {
        self.sandbox_of.lock().extend(pairs);
    }

    /// Forgets all containers but these.
    pub(crate) fn replace(&self, pairs: impl Iterator<Item = (ContainerId, SandboxId)>) {
        let mut table = self.sandbox_of.lock();
        table.clear();
        table.extend(pairs);
    }
}
