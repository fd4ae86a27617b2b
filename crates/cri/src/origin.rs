//! The sandbox of each container. A listing has it, but a container's status does not; it never changes. The table is bounded
//! by the containers of the node, because every full listing replaces it.

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

    /// Adds the entries of a listing.
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
