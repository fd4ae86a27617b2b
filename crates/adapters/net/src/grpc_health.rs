//! `grpc.health.v1.Health/Check` over plain HTTP/2.

use std::future::{Ready, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use ports::net::{GrpcHealth, NetError};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::dial;

const CHECK: &str = "/grpc.health.v1.Health/Check";
/// `User-Agent` of probes.
const USER_AGENT: &str = "kube-probe/1.36";
/// Limit for a response, which has one small number.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub(crate) status: i32,
}

/// `grpc.health.v1.HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

impl ServingStatus {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Serving => "SERVING",
            Self::NotServing => "NOT_SERVING",
            Self::ServiceUnknown => "SERVICE_UNKNOWN",
        }
    }
}

/// Cancel safe: dropping the future closes the connection.
pub(crate) async fn check(
    host: IpAddr,
    port: u16,
    service: &str,
    timeout: Duration,
) -> Result<GrpcHealth, NetError> {
    let address = SocketAddr::new(host, port);
    let mut connected = false;
    // The request has no timeout: tonic would enforce it, too, and the error would depend on which one is first.
    let request = Request::new(HealthCheckRequest { service: service.to_owned() });
    let call = Box::pin(call_health(address, request, &mut connected));
    match tokio::time::timeout(timeout, call).await {
        Ok(health) => health,
        Err(_) if connected => {
            Err(NetError::TimedOut { what: "timeout: health rpc did not complete".into(), after: timeout })
        }
        Err(_) => Err(NetError::TimedOut {
            what: format!("timeout: failed to connect service \"{address}\""),
            after: timeout,
        }),
    }
}

async fn call_health(
    address: SocketAddr,
    request: Request<HealthCheckRequest>,
    connected: &mut bool,
) -> Result<GrpcHealth, NetError> {
    let stream = dial::connect(&address.ip().to_string(), address.port()).await?;
    *connected = true;
    let endpoint = Endpoint::try_from(format!("http://{address}"))
        .and_then(|endpoint| endpoint.user_agent(USER_AGENT))
        .map_err(|error| NetError::Invalid(error.to_string()))?;
    let channel = endpoint
        .connect_with_connector(Connected(Some(stream)))
        .await
        .map_err(|error| NetError::Protocol(chain(&error)))?;
    let mut client = Grpc::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
    client.ready().await.map_err(|error| NetError::Protocol(chain(&error)))?;
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    match client.unary(request, PathAndQuery::from_static(CHECK), codec).await {
        Ok(response) => Ok(health_of(response.get_ref().status)),
        Err(status) => refused(&status),
    }
}

fn health_of(status: i32) -> GrpcHealth {
    match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => GrpcHealth::Serving,
        Ok(other @ (ServingStatus::Unknown | ServingStatus::NotServing | ServingStatus::ServiceUnknown)) => {
            GrpcHealth::NotServing(other.as_str().to_owned())
        }
        Err(_) => GrpcHealth::NotServing(status.to_string()),
    }
}

/// As grpc-go shows an error.
fn refused(status: &Status) -> Result<GrpcHealth, NetError> {
    let (code, message) = (status.code(), status.message());
    if code == Code::Unimplemented {
        return Ok(GrpcHealth::Unimplemented(message.to_owned()));
    }
    Err(NetError::Protocol(format!("rpc error: code = {code:?} desc = {message}")))
}

/// An error with its causes, because tonic's own text is only `transport error`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// A connector that returns the connection that was opened before, once.
struct Connected(Option<TcpStream>);

impl Service<Uri> for Connected {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        ready(self.0.take().map(TokioIo::new).ok_or_else(|| io::ErrorKind::ConnectionAborted.into()))
    }
}
