//! One call: its headers, rate limit and deadline, and its response or error. The deadline is that of the headers, and then of each
//! further piece of the body.

use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body as _;
use ports::TraceContext;
use ports::cluster::{ClusterError, ClusterResult};
use ports::request_metrics::{ApiExchange, ApiObserver};
use ports::trace::TRACEPARENT;
use tokio::time::Instant;
use tracing::Instrument;

use crate::body::{self, BodyError, Whole};
use crate::budget::CallLimiter;
use crate::connection::{Answer, Outgoing, SendError};
use crate::credentials::Credentials;
use crate::pool::Pool;
use crate::status;

/// Limit for the body of an error response.
const MAX_ERROR: usize = 64 << 10;
/// Limit for the memory that is reserved from a `Content-Length`.
const MAX_RESERVED: usize = 1 << 20;

/// Shared by all calls of one handle.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) pool: Arc<Pool>,
    pub(crate) credentials: Arc<Credentials>,
    /// The path before `/api`.
    pub(crate) prefix: String,
    pub(crate) headers: HeaderMap,
    pub(crate) budget: Option<CallLimiter>,
    pub(crate) deadline: Duration,
    pub(crate) metrics: Arc<CallMetrics>,
    pub(crate) trace: Option<Arc<dyn TraceContext>>,
}

/// The observer of calls, once it is set, and the host label of its metrics.
#[derive(Debug)]
pub(crate) struct CallMetrics {
    pub(crate) host: String,
    pub(crate) observer: OnceLock<Arc<dyn ApiObserver>>,
}

/// A request to the server.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// For errors: `patch status of pods default/web`.
    pub(crate) name: String,
    pub(crate) method: Method,
    /// `/api/v1/pods?watch=true`.
    pub(crate) target: String,
    /// With its content type.
    pub(crate) body: Option<(&'static str, Bytes)>,
    /// Maximum size of the response in bytes, if it is read as a whole.
    pub(crate) most: usize,
    /// The server may compress the response.
    pub(crate) gzip: bool,
}

impl Call {
    /// The target without its query.
    fn path(&self) -> &str {
        self.target.split_once('?').map_or(&*self.target, |(path, _)| path)
    }
}

impl Client {
    /// Makes the call and reads the whole response.
    pub(crate) async fn answer(&self, call: &Call) -> ClusterResult<Bytes> {
        let response = self.begin(call).await?;
        let length = response
            .headers()
            .get(http::header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok().and_then(|length| length.parse().ok()));
        let reserved = length.unwrap_or(0).min(call.most).min(MAX_RESERVED);
        let whole = Whole { bytes: Vec::with_capacity(reserved), most: call.most };
        Ok(self.read(call, response, whole).await?.bytes.into())
    }

    /// Makes the call and passes the response to `writer` as it arrives.
    pub(crate) async fn stream<W: Write + Send>(&self, call: &Call, writer: W) -> ClusterResult<W> {
        let response = self.begin(call).await?;
        self.read(call, response, writer).await
    }

    /// Makes the call and returns the body of its response as it is.
    pub(crate) async fn open(&self, call: &Call) -> ClusterResult<Answer> {
        Ok(self.begin(call).await?.into_body())
    }

    /// The headers of the response.
    async fn begin(&self, call: &Call) -> ClusterResult<Response<Answer>> {
        self.within_deadline(call, Box::pin(self.traced(call))).await
    }

    /// The deadline of the call counts from each piece of the body.
    async fn read<W: Write + Send>(
        &self,
        call: &Call,
        response: Response<Answer>,
        writer: W,
    ) -> ClusterResult<W> {
        let name = || call.name.clone();
        let (head, body) = response.into_parts();
        match body::read(&head.headers, body, writer, self.deadline).await {
            Ok((writer, count)) => {
                if let Some(observer) = self.metrics.observer.get() {
                    observer.read(&self.metrics.host, call.method.as_str(), count);
                }
                Ok(writer)
            }
            Err(BodyError::Silent) => Err(ClusterError::TimedOut { call: name(), deadline: self.deadline }),
            Err(BodyError::Broken(message)) => Err(ClusterError::Unreachable { call: name(), message }),
            Err(BodyError::Rejected(error)) => Err(ClusterError::Failed {
                call: name(),
                code: head.status.as_u16(),
                message: error.to_string(),
            }),
        }
    }

