//! One connection to the server: HTTP/2 with concurrent calls, or HTTP/1.1 with one call at a time.
//!
//! Owns the tasks that drive it; they end with the last handle to it, which the pool or the last call has.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::dial::Dialed;
use crate::error::in_full;

/// Concurrent calls and watches. Servers allow 100 or more.
pub(crate) const STREAMS: usize = 100;
/// Flow-control window of a stream: what a large list may have under way before other calls, four seconds at 30 kB/s. The connection's
/// window covers all streams, so that a watch that is not read never blocks the others.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;
/// A connection without traffic for this long is pinged...
const PING_AFTER: Duration = Duration::from_secs(30);
/// ...and closed if it does not answer within this time.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) type Outgoing = Request<Full<Bytes>>;

pub(crate) struct Connection {
    sender: Sender,
    running: AtomicUsize,
    version: u64,
    tasks: Tasks,
}

enum Sender {
    H1(Mutex<http1::SendRequest<Full<Bytes>>>),
    /// With the number of streams that the server allows.
    H2(http2::SendRequest<Full<Bytes>>, Arc<AtomicUsize>),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("http2", &self.is_http2())
            .field("running", &self.running)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.0.lock().abort_all();
    }
}

/// The executor for hyper's tasks of a connection.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F> Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Why a call got no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The server has not processed the request: it can safely be sent again over another connection.
    Unsent(String),
    /// The server may have processed the request.
    Broken(String),
}

impl Connection {
    /// Performs the HTTP handshake.
    pub(crate) async fn open(dialed: Dialed) -> Result<Self, hyper::Error> {
        let tasks = Tasks::default();
        let io = TokioIo::new(dialed.stream);
        let sender = if dialed.http2 {
            let (sender, driver) = http2::Builder::new(tasks.clone())
                .timer(TokioTimer::new())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .initial_max_send_streams(STREAMS)
                // A header table would keep many small allocations for the life of the connection.
                .header_table_size(0)
                .keep_alive_interval(PING_AFTER)
                .keep_alive_timeout(PING_TIMEOUT)
                .keep_alive_while_idle(true)
                .handshake(io)
                .await?;
            let allowed = Arc::new(AtomicUsize::new(STREAMS));
            let (mut driver, seen) = (Box::pin(driver), Arc::clone(&allowed));
            tasks.execute(poll_fn(move |context| {
                let ended = driver.as_mut().poll(context).map(drop);
                seen.store(driver.current_max_send_streams(), Ordering::Relaxed);
                ended
            }));
            Sender::H2(sender, allowed)
        } else {
            let (sender, driver) = http1::handshake(io).await?;
            tasks.execute(async { drop(driver.await) });
            Sender::H1(Mutex::new(sender))
        };
        Ok(Self { sender, running: AtomicUsize::new(0), version: dialed.version, tasks })
    }

    pub(crate) const fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::H2(..))
    }

    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::H1(sender) => sender.lock().is_closed(),
            Sender::H2(sender, _) => sender.is_closed(),
        }
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// A permit for one more call, if one is available.
    pub(crate) fn permit(self: &Arc<Self>) -> Option<StreamPermit> {
        let limit = match &self.sender {
            Sender::H1(_) => 1,
            Sender::H2(_, allowed) => allowed.load(Ordering::Relaxed).clamp(1, STREAMS),
        };
        let more = |running| (running < limit).then_some(running + 1);
        let raised = self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        raised.is_ok().then(|| StreamPermit { connection: Arc::clone(self) })
    }

    /// A permit beyond the limit: the call waits within hyper until a stream is available.
    pub(crate) fn permit_beyond_limit(self: &Arc<Self>) -> StreamPermit {
        self.running.fetch_add(1, Ordering::Relaxed);
        StreamPermit { connection: Arc::clone(self) }
    }
}

/// A permit for a call on a connection, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    connection: Arc<Connection>,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connection.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StreamPermit {
    /// Sends the request, whose URI is path and query only, and waits for the headers of the response.
    pub(crate) async fn send(
        self,
        mut request: Outgoing,
        authority: &Authority,
    ) -> Result<Response<Answer>, SendError> {
        let sent = match &self.connection.sender {
            Sender::H1(sender) => {
                if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
                    request.headers_mut().insert(HOST, host);
                }
                // The previous response may have just ended.
                let ready = poll_fn(|context| sender.lock().poll_ready(context)).await;
                ready.map_err(|error| SendError::Unsent(in_full(&error)))?;
                let sending = sender.lock().try_send_request(request);
                sending.await
            }
            Sender::H2(sender, _) => {
                *request.uri_mut() = absolute(request.uri(), authority);
                let mut sender = sender.clone();
                let sending = sender.try_send_request(request);
                sending.await
            }
        };
        match sent {
            Ok(response) => Ok(response.map(|body| Answer { body, _permit: self })),
            Err(error) => {
                let unsent = error.message().is_some() || never_begun(error.error());
                let text = in_full(error.error());
                Err(if unsent { SendError::Unsent(text) } else { SendError::Broken(text) })
            }
        }
    }
}

fn absolute(path: &Uri, authority: &Authority) -> Uri {
    let mut parts = path.clone().into_parts();
    (parts.scheme, parts.authority) = (Some(Scheme::HTTPS), Some(authority.clone()));
    Uri::from_parts(parts).unwrap_or_else(|_| path.clone())
}

/// The server reported that it does not process this request: it shuts down gracefully, or refused the stream.
fn never_begun(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<h2::Error>() {
            let graceful = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return error.is_remote() && (graceful || refused);
        }
        source = cause.source();
    }
    false
}

/// The body of a response, which holds its permit on the connection.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Incoming,
    _permit: StreamPermit,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
