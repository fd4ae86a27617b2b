//! What the HTTP server may ask of the agent.

use std::time::Duration;

use async_trait::async_trait;
use model::k8s::Pod;

/// One problem with a manifest, as `/debug/manifests` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestProblem {
    /// `file:/etc/kubernetes/manifests/web.yaml`, `url:http://…`.
    pub origin: String,
    /// Complete, with line and column where known.
    pub message: String,
}

/// A named health check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFailure {
    pub name: &'static str,
    pub message: String,
}

#[async_trait]
pub trait NodeApi: Send + Sync + std::fmt::Debug {
    /// The pods this node is asked to run, each with its current status.
    fn pods(&self) -> Vec<Pod>;
    /// The pods the runtime runs, made up from what it reports.
    async fn running_pods(&self) -> Result<Vec<Pod>, String>;
    /// What is wrong with manifests right now.
    fn manifest_problems(&self) -> Vec<ManifestProblem>;
    /// How long ago the sync loop last went round, and how long is too long.
    fn sync_loop_age(&self) -> (Duration, Duration);
    /// Prometheus text of the agent's own counters.
    fn metrics(&self) -> String;
}
