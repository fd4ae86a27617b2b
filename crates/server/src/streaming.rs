//! `/exec`, `/attach`, `/portForward` and `/run`: streams to a process or a port of a pod. The connection is proxied to a URL
//! of the runtime's streaming server; only `/run` waits for the command's end and responds with its output.

pub(crate) mod spdy;
pub(crate) mod translate;
pub(crate) mod upgrade;
pub(crate) mod websocket;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Limited};
use ports::node_api::{PodRefusal, PodTarget};
use ports::runtime::Streams;

use crate::answer;
use crate::query::{first, pairs};
use crate::state::MainState;

const FORM: &str = "application/x-www-form-urlencoded";
/// Limit for a command that comes as a form in the body instead of in the URL.
const MAX_FORM_BYTES: usize = 64 << 10;
const FORM_TIMEOUT: Duration = Duration::from_secs(10);

const OUTPUT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

type Parts = Path<BTreeMap<String, String>>;

pub(crate) async fn exec(
    State(state): State<MainState>,
    Path(parts): Parts,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    let query = pairs(query.as_deref());
    let Some(streams) = streams(&query) else { return no_streams() };
    if !upgrade::is_upgrade_request(&request) {
        return upgrade::required();
    }
    record(&state, &request, "exec");
    let command = query.iter().filter(|(name, _)| name == "command").map(|(_, value)| value.clone());
    let command: Vec<String> = command.collect();
    let (target, container) = target(parts);
    let url = state.api.exec(&target, &container, &command, streams).await;
    connect(&state, request, url, streams).await
}

pub(crate) async fn attach(
    State(state): State<MainState>,
    Path(parts): Parts,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    let Some(streams) = streams(&pairs(query.as_deref())) else { return no_streams() };
    if !upgrade::is_upgrade_request(&request) {
        return upgrade::required();
    }
    record(&state, &request, "attach");
    let (target, container) = target(parts);
    let url = state.api.attach(&target, &container, streams).await;
    connect(&state, request, url, streams).await
}

pub(crate) async fn port_forward(
    State(state): State<MainState>,
    Path(parts): Parts,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    if !upgrade::is_upgrade_request(&request) {
        return upgrade::required();
    }
    record(&state, &request, "portforward");
    let is_tunnel = state.features.extend_websockets && translate::speaks_tunnel(request.headers());
    let ports = match ports(request.headers(), &pairs(query.as_deref())) {
        // The requests inside the tunnel have the ports.
        _ if is_tunnel => Vec::new(),
        Ok(ports) => ports,
        Err(why) => return answer::error(StatusCode::BAD_REQUEST, &why),
    };
    let (target, _) = target(parts);
    match state.api.port_forward(&target, &ports).await {
        Ok(url) if is_tunnel => translate::tunnel_to(request, &url, idle(&state)).await,
        Ok(url) => upgrade::pass_on(request, &url, idle(&state)).await,
        Err(refusal) => refused(&refusal),
    }
}

pub(crate) async fn run(
    State(state): State<MainState>,
    Path(parts): Parts,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    let form = match form(request).await {
        Ok(form) => form,
        Err((status, why)) => return answer::error(status, why),
    };
    let query = pairs(query.as_deref());
    // A field of the form comes before a parameter of that name, as in Go.
    let command = first(&form, "cmd").or_else(|| first(&query, "cmd")).unwrap_or_default();
    let command = command.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (target, container) = target(parts);
    match state.api.run(&target, &container, &command).await {
        Ok(output) => answer::with_type(StatusCode::OK, OUTPUT, output),
        Err(refusal) => refused(&refusal),
    }
}

/// The fields of a body of type `application/x-www-form-urlencoded`; empty for another body, which is not read.
async fn form(request: Request) -> Result<Vec<(String, String)>, (StatusCode, &'static str)> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case(FORM) {
        return Ok(Vec::new());
    }
    let body = Limited::new(request.into_body(), MAX_FORM_BYTES).collect();
    match tokio::time::timeout(FORM_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(pairs(std::str::from_utf8(&body.to_bytes()).ok())),
        Ok(Err(_)) => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "the form in the body is incomplete or larger than 64 KiB"))
        }
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the form in the body did not arrive within 10s")),
    }
}

