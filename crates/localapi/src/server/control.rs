//! The control socket of a server with a database, for the commands on this machine: `GET /backup`, `GET /unbound`, the pods without a node
//! and why, and `POST /restart`, after which the process that started this one starts it again. It is in the directory of the database, which only root can enter.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{backup, unbound};
use crate::api::Api;
use crate::files;
use crate::http::Body;

pub(super) const SOCKET: &str = "control.sock";
const MAX_CONNECTIONS: usize = 8;
/// Lines of a backup that wait for the client.
const QUEUE: usize = 16;
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Serves until the server stops.
pub(super) async fn serve(listener: UnixListener, api: Arc<Api>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = api.closing.cancelled() => return,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, Arc::clone(&api)))),
                Err(error) => {
                    tracing::warn!(err = %error, "failed to accept a connection at the control socket");
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            },
        }
    }
}

/// A socket that an earlier process left is replaced: the database has one user.
pub(super) fn listen(directory: &Path) -> std::io::Result<UnixListener> {
    let path = directory.join(SOCKET);
    files::remove(&path)?;
    UnixListener::bind(&path)
}

async fn connection(stream: UnixStream, api: Arc<Api>) {
    let restarts = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(&api, &restarts, request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let serving = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        tracing::debug!(err = %error, "connection at the control socket failed");
    }
    // After the answer, which would end with the process.
    if restarts.into_inner() {
        tracing::warn!("restarting as requested at the control socket");
        api.closing.cancel();
    }
}

fn respond(api: &Arc<Api>, restarts: &AtomicBool, method: &Method, path: &str) -> Response<Body> {
    match (method, path) {
        (&Method::GET, "/backup") => Response::new(lines(api)),
        (&Method::GET, "/unbound") => {
            let node = api.behaviour.bind_to.as_deref().unwrap_or_default();
            let found = api.store.read(|objects| unbound::explanations(node, objects));
            Response::new(text(serde_json::to_string(&found).unwrap_or_default()))
        }
        (&Method::POST, "/restart") => {
            restarts.store(true, Ordering::Relaxed);
            Response::new(text("restarting\n"))
        }
        _ => {
            let mut response = Response::new(text("use GET /backup, GET /unbound or POST /restart\n"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

fn text(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The lines of a backup, as they are made. A failure ends them early, which their reader notices.
fn lines(api: &Arc<Api>) -> Body {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let lines = backup::lines(api);
    tokio::task::spawn_blocking(move || {
        for line in lines {
            let sent = line.map(|line| sender.blocking_send(Bytes::from(line)));
            match sent {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(error) => return tracing::error!(err = %error, "failed to make a backup"),
            }
        }
    });
    let frames = stream::unfold(receiver, |mut receiver| async move {
        let line: Bytes = receiver.recv().await?;
        Some((Ok::<_, hyper::Error>(Frame::data(line)), receiver))
    });
    StreamBody::new(frames).boxed_unsync()
}
