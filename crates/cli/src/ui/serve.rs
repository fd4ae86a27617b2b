//! Serves the page and forwards its requests to the local socket: only reading ones, and only to those who have the secret.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, REFERRER_POLICY, SET_COOKIE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::history::History;
use crate::client::{Client, ClientError};

const PAGE: &str = include_str!("page.html");
/// A browser opens six.
const CONNECTIONS: usize = 32;
const IDLE: Duration = Duration::from_secs(30);
const AFTER_ERROR: Duration = Duration::from_millis(100);
/// The documents of the socket that the page shows.
const DOCUMENTS: [&str; 9] = [
    "/v1/node",
    "/v1/pods",
    "/v1/images",
    "/v1/volumes",
    "/v1/claims",
    "/v1/allocations",
    "/v1/plugins",
    "/v1/events",
    "/v1/stats",
];

/// What is served, and to whom.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) client: Client,
    pub(super) secret: String,
    /// Marks the script and the style of the page: no others run.
    pub(super) nonce: String,
    pub(super) history: History,
}

/// What a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// The page; the cookie lets it read the documents.
    Page,
    /// An answer of the local socket.
    Document(String),
    History,
    Refused(StatusCode, &'static str),
}

impl Site {
    /// Decides what a request gets.
    fn answer_to(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Answer {
        // A name that an attacker's name server gives this address would let a foreign page read ours.
        if !header(headers, HOST.as_str()).is_some_and(is_this_machine) {
            return Answer::Refused(
                StatusCode::FORBIDDEN,
                "the page is served as localhost, 127.0.0.1 or [::1] only",
            );
        }
        if method != Method::GET {
            return Answer::Refused(StatusCode::METHOD_NOT_ALLOWED, "the page only reads");
        }
        let of_address =
            uri.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("secret=")));
        let of_cookie = header(headers, COOKIE.as_str())
            .and_then(|cookies| cookies.split("; ").find_map(|cookie| cookie.strip_prefix("kubelet-ui=")));
        let is_known = |secret: Option<&str>| secret.is_some_and(|secret| is_same(secret, &self.secret));
        if !is_known(of_address) && !is_known(of_cookie) {
            return Answer::Refused(
                StatusCode::FORBIDDEN,
                "open the whole address that kubelet ui printed, with its secret",
            );
        }
        match uri.path() {
            "/" => Answer::Page,
            "/history" => Answer::History,
            path if DOCUMENTS.contains(&path) || is_picture(path) => Answer::Document(path.to_owned()),
            _ => Answer::Refused(StatusCode::NOT_FOUND, "there is no such page"),
        }
    }

    async fn respond(&self, answer: Answer) -> Response<Full<Bytes>> {
        let response =
            Response::builder().header(CACHE_CONTROL, "no-store").header(REFERRER_POLICY, "no-referrer");
        let built = match answer {
            Answer::Page => response
                .header(CONTENT_TYPE, "text/html; charset=utf-8")
                .header(SET_COOKIE, format!("kubelet-ui={}; HttpOnly; SameSite=Strict; Path=/", self.secret))
                .header(
                    CONTENT_SECURITY_POLICY,
                    format!(
                        "default-src 'none'; connect-src 'self'; img-src 'self'; style-src 'nonce-{0}'; script-src 'nonce-{0}'; \
                         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
                        self.nonce
                    ),
                )
                .body(Bytes::from(PAGE.replace("NONCE", &self.nonce))),
            Answer::History => match self.history.json().await {
                Ok(json) => response.header(CONTENT_TYPE, "application/json").body(json.into()),
                Err(error) => response.status(StatusCode::INTERNAL_SERVER_ERROR).body(error.to_string().into()),
            },
            Answer::Document(path) => match self.client.get_bytes(&path).await {
                Ok(body) => {
                    let kind = if is_picture(&path) { "image/svg+xml" } else { "application/json" };
                    response.header(CONTENT_TYPE, kind).body(body)
                }
                Err(ClientError::Refused { status, text }) => response.status(status).body(text.into()),
                Err(error) => response.status(StatusCode::BAD_GATEWAY).body(error.to_string().into()),
            },
            Answer::Refused(status, why) => {
                response.status(status).header(CONTENT_TYPE, "text/plain").body(Bytes::from_static(why.as_bytes()))
            }
        };
        built.map_or_else(|_| Response::new(Full::default()), |response| response.map(Full::new))
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whatever the port is: with `ssh -L` the browser's differs from ours.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].contains(&name)
}

