//! The Node object: registers it and keeps its status up to date.
//!
//! Owns the status updates under way and the last one that was sent. Whether and what to send is decided in
//! `kubelet_core::node`.

use std::sync::Arc;
use std::time::Duration;

use api_agent::reflector::StoreReader;
use api_core::retry::compute_retry_delay;
use base_agent::context::Context;
use base_agent::retry_delay::RetryDelay;
use base_core::object_version::ObjectVersion;
use kubelet_core::node::{
    NodeOutcome, StatusReport, StatusReports, compute_initial_node, compute_node_patch, compute_node_status,
    compute_pod_cidr_update, compute_reconciliation, compute_status_report, status_differs,
};
use model::MonoTime;
use model::k8s::{Node, NodeAddress};
use ports::cluster::{Cluster, ClusterError, ClusterResult, Part, Patch};
use ports::runtime::RuntimeResult;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::facts::{GatheredFacts, NodeSources, finished_soon};
use crate::metrics::{NodeStart, PodMetrics};

/// The first delay before registration is retried, which doubles each time, and its maximum.
const REGISTER_RETRY: Duration = Duration::from_millis(100);
const MAX_REGISTER_RETRY: Duration = Duration::from_secs(7);
/// Attempts for one status update; then connections are opened again.
const MAX_ATTEMPTS: u32 = 5;
/// The least delay after an update that the API server refused because it is overloaded.
const REFUSED_DELAY: Duration = Duration::from_secs(1);
/// A period is extended by up to this fraction of it, so that nodes do not report at the same time.
const JITTER_PART: u32 = 25;

/// Registers the node and reports its status until dropped.
pub(crate) struct NodeReporter {
    ctx: Arc<Context>,
    sources: NodeSources,
    /// The node's addresses, as it last reported them.
    addresses: watch::Sender<Vec<NodeAddress>>,
    cluster: Arc<dyn Cluster>,
    /// The Node as its watch last showed it.
    seen: StoreReader<Node>,
    /// The Node as the API returned it for our last patch, which the watch shows a little later.
    answer: Option<Arc<Node>>,
    facts: GatheredFacts,
    reports: StatusReports,
    refused_until: Option<MonoTime>,
    /// The pod CIDRs that the runtime accepted last.
    reported_cidr: String,
    /// The update of it under way, if any: at most one.
    cidr_update: JoinSet<(String, RuntimeResult<()>)>,
    was_unschedulable: bool,
    started: Started,
}

/// Times of the start-up of a node that is new to the cluster, for the metrics.
#[derive(Clone, Copy, Debug, Default)]
struct Started {
    registering: Option<MonoTime>,
    made: Option<MonoTime>,
    is_reported: bool,
}

impl NodeReporter {
    pub(crate) async fn new(
        ctx: Arc<Context>,
        sources: NodeSources,
        addresses: watch::Sender<Vec<NodeAddress>>,
        cluster: Arc<dyn Cluster>,
        seen: StoreReader<Node>,
    ) -> Self {
        Self {
            facts: GatheredFacts::new(&ctx).await,
            reports: StatusReports::default(),
            refused_until: None,
            reported_cidr: String::new(),
            cidr_update: JoinSet::new(),
            was_unschedulable: false,
            started: Started::default(),
            ctx,
            sources,
            addresses,
            cluster,
            seen,
            answer: None,
        }
    }

    pub(crate) async fn run(mut self) {
        self.register().await;
        let (mut runtime_view, mut pressure) =
            (self.sources.node.view.clone(), self.sources.node.pressure.clone());
        let mut shutting_down = self.sources.node.shutting_down.clone();
        let mut devices = self.sources.devices.changes();
        let (mut volumes, mut csi_node) =
            (self.sources.volumes_in_use.changes(), self.sources.csi_node.clone());
        let mut next = self.ctx.clock.mono();
        loop {
            self.report().await;
            let now = self.ctx.clock.mono();
            let period = self.ctx.config().node_status_update_frequency.as_std();
            next = next.max(now) + period + self.ctx.rng.up_to(period / JITTER_PART);
            // A change of readiness, of a pressure condition, of devices or of volumes in use is reported at once.
            loop {
                runtime_view.mark_unchanged();
                shutting_down.mark_unchanged();
                devices.mark_unchanged();
                volumes.mark_unchanged();
                csi_node.mark_unchanged();
                // Time alone makes a runtime that does not answer one that is down.
                let problems = self.sources.problems(self.ctx.clock.mono());
                let is_up_to_date = self.facts.problems() == problems
                    && *pressure.borrow_and_update() == self.facts.pressure()
                    && *self.facts.devices() == self.sources.devices.amounts()
                    && *self.facts.volumes_in_use() == self.sources.volumes_in_use.wanted();
                if !is_up_to_date {
                    break;
                }
                tokio::select! {
                    () = self.ctx.clock.sleep_until(next) => break,
                    Ok(()) = runtime_view.changed() => {}
                    Ok(()) = pressure.changed() => {}
                    Ok(()) = shutting_down.changed() => {}
                    Ok(()) = devices.changed() => {}
                    Ok(()) = volumes.changed() => {}
                    Ok(()) = csi_node.changed() => {}
                }
            }
        }
    }