/// The pod and the container of the path; the container's name is empty if the path has none.
fn target(mut parts: BTreeMap<String, String>) -> (PodTarget, String) {
    let mut part = |name| parts.remove(name);
    let target = PodTarget {
        namespace: part("namespace").unwrap_or_default(),
        pod: part("pod").unwrap_or_default(),
        uid: part("uid"),
    };
    (target, part("container").unwrap_or_default())
}

/// The requested streams; `None` if there are none. A terminal has a single output.
pub(crate) fn streams(query: &[(String, String)]) -> Option<Streams> {
    let is_set = |name| first(query, name) == Some("1");
    let (tty, stdin, stdout) = (is_set("tty"), is_set("input"), is_set("output"));
    let streams = Streams { tty, stdin, stdout, stderr: is_set("error") && !tty };
    (streams.stdin || streams.stdout || streams.stderr).then_some(streams)
}

fn no_streams() -> Response {
    answer::error(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr")
}

/// Streams over WebSockets are counted.
fn record(state: &MainState, request: &Request, subresource: &'static str) {
    if let Some(observer) = state.api.observer().filter(|_| is_websocket(request.headers())) {
        observer.websocket_asked(subresource);
    }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let protocol = headers.get(http::header::UPGRADE).and_then(|value| value.to_str().ok());
    protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

/// SPDY has its ports in the headers of each stream; for a WebSocket they are in the query.
pub(crate) fn ports(headers: &HeaderMap, query: &[(String, String)]) -> Result<Vec<u16>, String> {
    if !is_websocket(headers) {
        return Ok(Vec::new());
    }
    let given = query.iter().filter(|(name, _)| name == "port").flat_map(|(_, value)| value.split(','));
    let read = |port: &str| {
        let port_number = port.parse::<u16>().ok().filter(|port| *port > 0);
        port_number
            .ok_or_else(|| format!("unable to parse {port:?} as a port: must be a number from 1 to 65535"))
    };
    let ports = given.map(read).collect::<Result<Vec<u16>, String>>()?;
    if ports.is_empty() { Err("query parameter \"port\" is required".to_owned()) } else { Ok(ports) }
}

/// Runtimes support SPDY, and only older versions of the WebSocket protocol: the newest version is translated.
async fn connect(
    state: &MainState,
    request: Request<Body>,
    url: Result<String, PodRefusal>,
    streams: Streams,
) -> Response {
    match url {
        Ok(url) if state.features.extend_websockets && translate::speaks_channels(request.headers()) => {
            translate::channels_of(request, &url, streams, idle(state)).await
        }
        Ok(url) => upgrade::pass_on(request, &url, idle(state)).await,
        Err(refusal) => refused(&refusal),
    }
}

fn idle(state: &MainState) -> tunnel::Idle {
    state.config.streaming_connection_idle_timeout.as_std()
}

fn refused(refusal: &PodRefusal) -> Response {
    let status = match refusal {
        PodRefusal::NotFound(_) => StatusCode::NOT_FOUND,
        PodRefusal::Invalid(_) | PodRefusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    answer::text(status, refusal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_read_from_the_query_and_a_terminal_has_one_output() {
        let read = |query| streams(&pairs(Some(query)));
        let all = Streams { tty: false, stdin: true, stdout: true, stderr: true };
        assert_eq!(read("input=1&output=1&error=1&command=sh"), Some(all));
        let terminal = Streams { tty: true, stdin: true, stdout: true, stderr: false };
        assert_eq!(read("input=1&output=1&error=1&tty=1"), Some(terminal));
        assert_eq!(read("tty=1&error=1"), None);
        assert_eq!(read("output=true"), None);
    }

    #[test]
    fn websocket_ports_are_read_from_the_query() {
        let read = |protocol, query| {
            let headers = HeaderMap::from_iter([(http::header::UPGRADE, HeaderValue::from_static(protocol))]);
            ports(&headers, &pairs(Some(query)))
        };
        assert_eq!(read("SPDY/3.1", "port=80"), Ok(vec![]));
        assert_eq!(read("websocket", "port=80&port=8080,443"), Ok(vec![80, 8080, 443]));
        for query in ["", "port=0", "port=http", "port=65536"] {
            assert!(read("websocket", query).is_err(), "{query}");
        }
    }
}
