//! The local socket: what the node says about itself to the commands of `kubelet` on the same machine (`/v1/…`, as JSON).
//!
//! HTTP/1.1 without TLS and authentication: whoever may open the socket may read all of it. The documents are `model::explain` and
//! `model::inventory`.

mod inventory;
mod selection;
mod streams;
mod target;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::response::Response;
use axum::routing::get;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use model::explain::{ManifestProblem, PodExplanations};
use model::inventory::PodSelection;
use ports::{Clock, NodeApi, NodeInventory};
use tokio::net::{UnixListener, UnixStream};
use tower_service::Service;

use self::selection::Selected;
use crate::endpoints::debug_pods;
use crate::transport::connections::AfterUpgrade;
use crate::transport::connections::table::{OpenConnection, TableLimits};
use crate::transport::unix;
use crate::{answer, complete};

/// When a limit is reached, an idle connection is closed for a new one, first one of a process that has many.
const LIMITS: TableLimits = TableLimits { connections: 32, per_peer: 16 };
/// For the head of a request, which is also the idle timeout.
const IDLE: Duration = Duration::from_secs(30);
/// The bits of a mode that are about the owner.
const OF_OWNER: u32 = 0o700;

/// What the socket serves from.
#[derive(Clone, Debug)]
pub struct LocalSources {
    pub api: Arc<dyn NodeApi>,
    pub inventory: Arc<dyn NodeInventory>,
    pub clock: Clock,
    /// How long a command in a container may neither read nor write; zero is no limit.
    pub stream_idle: Duration,
}

/// Opens the socket, and replaces one of an earlier run of the kubelet. `group`: `None` for that of the kubelet.
///
/// # Errors
/// The directory does not exist, or is not writable.
pub fn listen(socket: &Path, mode: u32, group: Option<u32>) -> io::Result<UnixListener> {
    // The group gets its rights last.
    let listener = unix::listen(socket, mode & OF_OWNER)?;
    if group.is_some() {
        std::os::unix::fs::chown(socket, None, group)?;
    }
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

/// Serves until `shutdown`.
pub async fn serve(listener: UnixListener, sources: LocalSources, shutdown: impl Future<Output = ()> + Send) {
    let router = Router::new()
        .route("/v1/node", get(node))
        .route("/v1/pods", get(pods))
        .route("/v1/pods/{uid}", get(pod))
        .route("/v1/pods/{uid}/start.svg", get(start_picture));
    let router = streams::routes(inventory::routes(router));
    let router = complete(router, sources);
    let serve = move |stream, slot| serve_one(stream, slot, router.clone());
    unix::accept("local", listener, LIMITS, serve, shutdown).await;
}

/// Errors of single connections are not logged: any client can cause them.
async fn serve_one(stream: UnixStream, slot: OpenConnection, router: Router) {
    let slot = Arc::new(slot);
    let (calls, after) = (Arc::clone(&slot), AfterUpgrade::default());
    let service = service_fn(|mut request: Request<Incoming>| {
        let served = calls.serve(true);
        request.extensions_mut().insert(after.clone());
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
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        _ = connection => {}
        () = slot.closed() => return,
    }
    if let Some(upgraded) = after.take() {
        upgraded.await;
    }
}

/// `/v1/node`.
async fn node(State(sources): State<LocalSources>) -> Response {
    answer::json(serde_json::to_vec(&sources.api.explain_node()))
}

/// `/v1/pods?pod=WORDS&namespace=…&selector=…`.
async fn pods(State(sources): State<LocalSources>, Selected(selection): Selected) -> Response {
    let pods = sources.api.explain_pods(&selection);
    let problems = sources.api.manifest_problems().into_iter();
    let manifest_problems = problems
        .map(|problem| ManifestProblem { origin: problem.origin, message: problem.message })
        .collect();
    answer::json(serde_json::to_vec(&PodExplanations { pods, manifest_problems }))
}

/// `/v1/pods/<uid>`: the pod as `/pods` of the main port has it.
async fn pod(State(sources): State<LocalSources>, UrlPath(uid): UrlPath<String>) -> Response {
    let found = sources.inventory.selected_pods(&PodSelection::of(&uid));
    match found.into_iter().find(|pod| pod.metadata.uid.as_deref() == Some(&*uid)) {
        Some(pod) => answer::json(serde_json::to_vec(&pod)),
        None => {
            answer::error(StatusCode::NOT_FOUND, &format!("no pod with UID {uid:?} is known to this node"))
        }
    }
}

/// `/v1/pods/<uid>/start.svg`: the start of the pod as a picture.
async fn start_picture(State(sources): State<LocalSources>, UrlPath(uid): UrlPath<String>) -> Response {
    debug_pods::picture_of(&sources.api, sources.clock, &uid)
}
