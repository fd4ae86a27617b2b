//! The local socket: what the node says about itself to the commands of `kubelet` on the same machine (`/v1/…`, as JSON).
//!
//! HTTP/1.1 without TLS and authentication: whoever may open the socket may read all of it. The documents are `model::explain`.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path as UrlPath, RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use model::explain::{ManifestProblem, PodExplanations};
use ports::Clock;
use tokio::net::{UnixListener, UnixStream};
use tower_service::Service;

use crate::endpoints::debug_pods;
use crate::transport::connections::table::{OpenConnection, TableLimits};
use crate::transport::unix;
use crate::{Api, answer, complete, query};

/// When a limit is reached, an idle connection is closed for a new one, first one of a process that has many.
const LIMITS: TableLimits = TableLimits { connections: 32, per_peer: 16 };
/// For the head of a request, which is also the idle timeout.
const IDLE: Duration = Duration::from_secs(30);
/// Only root may open the socket.
const MODE: u32 = 0o600;

#[derive(Clone, Debug)]
struct LocalState {
    api: Api,
    clock: Clock,
}

/// Opens the socket, and replaces one of an earlier run of the kubelet.
///
/// # Errors
/// The directory does not exist, or is not writable.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    unix::listen(socket, MODE)
}

/// Serves until `shutdown`.
pub async fn serve(
    listener: UnixListener,
    api: Api,
    clock: Clock,
    shutdown: impl Future<Output = ()> + Send,
) {
    let router = Router::new()
        .route("/v1/node", get(node))
        .route("/v1/pods", get(pods))
        .route("/v1/pods/{uid}/start.svg", get(start_picture));
    let router = complete(router, LocalState { api, clock });
    let serve = move |stream, slot| serve_one(stream, slot, router.clone());
    unix::accept("local", listener, LIMITS, serve, shutdown).await;
}

/// Errors of single connections are not logged: any client can cause them.
async fn serve_one(stream: UnixStream, slot: OpenConnection, router: Router) {
    let slot = Arc::new(slot);
    let calls = Arc::clone(&slot);
    let service = service_fn(move |request: Request<Incoming>| {
        let served = calls.serve(true);
        let answer = router.clone().call(request);
        async move {
            let answer = answer.await;
            drop(served);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = connection => {}
        () = slot.closed() => {}
    }
}

/// `/v1/node`.
async fn node(State(state): State<LocalState>) -> Response {
    answer::json(serde_json::to_vec(&state.api.explain_node()))
}

/// `/v1/pods?pod=WORDS`.
async fn pods(State(state): State<LocalState>, RawQuery(query): RawQuery) -> Response {
    let pairs = query::pairs(query.as_deref());
    let pods = state.api.explain_pods(query::first(&pairs, "pod").unwrap_or_default());
    let problems = state.api.manifest_problems().into_iter();
    let manifest_problems = problems
        .map(|problem| ManifestProblem { origin: problem.origin, message: problem.message })
        .collect();
    answer::json(serde_json::to_vec(&PodExplanations { pods, manifest_problems }))
}

/// `/v1/pods/<uid>/start.svg`: the start of the pod as a picture.
async fn start_picture(State(state): State<LocalState>, UrlPath(uid): UrlPath<String>) -> Response {
    debug_pods::picture_of(&state.api, state.clock, &uid)
}
