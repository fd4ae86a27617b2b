//! Whether a container or sandbox can be streamed to, and the URL for it. Serves no stream.

use model::request::LinuxResources;
use model::{ContainerId, ContainerState, SandboxId};
use ports::runtime::RuntimeResult;

use super::{Method, Moment, State};

/// Reserved port: no server listens there.
pub(super) const CLOSED_PORT: &str = "http://127.0.0.1:1";

impl State {
    /// An error unless the container runs.
    pub(in crate::fake) fn running(
        &self,
        method: Method,
        id: &ContainerId,
        now: Moment,
    ) -> RuntimeResult<()> {
        match self.find(method, id)?.state(now) {
            ContainerState::Running => Ok(()),
            state @ (ContainerState::Created | ContainerState::Exited | ContainerState::Unknown) => {
                Err(method.failed(format!("container is in {state:?} state")))
            }
        }
    }

    /// An error unless there is a URL for the container.
    pub(in crate::fake) fn streamable(
        &self,
        method: Method,
        id: &ContainerId,
        now: Moment,
    ) -> RuntimeResult<()> {
        // CRI-O checks whether the container runs when the URL is used.
        if self.is_crio { self.find(method, id).map(drop) } else { self.running(method, id, now) }
    }

    /// An error unless the sandbox is ready.
    pub(in crate::fake) fn ready(&self, method: Method, id: &SandboxId) -> RuntimeResult<()> {
        if self.is_crio {
            return Ok(());
        }
        match self.sandboxes.get(id) {
            Some(sandbox) if sandbox.ready => Ok(()),
            Some(_) => Err(method.failed("sandbox container is not running")),
            None => Err(method.not_found(format!("sandbox {id}: not found"))),
        }
    }

    /// A separate URL for every request, because it works only once.
    pub(in crate::fake) fn stream_url(&mut self, verb: &str) -> String {
        let token = self.next_serial();
        format!("{}/{verb}/{token:08}", self.streaming)
    }

    pub(in crate::fake) fn update_sandbox_resources(
        &mut self,
        id: &SandboxId,
        overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> RuntimeResult<()> {
        let method = Method::UpdatePodSandboxResources;
        let not_found = || method.not_found(format!("sandbox {id}: not found"));
        let sandbox = self.sandboxes.get_mut(id).ok_or_else(not_found)?;
        sandbox.resources = (overhead.cloned(), Some(resources.clone()));
        Ok(())
    }
}
