//! What the node as a whole knows of its runtime: asked every five seconds, published for all.
//!
//! Readiness comes from the runtime's own status and the relist, never from a single pod: a pod that cannot be
//! inspected is named in the message and leaves the node ready.

use std::sync::Arc;
use std::time::Duration;

use model::MonoTime;
use ports::runtime::{RuntimeStatus, RuntimeVersion};
use ports::{Clock, Runtime};
use tokio::sync::watch;

use crate::pleg::{PlegHandle, RELIST_THRESHOLD};

const PERIOD: Duration = Duration::from_secs(5);
/// A runtime that has not answered for this long is down.
const RUNTIME_DOWN_AFTER: Duration = Duration::from_secs(30);

/// The runtime as last seen.
#[derive(Clone, Debug, Default)]
pub struct NodeView {
    pub version: RuntimeVersion,
    pub status: RuntimeStatus,
    /// Last time the runtime said that it is ready; `None` before the first.
    pub last_ready: Option<MonoTime>,
    /// Why the last question was not answered.
    pub error: Option<String>,
}

impl NodeView {
    /// Why the pod network cannot be used, if so.
    #[must_use]
    pub fn network_problem(&self) -> Option<String> {
        let network = &self.status.network_ready;
        if self.last_ready.is_some() && network.status {
            return None;
        }
        if self.last_ready.is_none() {
            return Some("container runtime status check may not have completed yet".to_owned());
        }
        Some(format!(
            "container runtime network not ready: NetworkReady=false reason:{} message:{}",
            network.reason, network.message
        ))
    }

    /// Everything that keeps the node from being ready, in the words of its condition; empty when it is.
    #[must_use]
    pub fn problems(&self, pleg: &PlegHandle, now: MonoTime) -> Vec<String> {
        let mut problems = Vec::new();
        match self.last_ready {
            None => problems.push("container runtime status check may not have completed yet".to_owned()),
            Some(at) if now.saturating_since(at) > RUNTIME_DOWN_AFTER => {
                let why = self.error.as_deref().unwrap_or(&self.status.runtime_ready.message);
                problems.push(format!("container runtime is down: {why}"));
            }
            Some(_) => {}
        }
        let relist_age = pleg.last_relist().map_or(now.since_start(), |at| now.saturating_since(at));
        if relist_age > RELIST_THRESHOLD {
            problems.push(format!(
                "PLEG is not healthy: pleg was last seen active {relist_age:.0?} ago; threshold is 3m0s"
            ));
        }
        if self.last_ready.is_some() {
            problems.extend(self.network_problem());
        }
        problems
    }
}

/// Asks the runtime now and every five seconds. Runs until dropped.
pub async fn watch_runtime(runtime: Arc<dyn Runtime>, clock: Clock, view: watch::Sender<NodeView>) {
    let mut is_ready_logged = None;
    loop {
        let answer = runtime.status().await;
        let is_unknown = view.borrow().version.version.is_empty();
        let version = if is_unknown { runtime.version().await.ok() } else { None };
        let now = clock.mono();
        view.send_modify(|view| {
            if let Some(version) = version {
                view.version = version;
            }
            match answer {
                Ok(status) => {
                    view.error = None;
                    if status.runtime_ready.status {
                        view.last_ready = Some(now);
                    }
                    view.status = status;
                }
                Err(error) => {
                    view.error = Some(error.to_string());
                    // It may come back as another version.
                    view.version =
                        RuntimeVersion { name: view.version.name.clone(), ..RuntimeVersion::default() };
                }
            }
        });
        log_change(&view.borrow(), &mut is_ready_logged);
        clock.sleep_until(now + PERIOD).await;
    }
}

fn log_change(view: &NodeView, is_ready_logged: &mut Option<bool>) {
    let is_ready = view.error.is_none() && view.status.runtime_ready.status;
    if *is_ready_logged == Some(is_ready) {
        return;
    }
    *is_ready_logged = Some(is_ready);
    if is_ready {
        tracing::info!(
            name = view.version.name,
            version = view.version.version,
            "Container runtime is ready"
        );
    } else {
        let why = view.error.as_deref().unwrap_or(&view.status.runtime_ready.message);
        tracing::error!(why, "Container runtime is not ready");
    }
}
