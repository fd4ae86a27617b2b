//! Forwards requests and responses: headers, upgraded connections, and the errors of unreachable backends.

use std::sync::Arc;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tunnel::{Idle, splice};

use super::Proxy;
use super::backend::SendError;
use super::location::Location;
use crate::http::{Body, response};
use crate::status::ApiError;

/// The longest error body of a kubelet that is forwarded, in bytes.
const MAX_ERROR_BODY: usize = 50_000;
/// What of an error of a kubelet is part of another message, in characters.
const MAX_ERROR_LINE: usize = 200;

/// Hop-by-hop headers, which are not forwarded.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upgrade {
    Possible,
    /// The request cannot be answered without an upgrade.
    Required,
}

/// GETs a log and streams it to the client.
pub(super) async fn log(proxy: &Proxy, location: &Location, pod: &str) -> Result<Response<Body>, ApiError> {
    let request = addressed(Request::new(empty()), location)?;
    let sent = proxy.backends.send(&proxy.streams, proxy.streams.permit()?, location, request).await;
    let response = sent.map_err(|error| ApiError::without_reason(format!("Get \"{location}\": {error}")))?;
    if !(StatusCode::OK..=StatusCode::PARTIAL_CONTENT).contains(&response.status()) {
        return Err(backend_error(response, pod).await);
    }
    let mut forwarded = Response::new(response.into_body().boxed_unsync());
    forwarded.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(forwarded)
}

/// GETs a document of at most `max` bytes.
pub(super) async fn read(proxy: &Proxy, location: &Location, max: usize) -> Result<Bytes, String> {
    let message = |error: ApiError| error.message;
    let request = addressed(Request::new(empty()), location).map_err(message)?;
    let permit = proxy.streams.permit().map_err(message)?;
    let response = proxy.backends.send(&proxy.streams, permit, location, request).await;
    let response = response.map_err(|error| error.to_string())?;
    let code = response.status();
    let body = Limited::new(response.into_body(), max).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { format!("more than {max} bytes") } else { error.to_string() }
    })?;
    let body = body.to_bytes();
    if code == StatusCode::OK { Ok(body) } else { Err(format!("{code}: {}", beginning(&body))) }
}

/// The first line of an error, as much of it as fits into a message.
fn beginning(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.lines().next().unwrap_or_default().chars().take(MAX_ERROR_LINE).collect()
}

/// The error that the kubelet returned instead of a log.
async fn backend_error(response: Response<Incoming>, pod: &str) -> ApiError {
    let code = response.status();
    let body = match Limited::new(response.into_body(), MAX_ERROR_BODY).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(error) => return ApiError::internal(error.to_string()),
    };
    ApiError::of_backend(code, "pods/log", pod, &body)
}