/// In a time that does not depend on where they differ.
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// `/v1/pods/<uid>/start.svg`.
fn is_picture(path: &str) -> bool {
    let uid = path.strip_prefix("/v1/pods/").and_then(|rest| rest.strip_suffix("/start.svg"));
    uid.is_some_and(|uid| {
        !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Serves until it is cancelled.
pub(super) async fn serve(listener: TcpListener, site: &Arc<Site>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    // They end with this.
    let mut connections = JoinSet::new();
    while let Ok(slot) = slots.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => drop(connections.spawn(serve_one(stream, slot, site.clone()))),
            // Too many files are open, for example.
            Err(_) => tokio::time::sleep(AFTER_ERROR).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Errors of single connections are those of the browser.
async fn serve_one(stream: TcpStream, slot: OwnedSemaphorePermit, site: Arc<Site>) {
    let service = service_fn(|request: Request<Incoming>| {
        let site = site.clone();
        async move {
            let answer = site.answer_to(request.method(), request.uri(), request.headers());
            Ok::<_, Infallible>(site.respond(answer).await)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    drop(connection.await);
    drop(slot);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        Site {
            client: Client::new("/nowhere".into()),
            secret: "5ec7e7".to_owned(),
            nonce: "n".to_owned(),
            history: History::default(),
        }
    }

    fn answer(method: &str, uri: &str, host: &str, cookie: &str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        headers.insert(COOKIE, cookie.parse().unwrap());
        site().answer_to(&method.parse().unwrap(), &uri.parse().unwrap(), &headers)
    }

    const HOST_OF_IT: &str = "127.0.0.1:10290";
    const COOKIE_OF_IT: &str = "theme=dark; kubelet-ui=5ec7e7";

    #[test]
    fn page_and_documents_need_the_secret_of_the_address_or_the_cookie() {
        assert_eq!(answer("GET", "/?secret=5ec7e7", HOST_OF_IT, ""), Answer::Page);
        assert_eq!(answer("GET", "/", HOST_OF_IT, COOKIE_OF_IT), Answer::Page);
        for host in ["localhost:8080", "localhost", "[::1]:10290", "[::1]"] {
            assert_eq!(answer("GET", "/", host, COOKIE_OF_IT), Answer::Page, "{host}");
        }
        assert_eq!(
            answer("GET", "/v1/pods", HOST_OF_IT, COOKIE_OF_IT),
            Answer::Document("/v1/pods".to_owned())
        );
        for (uri, cookie) in
            [("/", ""), ("/?secret=", ""), ("/v1/pods?secret=5ec7e8", ""), ("/history", "kubelet-ui=5ec7e")]
        {
            assert!(
                matches!(answer("GET", uri, HOST_OF_IT, cookie), Answer::Refused(StatusCode::FORBIDDEN, _)),
                "{uri}"
            );
        }
    }

    #[test]
    fn foreign_names_other_methods_and_other_paths_are_refused() {
        let status = |method, uri, host| match answer(method, uri, host, COOKIE_OF_IT) {
            Answer::Refused(status, _) => status.as_u16(),
            Answer::Page | Answer::Document(_) | Answer::History => 200,
        };
        assert_eq!(status("GET", "/", "evil.example:10290"), 403);
        assert_eq!(status("GET", "/", "localhost.evil.example"), 403);
        assert_eq!(status("POST", "/v1/pods", HOST_OF_IT), 405);
        for path in [
            "/v1/logs",
            "/v1/exec?pod=web",
            "/v1/pods/../exec/start.svg",
            "/v1/pods//start.svg",
            "/etc/passwd",
        ] {
            assert_eq!(status("GET", path, HOST_OF_IT), 404, "{path}");
        }
        assert_eq!(status("GET", "/v1/pods/4c1d-9a/start.svg", HOST_OF_IT), 200);
    }

    #[tokio::test]
    async fn only_the_script_and_style_of_the_page_run() {
        let response = site().respond(Answer::Page).await;
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none';") && policy.contains("script-src 'nonce-n'"),
            "{policy}"
        );
        let addresses = PAGE.matches("http://").count() + PAGE.matches("https://").count();
        assert!(addresses == 1 && PAGE.contains("http://www.w3.org/2000/svg"), "the page needs no network");
        assert!(!PAGE.contains("innerHTML"), "texts of pods are shown as texts");
        assert_eq!(PAGE.matches("NONCE").count(), 2);
    }
}