    /// Creates the Node, or updates the existing one; retries until it succeeds.
    async fn register(&mut self) {
        if !self.ctx.config().register_node {
            return;
        }
        self.started.registering = Some(self.ctx.clock.mono());
        let mut retry = RetryDelay::new(REGISTER_RETRY, MAX_REGISTER_RETRY);
        loop {
            self.facts.refresh(&self.ctx, &self.sources).await;
            let delay = retry.take();
            let requested = match self.try_register().await {
                Ok(()) => {
                    return tracing::info!(
                        node = self.ctx.settings.node_name,
                        "Successfully registered node"
                    );
                }
                Err(error) => {
                    tracing::warn!(err = %error, retry = ?delay, "Failed to register node, retrying");
                    error.retry_after()
                }
            };
            let now = self.ctx.clock.mono();
            // What a server asks of many nodes at the same time, they do at different times.
            let random = if requested.is_some() { self.ctx.rng.share() } else { 0.0 };
            self.ctx.clock.sleep_until(now + compute_retry_delay(delay, requested, random)).await;
        }
    }

    async fn try_register(&mut self) -> ClusterResult<()> {
        let initial = compute_initial_node(&self.facts.view(&self.ctx));
        match self.find_or_create(&initial.node).await? {
            None => self.started.made = Some(self.ctx.clock.mono()),
            Some(existing) => {
                // Without a device checkpoint the machine may be another one.
                let is_new = self.sources.devices.are_new();
                if let Some(patch) = compute_reconciliation(&initial.node, &existing, is_new) {
                    self.patch(patch).await?;
                }
            }
        }
        self.export(&initial);
        Ok(())
    }

    /// The existing Node; `None` if it was created now.
    async fn find_or_create(&self, initial: &Node) -> ClusterResult<Option<Node>> {
        match self.cluster.nodes().create("", initial).await {
            Ok(_) => Ok(None),
            Err(ClusterError::AlreadyExists { .. }) => self.get().await.map(Some),
            // A kubelet may be authorized to update its Node but not to create it.
            Err(ClusterError::Forbidden { .. }) if !self.ctx.node_facts.features.get_node_on_exists_only => {
                self.get().await.map(Some)
            }
            Err(error) => Err(error),
        }
    }

    /// One status update: first from the watched Node, after a failure from a read of the API. After a refusal by an overloaded API
    /// server, no further update comes before the time that it asks for.
    async fn report(&mut self) {
        if let Some(until) = self.refused_until.take() {
            self.ctx.clock.sleep_until(until).await;
        }
        self.facts.refresh(&self.ctx, &self.sources).await;
        for attempt in 0..MAX_ATTEMPTS {
            let error = match self.try_report(attempt == 0).await {
                Ok(()) => return,
                Err(error) => error,
            };
            tracing::warn!(err = %error, attempt, "Error updating node status, will retry");
            if let Some(requested) = error.retry_after() {
                let delay = compute_retry_delay(REFUSED_DELAY, Some(requested), self.ctx.rng.share());
                self.refused_until = Some(self.ctx.clock.mono() + delay);
                return;
            }
            if error.is_uncertain() {
                // The server, or a proxy in between, may have closed the connection silently.
                self.cluster.close_connections();
            }
        }
        tracing::error!("Unable to update node status, exceeded {MAX_ATTEMPTS} retries");
    }

