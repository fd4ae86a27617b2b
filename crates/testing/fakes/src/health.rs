//! A gRPC health server (`grpc.health.v1.Health`) on all addresses of this machine, which reports for each service what the test
//! sets.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::net::TcpListener as TokioListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct CheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`: 1 is `SERVING`, 2 is `NOT_SERVING`.
#[derive(Clone, PartialEq, prost::Message)]
struct CheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// The status of each service; one that is not listed is not found.
type Services = Arc<Mutex<BTreeMap<String, bool>>>;

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct HealthServer {
    port: u16,
    services: Services,
    task: JoinHandle<()>,
}

impl HealthServer {
    /// Serves on a free port, in a task of the current tokio runtime.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let services = Services::default();
        let incoming = TcpListenerStream::new(TokioListener::from_std(listener)?);
        let health = Health { services: services.clone() };
        let serving = tonic::transport::Server::builder().add_service(health).serve_with_incoming(incoming);
        let task = tokio::spawn(async move {
            // It ends by abort; an error before that shows as refused connections.
            let _ = serving.await;
        });
        Ok(Self { port, services, task })
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on the service is serving, or not.
    pub fn set(&self, service: &str, is_serving: bool) {
        self.services.lock().insert(service.to_owned(), is_serving);
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone, Debug)]
struct Health {
    services: Services,
}

impl NamedService for Health {
    const NAME: &'static str = "grpc.health.v1.Health";
}

/// Only the method `Check` of the service is used; every call is answered as that.
impl Service<http::Request<Body>> for Health {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let health = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<CheckResponse, CheckRequest>::default();
            Ok(Grpc::new(codec).unary(health, request).await)
        })
    }
}

impl UnaryService<CheckRequest> for Health {
    type Response = CheckResponse;
    type Future = Ready<Result<Response<CheckResponse>, Status>>;

    fn call(&mut self, request: Request<CheckRequest>) -> Self::Future {
        let is_serving = self.services.lock().get(&request.get_ref().service).copied();
        let answer = is_serving.map(|yes| Response::new(CheckResponse { status: if yes { 1 } else { 2 } }));
        ready(answer.ok_or_else(|| Status::not_found("unknown service")))
    }
}
