//! Proxies a connection to the runtime's streaming server: the client's upgrade request is repeated there, and after its
//! response bytes are copied in both directions (SPDY/3.1 or WebSocket, not interpreted). There is backpressure: data is read
//! from one side only as fast as the other accepts it.

mod dial;

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
use tunnel::{Ended, Idle};

use crate::answer;
use crate::transport::connections::AfterUpgrade;

/// For the connection to the streaming server, and for its response.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Limit for the body of a response that is not an upgrade, which is an error message.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Whether the client requests an upgrade, which HTTP/2 does not have.
pub(crate) fn is_upgrade_request(request: &Request<Body>) -> bool {
    let asks = request.headers().get_all(CONNECTION).iter().any(|value| {
        let tokens = value.to_str().unwrap_or_default().split(',');
        tokens.map(str::trim).any(|token| token.eq_ignore_ascii_case("upgrade"))
    });
    asks && request.headers().contains_key(UPGRADE) && request.extensions().get::<AfterUpgrade>().is_some()
}

pub(crate) fn required() -> Response {
    answer::error(StatusCode::BAD_REQUEST, "Upgrade request required")
}

/// The request to the streaming server; `Err` is why there is none.
type UpgradeRequest = Result<(dial::Target, Request<Empty<Bytes>>), String>;

/// Requests an upgrade at the URL. If it succeeds, the client gets the same response, and the two are connected until one
/// closes or the idle timeout ends. Any other response is passed on.
pub(crate) async fn pass_on(mut request: Request<Body>, url: &str, idle: Idle) -> Response {
    let upgrade = dial::Target::of(url).and_then(|target| {
        let request = for_backend(&request, &target)?;
        Ok((target, request))
    });
    between(&mut request, upgrade, move |client, backend| splice(client, backend, idle), |_| {}).await
}

async fn splice(client: Upgraded, backend: Upgraded, idle: Idle) {
    if tunnel::splice(TokioIo::new(client), TokioIo::new(backend), idle).await == Ended::Idle {
        tracing::info!("Closed idle stream");
    }
}

/// Requests an upgrade from the streaming server. If it succeeds, the client gets that response as changed by `answered`,
/// and `then` gets both connections. Any other response is passed on.
pub(crate) async fn between<F>(
    request: &mut Request<Body>,
    upgrade: UpgradeRequest,
    then: impl FnOnce(Upgraded, Upgraded) -> F + Send + 'static,
    answered: impl FnOnce(&mut Response),
) -> Response
where
    F: Future<Output = ()> + Send,
{
    let Some(after) = request.extensions().get::<AfterUpgrade>().cloned() else { return required() };
    let client = hyper::upgrade::on(request);
    let outcome = async {
        let (target, upgrade) = upgrade?;
        send(upgrade, target).await
    };
    match tokio::time::timeout(TIMEOUT, outcome).await {
        Ok(Ok(Outcome::Upgrade { mut response, backend, connection })) => {
            after.run(async move {
                let both = async { tokio::join!(client, backend, connection) };
                // Both are available once the client has received the response.
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
        Err(_) => failed("timed out waiting for its response"),
    }
}

fn failed(why: &str) -> Response {
    tracing::warn!(err = why, "Failed to connect to the streaming server of the container runtime");
    answer::error(StatusCode::INTERNAL_SERVER_ERROR, &format!("error dialing the streaming server: {why}"))
}

/// The response of the streaming server.
enum Outcome<C> {
    Upgrade {
        response: Response,
        backend: OnUpgrade,
        /// Must be polled for the upgrade to complete.
        connection: C,
    },
    Other(Response),
}

async fn send(
    request: Request<Empty<Bytes>>,
    target: dial::Target,
) -> Result<Outcome<impl Future<Output = ()> + Send + 'static>, String> {
    let stream = dial::connect(&target, &dial::trusted()).await?;
    let handshake = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let mut connection = Box::pin(async move {
        // Its errors appear in the response and in the upgrade.
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

/// The client's request, without headers that are only for the kubelet.
fn for_backend(request: &Request<Body>, target: &dial::Target) -> Result<Request<Empty<Bytes>>, String> {
    let mut headers: HeaderMap = request.headers().clone();
    for name in [AUTHORIZATION, COOKIE, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    addressed(request.method().clone(), headers, target)
}

/// A new request for SPDY with these additional headers.
pub(crate) fn spdy_request(
    url: &str,
    more: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> UpgradeRequest {
    let target = dial::Target::of(url)?;
    let mut headers = HeaderMap::from_iter(more);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    let request = addressed(Method::POST, headers, &target)?;
    Ok((target, request))
}

fn addressed(
    method: Method,
    mut headers: HeaderMap,
    target: &dial::Target,
) -> Result<Request<Empty<Bytes>>, String> {
    headers.insert(HOST, HeaderValue::from_str(&target.authority).map_err(|error| error.to_string())?);
    let mut request = Request::new(Empty::new());
    *request.method_mut() = method;
    *request.uri_mut() = target.path.clone();
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
