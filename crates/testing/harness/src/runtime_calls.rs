//! The gRPC services of the CRI as bytes: each call goes to a [`CallHandler`], which forwards it to a runtime or answers it itself.
//!
//! Knows nothing about the protocol above HTTP/2 but the names of the two services.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::transport::server::Router;
use tonic::transport::{Channel, Endpoint, Server};

/// Methods whose response never ends by itself.
const STREAMS: &[&str] = &["GetContainerEvents"];

/// Answers every call of both services.
pub trait CallHandler: Send + Sync + 'static {
    fn answer(
        self: Arc<Self>,
        request: http::Request<Body>,
    ) -> impl Future<Output = http::Response<Body>> + Send;
}

/// A server of both services.
pub fn serve_calls<H: CallHandler>(handler: &Arc<H>) -> Router {
    Server::builder()
        .add_service(Calls::<H, RuntimeService>::of(handler))
        .add_service(Calls::<H, ImageService>::of(handler))
}

/// A client of the runtime at that socket, which may start later, and again.
pub fn connect(socket: &Path) -> io::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(io::Error::other)?;
    Ok(endpoint.connect_lazy())
}

/// The runtime's answer; `UNAVAILABLE` if it cannot be reached.
pub async fn forward(mut runtime: Channel, request: http::Request<Body>) -> http::Response<Body> {
    let ready = std::future::poll_fn(|cx| runtime.poll_ready(cx)).await;
    let answer = match ready {
        Ok(()) => runtime.call(request).await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(|error| {
        Status::unavailable(format!("the runtime cannot be reached: {error}")).into_http()
    })
}

/// `RunPodSandbox` of `/runtime.v1.RuntimeService/RunPodSandbox`.
#[must_use]
pub fn method_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[must_use]
pub fn is_stream(method: &str) -> bool {
    STREAMS.contains(&method)
}

struct RuntimeService;
struct ImageService;

impl NamedService for RuntimeService {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl NamedService for ImageService {
    const NAME: &'static str = "runtime.v1.ImageService";
}

/// One of the services.
struct Calls<H, N> {
    handler: Arc<H>,
    service: PhantomData<fn() -> N>,
}

impl<H, N> Calls<H, N> {
    fn of(handler: &Arc<H>) -> Self {
        Self { handler: Arc::clone(handler), service: PhantomData }
    }
}

impl<H, N> Clone for Calls<H, N> {
    fn clone(&self) -> Self {
        Self::of(&self.handler)
    }
}

impl<H, N: NamedService> NamedService for Calls<H, N> {
    const NAME: &'static str = N::NAME;
}

impl<H: CallHandler, N> Service<http::Request<Body>> for Calls<H, N> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = Arc::clone(&self.handler).answer(request);
        Box::pin(async move { Ok(answer.await) })
    }
}
