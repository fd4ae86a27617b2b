//! A connection whose responses are rewritten while they are received, before the gRPC client buffers them.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use hyper::body::{Bytes, Frame};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::channel::Connection;
use crate::response_fields::{ResponseFields, TakeFields};

const STATUS: &str = "grpc-status";
const SUCCESS: &str = "0";

/// Makes other messages of the fields of a response.
pub(crate) trait Rewrite: TakeFields + Default + Send + Unpin + 'static {
    /// A longer response is an error.
    const MAX_BYTES: usize;

    /// The messages that replace what was received since the last call, with their headers; empty if there are none yet.
    fn messages(&mut self, is_complete: bool) -> Bytes;
}

/// A response that is being rewritten.
pub(crate) struct Rewriting<R> {
    fields: ResponseFields,
    pub(crate) rewrite: R,
}

impl<R: Rewrite> Default for Rewriting<R> {
    fn default() -> Self {
        Self { fields: ResponseFields::up_to(R::MAX_BYTES), rewrite: R::default() }
    }
}

impl<R: Rewrite> Rewriting<R> {
    /// Parses the next bytes of the response; returns the messages that replace them.
    pub(crate) fn feed(&mut self, data: &[u8]) -> Result<Bytes, &'static str> {
        // Bytes after the last one are an error, so that the response is complete once.
        if data.is_empty() {
            return Ok(Bytes::new());
        }
        self.fields.feed(data, &mut self.rewrite)?;
        Ok(self.rewrite.messages(self.is_complete()))
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.fields.is_complete()
    }
}

#[derive(Debug)]
pub(crate) struct Rewritten<R> {
    connection: Connection,
    rewrite: PhantomData<fn() -> R>,
}

impl<R> Rewritten<R> {
    pub(crate) const fn new(connection: Connection) -> Self {
        Self { connection, rewrite: PhantomData }
    }
}

impl<R> Clone for Rewritten<R> {
    fn clone(&self) -> Self {
        Self::new(self.connection.clone())
    }
}

impl<R: Rewrite> Service<Request<Body>> for Rewritten<R> {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connection.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.connection.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            // The client would take a success without a message for an empty list.
            if answer.headers().get(STATUS).is_some_and(|status| status == SUCCESS) {
                answer.headers_mut().remove(STATUS);
            }
            Ok(answer.map(|inner| Body::new(RewrittenBody { inner, response: Rewriting::<R>::default() })))
        })
    }
}

struct RewrittenBody<R> {
    inner: Body,
    response: Rewriting<R>,
}

impl<R: Rewrite> RewrittenBody<R> {
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

impl<R: Rewrite> hyper::body::Body for RewrittenBody<R> {
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