    /// Waits for the rate limiter, then makes the call within its deadline. The exchange is boxed, because each future around it would
    /// have space for its two kilobytes, some of them twice.
    async fn within_deadline<T>(
        &self,
        call: &Call,
        exchange: BoxFuture<'_, ClusterResult<T>>,
    ) -> ClusterResult<T> {
        if let Some(budget) = &self.budget {
            let wait = budget.reserve(self.deadline).map_err(|wait| ClusterError::Busy {
                call: call.name.clone(),
                message: "client-side rate limit exceeded".to_owned(),
                retry_after: Some(wait),
            })?;
            if let Some(observer) = self.metrics.observer.get() {
                observer.waited(&self.metrics.host, call.method.as_str(), wait);
            }
            tokio::time::sleep(wait).await;
        }
        tokio::time::timeout(self.deadline, exchange).await.unwrap_or_else(|_| {
            Err(ClusterError::TimedOut { call: call.name.clone(), deadline: self.deadline })
        })
    }

    /// The exchange in a separate span, which ends with the headers of the response.
    async fn traced(&self, call: &Call) -> ClusterResult<Response<Answer>> {
        let span = tracing::info_span!(
            target: "trace", "API", otel.name = format!("HTTP {}", call.method), otel.kind = "client",
            http.request.method = call.method.as_str(), url.path = call.path(), server.address = self.metrics.host,
            http.response.status_code = tracing::field::Empty, otel.error = tracing::field::Empty
        );
        let answer = self.exchange(call).instrument(span.clone()).await;
        match &answer {
            Ok(response) => span.record("http.response.status_code", response.status().as_u16()),
            Err(error) => span.record("otel.error", tracing::field::display(error)),
        };
        answer
    }

    /// The headers of a successful response.
    async fn exchange(&self, call: &Call) -> ClusterResult<Response<Answer>> {
        let request = self.request(call).await?;
        let request_bytes = request.body().size_hint().lower();
        let mut exchange = Exchange { client: self, call, began: Instant::now(), request_bytes, code: None };
        let answer = self.pool.send(request).await;
        exchange.code = answer.as_ref().ok().map(|response| response.status().as_u16());
        drop(exchange);
        let response = answer.map_err(|error| {
            let (SendError::Unsent(message) | SendError::Broken(message)) = error;
            ClusterError::Unreachable { call: call.name.clone(), message }
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        if response.status() == StatusCode::UNAUTHORIZED {
            self.credentials.rejected();
        }
        let code = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(status::retry_after);
        let (head, body) = response.into_parts();
        let whole = Whole { bytes: Vec::new(), most: MAX_ERROR };
        // If the body cannot be read, the status code alone is reported.
        let body = match body::read(&head.headers, body, whole, self.deadline).await {
            Ok((whole, _)) => whole.bytes,
            Err(_) => Vec::new(),
        };
        Err(status::to_error(call.name.clone(), code, retry_after, &body))
    }

    async fn request(&self, call: &Call) -> ClusterResult<Outgoing> {
        let (content_type, body) = call.body.clone().unzip();
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = format!("{}{}", self.prefix, call.target).parse().map_err(|error| {
            ClusterError::Invalid { call: call.name.clone(), message: format!("{}: {error}", call.target) }
        })?;
        *request.headers_mut() = self.headers.clone();
        if let Some(content_type) = content_type {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if call.gzip {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let authorization = self.credentials.authorization().await;
        let authorization = authorization
            .map_err(|message| ClusterError::Unauthorized { call: call.name.clone(), message })?;
        if let Some(authorization) = authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization);
        }
        let parent = self.trace.as_ref().and_then(|context| context.traceparent()?.try_into().ok());
        if let Some(parent) = parent {
            request.headers_mut().insert(TRACEPARENT, parent);
        }
        Ok(request)
    }
}

/// A request and its response, as far as it was received. Counted when dropped, also by a deadline.
struct Exchange<'a> {
    client: &'a Client,
    call: &'a Call,
    began: Instant,
    request_bytes: u64,
    code: Option<u16>,
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let CallMetrics { host, observer } = &*self.client.metrics;
        if let Some(observer) = observer.get() {
            observer.exchanged(&ApiExchange {
                host,
                method: self.call.method.as_str(),
                code: self.code,
                took: self.began.elapsed(),
                request_bytes: self.request_bytes,
            });
        }
    }
}
