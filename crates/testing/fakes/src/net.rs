//! A network in memory: each port answers as scripted. Ports without a script are closed.
//!
//! Owns [`FakeNet`]. Never opens a socket; time passes on tokio's clock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Net;
use ports::net::{GrpcHealth, HttpAnswer, HttpGet, NetError, Scheme};

/// The service on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// HTTP with this status and body; TCP connects; gRPC is not supported.
    Http { status: u16, body: String },
    /// gRPC health with this answer; TCP connects.
    Grpc(GrpcHealth),
    /// HTTP with status 200 and no body, on a port that does not speak TLS.
    PlainHttp,
    /// Accepts connections and sends nothing.
    Silent,
}

impl Service {
    /// HTTP with this status and no body.
    #[must_use]
    pub const fn http(status: u16) -> Self {
        Self::Http { status, body: String::new() }
    }
}

/// The fake. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct FakeNet {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// By host (`None`: every host) and port.
    services: BTreeMap<(Option<String>, u16), Service>,
    calls: Vec<String>,
    http_requests: Vec<HttpGet>,
}

impl FakeNet {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// On that port, every host answers like this.
    pub fn serve(&self, port: u16, service: Service) -> &Self {
        self.state.lock().services.insert((None, port), service);
        self
    }

    /// On that port, this host answers like this.
    pub fn serve_on(&self, host: &str, port: u16, service: Service) -> &Self {
        self.state.lock().services.insert((Some(host.to_owned()), port), service);
        self
    }

    /// Closes that port on every host.
    pub fn close(&self, port: u16) -> &Self {
        self.state.lock().services.retain(|(_, served), _| *served != port);
        self
    }

    /// Every call so far: `GET 10.0.0.1:80/healthz`, `CONNECT 10.0.0.1:80`, `HEALTH 10.0.0.1:80/service`.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    /// Every HTTP request so far.
    #[must_use]
    pub fn http_requests(&self) -> Vec<HttpGet> {
        self.state.lock().http_requests.clone()
    }

    fn call(&self, line: String, host: &str, port: u16) -> Result<Service, NetError> {
        let mut state = self.state.lock();
        state.calls.push(line);
        let services = &state.services;
        let service = services.get(&(Some(host.to_owned()), port)).or_else(|| services.get(&(None, port)));
        let refused = || NetError::Connect(format!("dial tcp {host}:{port}: connect: connection refused"));
        service.cloned().ok_or_else(refused)
    }
}

async fn silence<T: Send>(what: String, after: Duration) -> Result<T, NetError> {
    tokio::time::sleep(after).await;
    Err(NetError::TimedOut { what, after })
}

#[async_trait]
impl Net for FakeNet {
    /// Resolves no names.
    async fn resolve(&self, name: &str, _timeout: Duration) -> Result<Vec<IpAddr>, NetError> {
        Err(NetError::Connect(format!("lookup {name}: no such host")))
    }

    async fn http_get(&self, request: &HttpGet) -> Result<HttpAnswer, NetError> {
        let target = format!("{}:{}{}", request.host, request.port, request.path);
        self.state.lock().http_requests.push(request.clone());
        match self.call(format!("GET {target}"), &request.host, request.port)? {
            Service::Http { status, body } => {
                let mut body = body.into_bytes();
                let truncated = body.len() > request.max_body_bytes;
                body.truncate(request.max_body_bytes);
                Ok(HttpAnswer { status, body, truncated, redirected_elsewhere: false })
            }
            Service::PlainHttp if request.scheme == Scheme::Https => Err(NetError::PlainHttpServer),
            Service::PlainHttp => Ok(HttpAnswer {
                status: 200,
                body: Vec::new(),
                truncated: false,
                redirected_elsewhere: false,
            }),
            Service::Grpc(_) => Err(NetError::Protocol("malformed HTTP response".to_owned())),
            Service::Silent => match request.timeout {
                Some(timeout) => silence(format!("GET {target}"), timeout).await,
                None => std::future::pending().await,
            },
        }
    }

    async fn tcp_connect(&self, host: &str, port: u16, _timeout: Duration) -> Result<(), NetError> {
        self.call(format!("CONNECT {host}:{port}"), host, port).map(|_| ())
    }

    async fn grpc_health(
        &self,
        host: IpAddr,
        port: u16,
        service: &str,
        timeout: Duration,
    ) -> Result<GrpcHealth, NetError> {
        let line = format!("HEALTH {host}:{port}/{service}");
        match self.call(line.clone(), &host.to_string(), port)? {
            Service::Grpc(health) => Ok(health),
            Service::Http { .. } | Service::PlainHttp => {
                Err(NetError::Protocol("no gRPC on this port".to_owned()))
            }
            Service::Silent => silence(line, timeout).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(port: u16) -> HttpGet {
        HttpGet {
            scheme: Scheme::Http,
            host: "10.0.0.1".to_owned(),
            port,
            path: "/healthz".to_owned(),
            headers: Vec::new(),
            timeout: Some(Duration::from_secs(1)),
            max_body_bytes: 4,
            verify_tls: false,
        }
    }

    #[tokio::test]
    async fn fake_service_answers_until_closed() {
        let net = FakeNet::new();
        net.serve(80, Service::Http { status: 200, body: "all is well".to_owned() });
        let answer = net.http_get(&get(80)).await.unwrap();
        assert_eq!((answer.status, &*answer.body, answer.truncated), (200, &b"all "[..], true));
        net.close(80);
        assert!(matches!(net.http_get(&get(80)).await, Err(NetError::Connect(_))));
        assert_eq!(net.calls(), ["GET 10.0.0.1:80/healthz", "GET 10.0.0.1:80/healthz"]);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_service_times_out_at_the_deadline() {
        let net = FakeNet::new();
        net.serve_on("10.0.0.1", 80, Service::Silent);
        let began = tokio::time::Instant::now();
        assert!(matches!(net.http_get(&get(80)).await, Err(NetError::TimedOut { .. })));
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }
}
