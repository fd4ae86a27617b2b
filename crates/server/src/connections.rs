//! Accepting connections and serving HTTP/1.1 on them, within bounds.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower_service::Service;

/// Who comes when so many are served waits in the kernel's queue.
const MOST_CONNECTIONS: usize = 512;
/// For the head of a request, which is also how long a connection may idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Then a connection is told to end, so that who never reads an answer is not served for ever.
const CONNECTION_AGE: Duration = Duration::from_secs(300);
/// What is under way may take so long to end, with the connection's age or with the server.
const GRACE: Duration = Duration::from_secs(5);
/// Before accepting again when the process is out of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Head of a request, at most.
const MOST_HEAD_BYTES: usize = 64 << 10;

pub(crate) async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()> + Send) {
    let mut shutdown = pin!(shutdown);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let (stop, stopped) = watch::channel(());
    let mut open = JoinSet::new();
    loop {
        let (stream, place) = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = open.join_next() => continue,
            accepted = next(&listener, &places) => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "Cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            },
        };
        open.spawn(serve_one(stream, place, router.clone(), stopped.clone()));
    }
    drop(listener);
    drop(stop);
    // Each ends by itself within the grace.
    while open.join_next().await.is_some() {}
}

/// Cancel safe: a place not yet used is given back, and a connection not yet taken stays in the kernel's queue.
async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn serve_one(
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
    router: Router,
    mut stopped: watch::Receiver<()>,
) {
    let service = service_fn(move |request| answer(router.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MOST_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // A client that breaks off or sends no HTTP is its own affair, so results are not looked at.
    tokio::select! {
        _ = &mut connection => return,
        _ = stopped.changed() => {}
        () = tokio::time::sleep(CONNECTION_AGE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(GRACE, connection).await;
}

async fn answer(mut router: Router, request: Request<Incoming>) -> Result<Response, Infallible> {
    let request = request.map(Body::new);
    poll_fn(|cx| Service::<Request<Body>>::poll_ready(&mut router, cx)).await?;
    router.call(request).await
}
