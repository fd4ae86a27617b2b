//! `GET` over HTTP/1.1, with one connection for each request.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ports::net::{HttpAnswer, HttpGet, NetError, Scheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use crate::dial;
use crate::tls::Tls;
use crate::url::Url;

/// Maximum number of requests of a call that follows redirects.
const MAX_REQUESTS: usize = 10;
/// Limit for status line and headers.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// Progress of a call, for the text of a timeout.
#[derive(Clone, Copy)]
enum Phase {
    AwaitingHeaders,
    ReadingBody,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AwaitingHeaders => {
                "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            }
            Self::ReadingBody => {
                "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
            }
        })
    }
}

/// Cancel safe: dropping the future closes the connection.
pub(crate) async fn get(tls: &Tls, request: &HttpGet) -> Result<HttpAnswer, NetError> {
    let mut phase = Phase::AwaitingHeaders;
    let call = Box::pin(follow(tls, request, &mut phase));
    let Some(timeout) = request.timeout else { return call.await };
    match tokio::time::timeout(timeout, call).await {
        Ok(answer) => answer,
        Err(_) => {
            Err(NetError::TimedOut { what: format!("Get \"{}\": {phase}", Url::of(request)), after: timeout })
        }
    }
}

async fn follow(tls: &Tls, request: &HttpGet, phase: &mut Phase) -> Result<HttpAnswer, NetError> {
    let mut url = Url::of(request);
    let first_host = url.host.clone();
    let mut headers = headers_of(request)?;
    for _ in 0..MAX_REQUESTS {
        *phase = Phase::AwaitingHeaders;
        let call = Call { tls, request, url: &url, headers: &headers };
        let (answer, location) = call.run(phase).await?;
        let Some(location) = location else { return Ok(answer) };
        let Some(next) = url.resolve(&location) else {
            return Err(NetError::Protocol(format!(
                "Get \"{url}\": failed to parse Location header {location:?}"
            )));
        };
        if next.host != first_host {
            return Ok(HttpAnswer { redirected_elsewhere: true, ..answer });
        }
        if location.contains("://") || location.starts_with("//") {
            // The server sent an absolute URL, so the caller's Host header no longer applies.
            headers.remove(HOST);
        }
        url = next;
    }
    Err(NetError::Protocol(format!("Get \"{url}\": stopped after {MAX_REQUESTS} redirects")))
}

fn headers_of(request: &HttpGet) -> Result<HeaderMap, NetError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let invalid = || NetError::Invalid(format!("invalid header {name:?}: {value:?}"));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// One request of a call.
struct Call<'a> {
    tls: &'a Tls,
    request: &'a HttpGet,
    url: &'a Url,
    headers: &'a HeaderMap,
}

impl Call<'_> {
    /// The response, and its redirect.
    async fn run(&self, phase: &mut Phase) -> Result<(HttpAnswer, Option<String>), NetError> {
        let request = self.build()?;
        let stream = dial::connect(&self.url.host, self.url.port).await.map_err(|e| self.in_context(e))?;
        match self.url.scheme {
            Scheme::Http => self.exchange(stream, request, phase).await,
            Scheme::Https => {
                let wrapped = self.tls.connect(stream, &self.url.host, self.request.verify_tls).await;
                self.exchange(wrapped.map_err(|e| self.in_context(e))?, request, phase).await
            }
        }
    }

    fn build(&self) -> Result<Request<Empty<Bytes>>, NetError> {
        let mut request = Request::get(self.url.path.as_str())
            .body(Empty::new())
            .map_err(|error| NetError::Invalid(format!("Get \"{}\": {error}", self.url)))?;
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        if !headers.contains_key(HOST) {
            let host = HeaderValue::try_from(self.url.host_and_port())
                .map_err(|error| NetError::Invalid(format!("Get \"{}\": {error}", self.url)))?;
            headers.insert(HOST, host);
        }
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        Ok(request)
    }

    async fn exchange<S>(
        &self,
        stream: S,
        request: Request<Empty<Bytes>>,
        phase: &mut Phase,
    ) -> Result<(HttpAnswer, Option<String>), NetError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .title_case_headers(true)
            .max_buf_size(MAX_HEADER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        #[expect(
            clippy::disallowed_methods,
            reason = "owned by the driver, which ends it; it may continue for at most a second"
        )]
        let mut driver = Driver(Some(tokio::spawn(async move {
            // An error is also returned to the request.
            if let Ok(parts) = connection.without_shutdown().await {
                dial::await_close(parts.io.into_inner()).await;
            }
        })));
        let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        *phase = Phase::ReadingBody;
        let location = location_of(&response);
        let answer = self.read(response).await?;
        // The rest, at most a second, continues in the background.
        driver.0 = None;
        Ok((answer, location))
    }

    async fn read(&self, response: Response<Incoming>) -> Result<HttpAnswer, NetError> {
        let status = response.status().as_u16();
        let limit = self.request.max_body_bytes;
        let mut incoming = response.into_body();
        let mut body = Vec::new();
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|error| self.broken(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            let remaining = limit.saturating_sub(body.len());
            body.extend_from_slice(data.get(..remaining).unwrap_or(data));
            if data.len() > remaining {
                return Ok(HttpAnswer { status, body, truncated: true, redirected_elsewhere: false });
            }
        }
        Ok(HttpAnswer { status, body, truncated: false, redirected_elsewhere: false })
    }

    fn in_context(&self, error: NetError) -> NetError {
        match error {
            NetError::Connect(text) => NetError::Connect(format!("Get \"{}\": {text}", self.url)),
            NetError::Protocol(text) => NetError::Protocol(format!("Get \"{}\": {text}", self.url)),
            NetError::Invalid(text) => NetError::Invalid(format!("Get \"{}\": {text}", self.url)),
            other @ (NetError::TimedOut { .. } | NetError::PlainHttpServer) => other,
        }
    }

    fn broken(&self, error: &hyper::Error) -> NetError {
        let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        let text = match io {
            Some(io) => return self.in_context(NetError::Connect(format!("read: {}", dial::error_text(io)))),
            None if error.is_incomplete_message() => return self.in_context(NetError::Connect("EOF".into())),
            None if error.is_parse() => format!("malformed HTTP response: {error}"),
            None => error.to_string(),
        };
        self.in_context(NetError::Protocol(text))
    }
}

fn location_of(response: &Response<Incoming>) -> Option<String> {
    let follows = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    let location = response.headers().get(LOCATION).filter(|_| follows.contains(&response.status()))?;
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned()).filter(|location| !location.is_empty())
}

/// The task that drives a connection; it ends with the call unless it is detached.
struct Driver(Option<JoinHandle<()>>);

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
