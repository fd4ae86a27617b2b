//! Passing a connection on to the runtime's streaming server: the upgrade of the client is asked for there, and from its
//! answer on bytes go both ways untouched (SPDY/3.1 or WebSocket, which are not looked at). What one side does not take
//! is not read from the other, so that nothing piles up.

mod dial;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::answer;
use crate::transport::connections::AfterUpgrade;

/// For the connection to the streaming server, and for its answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What is read of an answer that is no upgrade; it is an error in a few words.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Of each direction.
const BUFFER_BYTES: usize = 32 << 10;
/// How long a client may take to end what the runtime has ended.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the client asks for another protocol, and may: HTTP/2 has no such thing.
pub(crate) fn is_asked_for(request: &Request<Body>) -> bool {
    let asks = request.headers().get_all(CONNECTION).iter().any(|value| {
        let tokens = value.to_str().unwrap_or_default().split(',');
        tokens.map(str::trim).any(|token| token.eq_ignore_ascii_case("upgrade"))
    });
    asks && request.headers().contains_key(UPGRADE) && request.extensions().get::<AfterUpgrade>().is_some()
}

pub(crate) fn required() -> Response {
    answer::error(StatusCode::BAD_REQUEST, "Upgrade request required")
}

/// How long nothing may move; zero: forever.
pub(crate) type Idle = Duration;

/// What is asked of the streaming server, and where; `Err` says why nothing can be.
type Question = Result<(dial::Place, Request<Empty<Bytes>>), String>;

/// Asks at the URL, and if the answer is an upgrade, gives the client the same and connects the two until either ends or
/// nothing moves. Any other answer is passed on.
pub(crate) async fn pass_on(mut request: Request<Body>, url: &str, idle: Idle) -> Response {
    let question = dial::Place::of(url).and_then(|place| {
        let request = for_backend(&request, &place)?;
        Ok((place, request))
    });
    between(&mut request, question, move |client, backend| splice(client, backend, idle), |_| {}).await
}

/// Asks the streaming server, and if the answer is an upgrade, gives the client that answer as `answered` changes it, and
/// both connections to `then`. Any other answer is passed on.
pub(crate) async fn between<F>(
    request: &mut Request<Body>,
    question: Question,
    then: impl FnOnce(Upgraded, Upgraded) -> F + Send + 'static,
    answered: impl FnOnce(&mut Response),
) -> Response
where
    F: Future<Output = ()> + Send,
{
    let Some(after) = request.extensions().get::<AfterUpgrade>().cloned() else { return required() };
    let client = hyper::upgrade::on(request);
    let outcome = async {
        let (place, question) = question?;
        ask(question, place).await
    };
    match tokio::time::timeout(TIMEOUT, outcome).await {
        Ok(Ok(Outcome::Upgrade { mut response, backend, connection })) => {
            after.run(async move {
                let both = async { tokio::join!(client, backend, connection) };
                // Each is there as soon as the client has the answer.
                let Ok((Ok(client), Ok(backend), ())) = tokio::time::timeout(TIMEOUT, both).await else {
                    return;
                };
                then(client, backend).await;
            });
            answered(&mut response);
            response
        }
        Ok(Ok(Outcome::Other(response))) => response,
        Ok(Err(why)) => failed(&why),
        Err(_) => failed("no answer in time"),
    }
}

fn failed(why: &str) -> Response {
    tracing::warn!(err = why, "Failed to connect to the streaming server of the container runtime");
    answer::error(StatusCode::INTERNAL_SERVER_ERROR, &format!("error dialing the streaming server: {why}"))
}

/// What the streaming server said.
enum Outcome<C> {
    Upgrade {
        response: Response,
        backend: OnUpgrade,
        /// Must run for the upgrade to be there.
        connection: C,
    },
    Other(Response),
}

