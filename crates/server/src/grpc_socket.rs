//! gRPC on Unix sockets that only root may open: what PodResources and the Pods API have in common.
//!
//! Owns the connections of such a socket, their limits, and the limit on the rate of calls.

pub(crate) mod authority;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use model::{MonoTime, RateLimiter};
use tokio::net::{UnixListener, UnixStream};
use tonic::body::Body;
use tower_service::Service;

use crate::transport::connections::table::{OpenConnection, TableLimits};
use crate::transport::unix;
use authority::ValidAuthority;

/// Calls a second, in the long run and at once.
const QPS: f64 = 100.0;
const BURST: u32 = 10;
/// The message of a call beyond that.
pub(crate) const OVER_LIMIT: &str = "rejected by rate limit";
/// When a limit is reached, an idle connection is closed for a new one, first one of a process that has many.
pub(crate) const LIMITS: TableLimits = TableLimits { connections: 64, per_peer: 16 };
/// Concurrent calls on one connection.
const MAX_STREAMS: u32 = 100;
/// Keepalive interval of idle connections.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const SOCKET_MODE: u32 = 0o600;

pub(crate) type Answer = Result<http::Response<Body>, Infallible>;

/// Opens the socket, and replaces one of an earlier run of the kubelet.
///
/// # Errors
/// The directory does not exist, or is not writable.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    unix::listen(socket, SOCKET_MODE)
}

/// Serves calls until `shutdown`. `name` is that of the endpoint in the log.
pub(crate) async fn serve<S, F>(
    name: &'static str,
    listener: UnixListener,
    answer: S,
    shutdown: impl Future<Output = ()> + Send,
) where
    S: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let serve = move |stream, slot| serve_one(stream, slot, answer.clone());
    unix::accept(name, listener, LIMITS, serve, shutdown).await;
}

/// Errors of single connections are not logged: any client can cause them.
async fn serve_one<S, F>(stream: UnixStream, slot: OpenConnection, answer: S)
where
    S: Fn(Request<Incoming>) -> F,
    F: Future<Output = Answer> + Send + 'static,
{
    let slot = Arc::new(slot);
    let calls = Arc::clone(&slot);
    let service = service_fn(move |request| {
        let served = calls.serve(true);
        let answer = answer(request);
        async move {
            let answer = answer.await?;
            // A stream is served until its end.
            let until_end = |body: Body| {
                Body::new(body.map_frame(move |frame| {
                    let _ = &served;
                    frame
                }))
            };
            Ok::<_, Infallible>(answer.map(until_end))
        }
    });
    let (read, write) = stream.into_split();
    let stream = tokio::io::join(ValidAuthority::new(read), write);
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(MAX_STREAMS)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = connection => {}
        () = slot.closed() => {}
    }
}

pub(crate) async fn called<S>(mut service: S, request: Request<Incoming>) -> Answer
where
    S: Service<Request<Incoming>, Response = http::Response<Body>, Error = Infallible>,
{
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

/// The rate limit that all callers of an endpoint share.
pub(crate) fn limiter(now: MonoTime) -> RateLimiter {
    RateLimiter::new(QPS, BURST, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_is_100_calls_a_second_with_a_burst_of_10() {
        let at = |millis| MonoTime::from_start(Duration::from_millis(millis));
        let mut limiter = limiter(at(0));
        let mut allowed = |millis| (0..100).filter(|_| limiter.try_take(at(millis))).count();
        assert_eq!([allowed(0), allowed(55), allowed(60_000)], [10, 5, 10]);
    }
}
