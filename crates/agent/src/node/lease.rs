//! The node lease: the heartbeat by which the cluster knows that the node is alive. The next call is decided in
//! `kubelet_core::node::lease`.

use std::sync::Arc;

use jiff::Timestamp;
use kubelet_core::node::lease::{LEASE_NAMESPACE, LeaseAnswer, LeaseStep, NodeLease};
use model::k8s::{Lease, Node};
use ports::cluster::{Cluster, ClusterError, ClusterResult};
use tokio::sync::watch;

use api_agent::reflector::StoreReader;
use base_agent::context::Context;

use crate::node_view::LeaseView;

/// Renews the lease until dropped; then the lease expires.
pub(crate) async fn keep(
    ctx: Arc<Context>,
    cluster: Arc<dyn Cluster>,
    seen: StoreReader<Node>,
    seconds: i32,
    view: watch::Sender<LeaseView>,
) {
    let name = &ctx.settings.node_name;
    let mut lease = NodeLease::new(name, seconds);
    loop {
        let uid = api_agent::reflector::own_node(&seen.borrow()).and_then(|node| node.metadata.uid.clone());
        let step = lease.next(uid.as_deref(), ctx.clock.now());
        let answer = match &step {
            LeaseStep::Wait { until } => {
                ctx.clock.sleep_until(*until).await;
                continue;
            }
            LeaseStep::Get => cluster.leases().get(LEASE_NAMESPACE, name).await,
            LeaseStep::Create(wanted) => cluster.leases().create(LEASE_NAMESPACE, wanted).await,
            LeaseStep::Update(wanted) => cluster.leases().update(LEASE_NAMESPACE, wanted).await,
        };
        show(&view, &answer, ctx.clock.now().wall);
        let answer = answer_of(answer);
        if lease.record(&step, answer, ctx.rng.share(), ctx.clock.mono()) {
            cluster.close_connections();
        }
    }
}

/// An answer that only asks for another call says nothing new.
fn show(view: &watch::Sender<LeaseView>, answer: &ClusterResult<Lease>, now: Timestamp) {
    view.send_modify(|view| match answer {
        Ok(_) => *view = LeaseView { renewed_at: Some(now), ..LeaseView::default() },
        Err(
            ClusterError::NotFound { .. }
            | ClusterError::Conflict { .. }
            | ClusterError::AlreadyExists { .. },
        ) => {}
        Err(error) => {
            view.is_overloaded = error.retry_after().is_some();
            view.error = Some(error.to_string());
        }
    });
}

fn answer_of(result: ClusterResult<Lease>) -> LeaseAnswer {
    match result {
        Ok(lease) => LeaseAnswer::Lease(Box::new(lease)),
        Err(ClusterError::NotFound { .. }) => LeaseAnswer::NotFound,
        Err(ClusterError::Conflict { .. } | ClusterError::AlreadyExists { .. }) => LeaseAnswer::Conflict,
        Err(error) => {
            tracing::warn!(err = %error, "Failed to renew node lease");
            match error.retry_after() {
                Some(retry_after) => LeaseAnswer::Refused { retry_after },
                None => LeaseAnswer::Failed,
            }
        }
    }
}