/// Forwards any request; if both ends agree to an upgrade, the connection becomes a tunnel.
pub(super) async fn forward(
    proxy: &Proxy,
    location: &Location,
    request: Request<Incoming>,
    upgrade: Upgrade,
) -> Result<Response<Body>, ApiError> {
    if request.version() <= Version::HTTP_11 && wants_upgrade(request.headers()) {
        return tunnel(proxy, location, request).await;
    }
    if upgrade == Upgrade::Required {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    if location.path_and_query.is_empty() && reads {
        return Ok(redirection(request.uri()));
    }
    let mut request = request.map(BodyExt::boxed_unsync);
    remove_connection_headers(request.headers_mut());
    let request = addressed(request, location)?;
    let response = match proxy.backends.send(&proxy.streams, proxy.streams.permit()?, location, request).await
    {
        Ok(response) => response,
        Err(SendError::NotAllowed) => return Err(ApiError::address_not_allowed()),
        Err(error) => {
            let message = format!("error trying to reach service: {error}");
            return Ok(response::bytes(
                StatusCode::SERVICE_UNAVAILABLE,
                "text/plain; charset=utf-8",
                message,
            ));
        }
    };
    let mut response = response.map(BodyExt::boxed_unsync);
    remove_connection_headers(response.headers_mut());
    Ok(response)
}

async fn tunnel(
    proxy: &Proxy,
    location: &Location,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let client = hyper::upgrade::on(&mut request);
    let permit = proxy.streams.permit()?;
    let mut request = addressed(request.map(|_| empty()), location)?;
    request.headers_mut().remove(header::CONTENT_LENGTH);
    request.headers_mut().remove(header::TRANSFER_ENCODING);
    let sent = proxy.backends.send(&proxy.streams, Arc::clone(&permit), location, request).await;
    let mut response = sent.map_err(|error| match error {
        SendError::NotAllowed => ApiError::address_not_allowed(),
        error @ SendError::Http(_) => ApiError::without_reason(error.to_string()),
        error @ (SendError::Dial(..) | SendError::TimedOut(_) | SendError::Tls(_)) => {
            ApiError::without_reason(format!("error dialing backend: {error}"))
        }
    })?;
    let code = response.status();
    if code == StatusCode::SWITCHING_PROTOCOLS {
        let backend = hyper::upgrade::on(&mut response);
        proxy.streams.run(permit, join(client, backend));
        return Ok(response.map(|_| empty()));
    }
    if code.as_u16() < 400 {
        let message = format!("invalid upgrade response: status code {}", code.as_u16());
        return Err(ApiError::without_reason(message));
    }
    let mut response = response.map(BodyExt::boxed_unsync);
    remove_connection_headers(response.headers_mut());
    Ok(response)
}

async fn join(client: OnUpgrade, backend: OnUpgrade) {
    match tokio::try_join!(client, backend) {
        Ok((client, backend)) => {
            splice(TokioIo::new(client), TokioIo::new(backend), Idle::ZERO).await;
            tracing::debug!("tunnel closed");
        }
        Err(error) => tracing::debug!(err = %error, "tunnel failed"),
    }
}

fn empty() -> Body {
    Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync()
}

/// The request for the backend: with its path and host, and without the credentials of the client.
fn addressed(mut request: Request<Body>, location: &Location) -> Result<Request<Body>, ApiError> {
    let bad = |what: &str| ApiError::bad_request(format!("{what} cannot be requested"));
    let path = if location.path_and_query.is_empty() { "/" } else { &location.path_and_query };
    *request.uri_mut() = path.parse().map_err(|_| bad(path))?;
    *request.version_mut() = Version::HTTP_11;
    let host = location.host_port.to_string();
    let host = HeaderValue::from_str(&host).map_err(|_| bad(&host))?;
    request.headers_mut().insert(header::HOST, host);
    request.headers_mut().remove(header::AUTHORIZATION);
    Ok(request)
}

/// Redirects from a bare `…/proxy` to `…/proxy/`, so that relative links work.
fn redirection(uri: &::http::Uri) -> Response<Body> {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(to) = HeaderValue::from_str(&format!("{}/{query}", uri.path())) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

fn wants_upgrade(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    connection.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
}

fn remove_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| token.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(*name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::location::{Channel, HostPort};
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn upgrade_is_a_token_of_the_connection_header() {
        assert!(wants_upgrade(&headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")])));
        assert!(!wants_upgrade(&headers(&[("connection", "close"), ("upgrade", "websocket")])));
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut sent =
            headers(&[("connection", "x-own, close"), ("x-own", "1"), ("te", "t"), ("accept", "a")]);
        remove_connection_headers(&mut sent);
        assert_eq!(sent, headers(&[("accept", "a")]));
    }

    #[test]
    fn credentials_of_the_client_are_not_forwarded() {
        let mut request = Request::new(empty());
        *request.headers_mut() =
            headers(&[("authorization", "Bearer secret"), ("host", "api"), ("accept", "a")]);
        let host_port = HostPort { host: "fd00::1".to_owned(), port: 1 };
        let path_and_query = "/exec/a/p/c?tty=1".to_owned();
        let location = Location { channel: Channel::Kubelet, host_port, path_and_query };
        let request = addressed(request, &location).unwrap();
        assert_eq!(*request.headers(), headers(&[("host", "[fd00::1]:1"), ("accept", "a")]));
        assert_eq!(request.uri(), "/exec/a/p/c?tty=1");
    }

    #[test]
    fn bare_proxy_path_is_redirected_to_its_root() {
        let response = redirection(&"/api/v1/nodes/n/proxy?a=b".parse().unwrap());
        assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY);
        assert_eq!(response.headers()[header::LOCATION], "/api/v1/nodes/n/proxy/?a=b");
    }
}
