//! The kubelet's HTTP server: one file for each endpoint, over `ports::NodeApi`.
//!
//! Owns which endpoints are served on which port and to which clients, and the limits on connections and their duration.
//!
//! Architecture invariants:
//! - an endpoint calls [`ports::NodeApi`] and encodes the result; it does not depend on the agent;
//! - the memory of each connection and its duration are bounded;
//! - a failure here never affects the agent.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests run on real sockets and real time"
    )
)]

mod access;
mod answer;
mod endpoint;
mod endpoints;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grpc_socket;
pub mod local_socket;
mod main_port;
mod pieces;
pub mod pod_resources;
pub mod pods_api;
mod query;
mod state;
mod streaming;
mod tls;
mod transport;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use ports::NodeApi;
use ports::request_metrics::ServingObserver;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use access::{AccessSettings, AuthorizationMode, TokenReviews};
pub use main_port::{MainPort, MainServer};
pub use tls::{ClientCa, ServingPair, TlsError};

use endpoints::{debugging, healthz, metrics, pods, stats_summary};
use transport::connections::{self, ServedPort};

type Api = Arc<dyn NodeApi>;

/// Serves the health port (10248): `/healthz`, which fails when the sync loop hangs. Ends soon after `shutdown` does.
pub async fn serve_healthz(
    listener: TcpListener,
    api: Arc<dyn NodeApi>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let router = Router::new().route("/healthz", get(healthz::health_port));
    connections::serve(listener, plain(complete(router, api), None), shutdown).await;
}

/// Serves the read-only port (10255): health, pods and metrics, without authentication.
/// Ends soon after `shutdown` does.
pub async fn serve_read_only(
    listener: TcpListener,
    api: Arc<dyn NodeApi>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let router = Router::new()
        .route("/healthz", get(healthz::all))
        .route("/healthz/ping", get(healthz::ping))
        .route("/healthz/log", get(healthz::log))
        .route("/healthz/syncloop", get(healthz::sync_loop))
        .route("/healthz/device-plugin", get(healthz::device_plugin))
        .route("/pods", get(pods::list))
        .route("/stats/summary", get(stats_summary::show).post(stats_summary::show))
        .route("/metrics", get(metrics::kubelet))
        .route("/metrics/cadvisor", get(metrics::cadvisor))
        .route("/metrics/resource", get(metrics::resource))
        .route("/metrics/probes", get(metrics::probes))
        .route("/metrics/slis", get(metrics::slis));
    let observer = api.observer();
    let router = complete(debugging::disabled(router), api);
    connections::serve(listener, plain(router, observer), shutdown).await;
}

/// A port without TLS and authentication.
fn plain(router: Router, observer: Option<Arc<dyn ServingObserver>>) -> ServedPort {
    let requests = watch::Sender::new(0);
    ServedPort { router, gate: None, tls: None, limits: connections::PLAIN, observer, requests }
}

fn complete<S: Clone + Send + Sync + 'static>(router: Router<S>, state: S) -> Router {
    router
        .method_not_allowed_fallback(answer::method_not_allowed)
        .fallback(answer::not_found)
        .with_state(state)
}

#[cfg(test)]
mod tests;
