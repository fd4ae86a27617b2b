//! The main port (10250): TLS, a gate that every request passes, and behind it the endpoints.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use config::{Features, KubeletConfiguration};
use ports::{Clock, NodeApi, OwnProcess};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::access::{AccessSettings, Gate};
use crate::connections::{self, Limits, Site};
use crate::tls::{self, ServingPair, TlsError, TlsSettings};
use crate::{Api, complete, endpoint};

/// As the original: how long a connection may idle, and how long it may last. The original has no other limits.
const LIMITS: Limits = Limits {
    connections: 1024,
    per_peer: 256,
    first_request: Duration::from_secs(10),
    idle: Duration::from_secs(90),
    age: Duration::from_secs(4 * 3600),
};

/// What the main port is made of.
#[derive(Debug)]
pub struct MainPort {
    pub api: Arc<dyn NodeApi>,
    /// What is served with, as long as it is the latest; handshakes fail while there is none.
    pub pair: watch::Receiver<Option<ServingPair>>,
    pub access: AccessSettings,
    pub config: Arc<KubeletConfiguration>,
    pub features: Features,
    pub process: Arc<dyn OwnProcess>,
    pub clock: Clock,
}

/// Groups of endpoints that can be switched off.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "four switches of the configuration, each on its own")]
pub(crate) struct Switches {
    pub(crate) debugging: bool,
    pub(crate) system_logs: bool,
    pub(crate) profiling: bool,
    pub(crate) debug_flags: bool,
}

impl Switches {
    const fn of(config: &KubeletConfiguration) -> Self {
        Self {
            debugging: config.enable_debugging_handlers,
            system_logs: config.enable_system_log_handler,
            profiling: config.enable_profiling_handler,
            debug_flags: config.enable_debug_flags_handler,
        }
    }
}

/// What the endpoints share.
#[derive(Clone, Debug)]
pub(crate) struct MainState {
    pub(crate) api: Api,
    pub(crate) config: Arc<KubeletConfiguration>,
    pub(crate) process: Arc<dyn OwnProcess>,
    pub(crate) features: Features,
    pub(crate) clock: Clock,
}

impl FromRef<MainState> for Api {
    fn from_ref(state: &MainState) -> Self {
        Arc::clone(&state.api)
    }
}

/// A main port that can be served.
#[derive(Debug)]
pub struct MainServer(Site);

impl MainServer {
    /// # Errors
    /// The configuration leaves nothing that a handshake could agree on.
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
        let router = complete(endpoint::router(switches, &features), state);
        let gate = Some(Gate::new(access, clock, observer.clone()));
        Ok(Self(Site { router, gate, tls: Some(tls), limits: LIMITS, observer }))
    }

    /// Ends soon after `shutdown` does.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send) {
        connections::serve(listener, self.0, shutdown).await;
    }
}