    async fn try_report(&mut self, may_use_seen: bool) -> ClusterResult<()> {
        let existing = match self.latest().filter(|_| may_use_seen) {
            Some(node) => node,
            None => Arc::new(self.get().await?),
        };
        self.report_pod_cidr(&existing).await;
        let outcome = compute_node_status(&existing, &self.facts.view(&self.ctx), self.was_unschedulable);
        self.record_addresses(&outcome.node);
        let has_changed = status_differs(&existing, &outcome.node);
        let now = self.ctx.clock.mono();
        let is_due = match compute_status_report(&self.reports, has_changed, now) {
            StatusReport::Send => true,
            StatusReport::Wait { .. } => false,
        };
        let mut in_api = existing.clone();
        if is_due {
            if let Some(patch) = compute_node_patch(&existing, &outcome.node) {
                in_api = Arc::new(self.patch(patch).await?);
                self.answer = Some(in_api.clone());
            }
            let frequency = self.ctx.config().node_status_report_frequency.as_std();
            self.reports.record_sent(has_changed, frequency, self.ctx.rng.share(), now);
        }
        let status = in_api.status.as_ref();
        let volumes = status.and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
        self.sources.volumes_in_use.record_reported(volumes);
        self.record_ready(&outcome.node).await;
        // Changes by other clients are reported although they are not part of the status.
        self.export(&outcome);
        self.was_unschedulable = existing.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        Ok(())
    }

    /// Records how long a new node took to be ready.
    async fn record_ready(&mut self, node: &Node) {
        let Started { registering: Some(registering), made: Some(made), is_reported: false } = self.started
        else {
            return;
        };
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if !conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
            return;
        }
        self.started.is_reported = true;
        let uptime = self.ctx.files.read_each(vec!["/proc/uptime".into()]).await;
        let uptime = uptime.into_iter().flatten().next().unwrap_or_default();
        let uptime: f64 = uptime.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
        let now = self.ctx.clock.mono();
        let power_on = Duration::try_from_secs_f64(uptime).unwrap_or_default();
        self.ctx.metrics.get::<PodMetrics>().node_ready(NodeStart {
            pre_kubelet: power_on.saturating_sub(now.since_start()),
            pre_registration: registering.since_start(),
            registration: made.saturating_since(registering),
            post_registration: now.saturating_since(made),
        });
    }

    /// Publishes the addresses, for serving certificates.
    fn record_addresses(&self, node: &Node) {
        let addresses = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
        self.addresses.send_if_modified(|known| {
            let is_new = *known != addresses;
            *known = addresses;
            is_new
        });
    }

    /// The newest known version of the Node. An answer that the store has caught up with is not kept.
    fn latest(&mut self) -> Option<Arc<Node>> {
        let seen = api_agent::reflector::own_node(&self.seen.borrow())?;
        let version = ObjectVersion::of(&*seen);
        self.answer.take_if(|answer| !ObjectVersion::of(&**answer).is_newer_than(version));
        Some(self.answer.clone().unwrap_or(seen))
    }

    /// Records events about the node, once the API has its status.
    fn export(&self, outcome: &NodeOutcome) {
        if let Some(error) = &outcome.address_error {
            tracing::error!(err = %error, "Failed to determine node addresses");
        }
        for event in &outcome.events {
            if event.is_warning {
                self.ctx.recorder.node_warning(event.reason, event.message.clone());
            } else {
                self.ctx.recorder.node_normal(event.reason, event.message.clone());
            }
        }
    }

    /// Sends the node's pod CIDR to the runtime. A runtime that does not answer delays no status.
    async fn report_pod_cidr(&mut self, node: &Node) {
        if self.cidr_update.is_empty() {
            let Some(cidr) = compute_pod_cidr_update(node, &self.reported_cidr) else { return };
            let runtime = self.ctx.runtime.clone();
            self.cidr_update.spawn(async move {
                let result = runtime.set_pod_cidr(&cidr).await;
                (cidr, result)
            });
        }
        match finished_soon(&mut self.cidr_update, self.ctx.clock).await {
            Some((cidr, Ok(()))) => {
                tracing::info!(cidr, "Updated pod CIDR of the container runtime");
                self.reported_cidr = cidr;
            }
            Some((cidr, Err(error))) => {
                tracing::error!(err = %error, cidr, "Failed to update pod CIDR of the container runtime")
            }
            None => {}
        }
    }

    async fn get(&self) -> ClusterResult<Node> {
        self.cluster.nodes().get("", &self.ctx.settings.node_name).await
    }

    async fn patch(&self, patch: serde_json::Value) -> ClusterResult<Node> {
        let name = &self.ctx.settings.node_name;
        self.cluster.nodes().patch("", name, Part::Status, &Patch::Strategic(patch)).await
    }
}
