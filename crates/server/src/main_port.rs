//! The main port (10250): TLS, authentication and authorization of every request, and the endpoints.

use std::sync::Arc;
use std::time::Duration;

use config::{Features, KubeletConfiguration};
use ports::{Clock, NodeApi, OwnProcess};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::access::{AccessSettings, Gate};
use crate::complete;
use crate::endpoints::router;
use crate::state::{MainState, Switches};
use crate::tls::{self, ServingPair, TlsError, TlsSettings};
use crate::transport::connections::{self, Limits, ServedPort};

/// Idle timeout and maximum age of a connection are those of the Go kubelet, which has no other limits.
const LIMITS: Limits = Limits {
    connections: 1024,
    per_peer: 256,
    first_request: Duration::from_secs(10),
    idle: Duration::from_secs(90),
    age: Duration::from_secs(4 * 3600),
};

/// Settings of the main port.
#[derive(Debug)]
pub struct MainPort {
    pub api: Arc<dyn NodeApi>,
    /// The latest serving certificate; handshakes fail while there is none.
    pub pair: watch::Receiver<Option<ServingPair>>,
    pub access: AccessSettings,
    pub config: Arc<KubeletConfiguration>,
    pub features: Features,
    pub process: Arc<dyn OwnProcess>,
    pub clock: Clock,
}

/// A configured main port, ready to serve.
#[derive(Debug)]
pub struct MainServer(ServedPort);

impl MainServer {
    /// # Errors
    /// The TLS settings allow no cipher suite or curve.
    pub fn new(port: MainPort) -> Result<Self, TlsError> {
        let MainPort { api, pair, access, config, features, process, clock } = port;
        let settings = TlsSettings {
            min_version: config.tls_min_version.clone(),
            cipher_suites: config.tls_cipher_suites.clone(),
            curves: config.tls_curve_preferences.clone(),
        };
        let tls = TlsAcceptor::from(tls::server_config(&settings, pair)?);
        let switches = Switches::of(&config);
        let observer = api.observer();
        let state = MainState { api, config, process, features, clock };
        let router = complete(router::router(switches, &features), state);
        let gate = Some(Gate::new(access, clock, observer.clone()));
        let requests = watch::Sender::new(0);
        Ok(Self(ServedPort { router, gate, tls: Some(tls), limits: LIMITS, observer, requests }))
    }

    /// How many requests and streams are being served.
    #[must_use]
    pub fn requests(&self) -> watch::Receiver<usize> {
        self.0.requests.subscribe()
    }

    /// Ends soon after `shutdown` does.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send) {
        connections::serve(listener, self.0, shutdown).await;
    }
}
