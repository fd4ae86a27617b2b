//! A connection for ExecSync: its responses are truncated while they are received, before the gRPC client buffers them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use hyper::body::{Bytes, Frame};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::channel::Connection;
use crate::exec_answer::ExecAnswer;
use crate::response_fields::ResponseFields;

const STATUS: &str = "grpc-status";
const SUCCESS: &str = "0";

/// A response that is being truncated.
pub(crate) struct Rewriting {
    fields: ResponseFields,
    pub(crate) answer: ExecAnswer,
}

impl Default for Rewriting {
    fn default() -> Self {
        Self { fields: ResponseFields::new(), answer: ExecAnswer::default() }
    }
}

impl Rewriting {
    /// Parses the next bytes of the response; returns the message that replaces it once it is complete.
    pub(crate) fn feed(&mut self, data: &[u8]) -> Result<Bytes, &'static str> {
        // Bytes after the last one are an error, so that the response is complete once.
        if data.is_empty() {
            return Ok(Bytes::new());
        }
        self.fields.feed(data, &mut self.answer)?;
        Ok(if self.is_complete() { self.answer.message() } else { Bytes::new() })
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.fields.is_complete()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Rewritten(pub(crate) Connection);

impl Service<Request<Body>> for Rewritten {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|inner| Body::new(RewrittenBody { inner, response: Rewriting::default() })))
        })
    }
}

struct RewrittenBody {
    inner: Body,
    response: Rewriting,
}

impl RewrittenBody {
    /// A response that ends early must not look like a shorter one, unless it is an error anyway.
    fn at_end(&self, trailers: Option<&HeaderMap>) -> Result<(), Status> {
        let is_error = trailers.and_then(|t| t.get(STATUS)).is_some_and(|status| status != SUCCESS);
        if self.response.is_complete() || is_error {
            Ok(())
        } else {
            Err(Status::internal("the response ends within its message"))
        }
    }
}

impl hyper::body::Body for RewrittenBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                None => return Poll::Ready(self.at_end(None).err().map(Err)),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => frame,
            };
            if let Some(trailers) = frame.trailers_ref() {
                return Poll::Ready(Some(self.at_end(Some(trailers)).map(|()| frame)));
            }
            let Ok(data) = frame.into_data() else { continue };
            match self.response.feed(&data) {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => return Poll::Ready(Some(Ok(Frame::data(messages)))),
                Err(problem) => return Poll::Ready(Some(Err(Status::internal(problem)))),
            }
        }
    }
}