async fn ask(
    request: Request<Empty<Bytes>>,
    place: dial::Place,
) -> Result<Outcome<impl Future<Output = ()> + Send + 'static>, String> {
    let stream = dial::connect(&place, &dial::trusted()).await?;
    let handshake = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let mut connection = Box::pin(async move {
        // How it ends shows in the answer and in the upgrade.
        let _ = connection.with_upgrades().await;
    });
    let mut answer = Box::pin(sender.send_request(request));
    let mut runs = true;
    let response = loop {
        tokio::select! {
            response = &mut answer => break response.map_err(|error| error.to_string())?,
            () = &mut connection, if runs => runs = false,
        }
    };
    drop(answer);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let mut response = response;
        let backend = hyper::upgrade::on(&mut response);
        let rest = async move {
            if runs {
                connection.await;
            }
        };
        return Ok(Outcome::Upgrade { response: response.map(|_| Body::empty()), backend, connection: rest });
    }
    let read = read_error(response);
    tokio::pin!(read);
    loop {
        tokio::select! {
            response = &mut read => return response.map(Outcome::Other),
            () = &mut connection, if runs => runs = false,
        }
    }
}

/// The client's request, without what was meant for us only.
fn for_backend(request: &Request<Body>, place: &dial::Place) -> Result<Request<Empty<Bytes>>, String> {
    let mut headers: HeaderMap = request.headers().clone();
    for name in [AUTHORIZATION, COOKIE, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    addressed(request.method().clone(), headers, place)
}

/// A request of our own for SPDY, with these headers more.
pub(crate) fn spdy_request(url: &str, more: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Question {
    let place = dial::Place::of(url)?;
    let mut headers = HeaderMap::from_iter(more);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    let request = addressed(Method::POST, headers, &place)?;
    Ok((place, request))
}

fn addressed(
    method: Method,
    mut headers: HeaderMap,
    place: &dial::Place,
) -> Result<Request<Empty<Bytes>>, String> {
    headers.insert(HOST, HeaderValue::from_str(&place.authority).map_err(|error| error.to_string())?);
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method;
    *request.uri_mut() = place.path.clone();
    *request.headers_mut() = headers;
    Ok(request)
}

async fn read_error(response: http::Response<Incoming>) -> Result<Response, String> {
    let (mut head, body) = response.into_parts();
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    let body = Limited::new(body, MAX_ERROR_BYTES).collect().await.map_err(|error| error.to_string())?;
    Ok(Response::from_parts(head, Body::from(body.to_bytes())))
}

/// A side that ends its direction is told to the other, which may go on with its own.
async fn splice(client: Upgraded, backend: Upgraded, idle: Idle) {
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_backend, to_backend) = tokio::io::split(TokioIo::new(backend));
    let moved = AtomicU64::new(0);
    let up = pump(from_client, to_backend, &moved);
    let down = pump(from_backend, to_client, &moved);
    let both = async {
        tokio::pin!(up, down);
        tokio::select! {
            ended = &mut up => {
                if ended.is_ok() {
                    let _ = down.await;
                }
            }
            ended = &mut down => {
                if ended.is_ok() {
                    let _ = tokio::time::timeout(DRAIN_TIMEOUT, up).await;
                }
            }
        }
    };
    tokio::select! {
        () = both => {}
        () = stands_still(&moved, idle) => tracing::info!("Closed idle stream"),
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        let Some(piece) = buffer.get(..length).filter(|piece| !piece.is_empty()) else {
            return to.shutdown().await;
        };
        count(moved);
        to.write_all(piece).await?;
        to.flush().await?;
    }
}

/// Something has moved.
pub(crate) fn count(moved: &AtomicU64) {
    moved.fetch_add(1, Ordering::Relaxed);
}

/// Returns when nothing has moved for `idle`, or up to a quarter longer.
pub(crate) async fn stands_still(moved: &AtomicU64, idle: Duration) {
    const LOOKS: u32 = 4;
    if idle.is_zero() {
        return std::future::pending().await;
    }
    let (mut last, mut same) = (moved.load(Ordering::Relaxed), 0);
    while same < LOOKS {
        tokio::time::sleep(idle / LOOKS).await;
        let now = moved.load(Ordering::Relaxed);
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
}
