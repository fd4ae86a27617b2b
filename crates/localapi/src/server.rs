//! Starting and stopping a server, and the kubeconfigs of its clients.

mod backup;
mod control;
mod foundation;
mod free_memory;
mod identity;
mod initial;
mod listener;
mod roles;
mod unbound;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::admission::services::API_ADDRESS;
use crate::api::Api;
use crate::audit::AuditLog;
use crate::auth::authority::{KeyAndCertificate, Validity};
use crate::auth::tokens::{Tokens, bootstrap_secret};
use crate::auth::x509::ClientCertificates;
use crate::auth::{NODE_USER_PREFIX, NODES};
use crate::clock::Rng;
use crate::controllers;
use crate::options::{Options, State};
use crate::proxy::{Backends, Proxy, Streams};
use crate::registry::namespaces;
use crate::resource_metrics::UsageCache;
use crate::signing;
use crate::status::ApiError;
use crate::store::disk::DatabaseProblem;
use crate::store::seal::KeyProblem;
use foundation::Foundation;

/// The name in kubeconfigs.
const CLUSTER: &str = "single-node";
const SERVER_NAMES: &[&str] = &[
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// A server that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("failed to listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("failed to create the certificates: {0}")]
    Certificates(String),
    #[error("failed to load the signing key of service account tokens: {0}")]
    TokenKey(String),
    #[error(
        "invalid bootstrap token {0:?}: expected six lowercase letters or digits, a dot, sixteen lowercase letters or digits"
    )]
    BootstrapToken(String),
    #[error("failed to open the audit log {path}: {source}", path = path.display())]
    AuditLog { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Database(#[from] DatabaseProblem),
    #[error(transparent)]
    EncryptionKey(#[from] KeyProblem),
    #[error("failed to create the initial objects: {0}")]
    Initial(String),
}

fn certificates(error: impl std::fmt::Display) -> StartError {
    StartError::Certificates(error.to_string())
}

fn failed_initial(error: ApiError) -> StartError {
    StartError::Initial(error.message)
}

/// The entry point.
#[derive(Debug)]
pub struct LocalApi;

/// A server that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    api: Arc<Api>,
    tasks: JoinSet<()>,
}

impl LocalApi {
    /// Starts a server; it accepts requests when this returns.
    pub async fn start(options: Options) -> Result<Running, StartError> {
        let bound = TcpListener::bind(options.listen).await.and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        let (listener, address) =
            bound.map_err(|source| StartError::Listen { address: options.listen, source })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let now = options.clock.now();
        let Foundation { store, authority, signer, durable } = foundation::lay(&options, now)?;
        let clients =
            ClientCertificates::of(authority.certificate(), Arc::clone(&provider)).map_err(certificates)?;
        let addresses = [options.listen.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(API_ADDRESS)];
        let own = authority.server(SERVER_NAMES, &addresses, now).map_err(certificates)?;
        let backends =
            Backends::new(&authority, &options.clock, &provider).map_err(StartError::Certificates)?;
        let tls = acceptor(&own, &clients, provider)?;
        let bootstrap_secrets = bootstrap_secrets(&options.bootstrap_tokens)?;
        let closing = CancellationToken::new();
        let streams = Streams::new(closing.clone());
        let proxy = Proxy { backends, streams, kubelet_address: options.behaviour.kubelet_address };
        let api = Arc::new(Api {
            address,
            store,
            clock: options.clock,
            rng: Rng::new(),
            authority,
            clients,
            tokens: Tokens { static_tokens: options.tokens, signer },
            behaviour: options.behaviour,
            audit: options.audit_log.as_deref().map(audit_log).transpose()?,
            proxy,
            usage: UsageCache::default(),
            closing,
            durable,
        });
        initial::create(&api, address, bootstrap_secrets).map_err(failed_initial)?;
        namespaces::resume(&api);
        let mut tasks = JoinSet::new();
        tasks.spawn(signing::run(Arc::clone(&api)));
        controllers::start(&api, &mut tasks);
        if let Some(release) = options.release_memory {
            tasks.spawn(free_memory::run(Arc::clone(&api), release));
        }
        serve_commands(&api, &mut tasks);
        tasks.spawn(listener::serve(listener, tls, Arc::clone(&api)));
        Ok(Running { address, api, tasks })
    }
}

/// The backups of a server with a database. One without its socket still serves its clients.
fn serve_commands(api: &Arc<Api>, tasks: &mut JoinSet<()>) {
    let Some(durable) = &api.durable else { return };
    tasks.spawn(backup::run(Arc::clone(api)));
    match control::listen(&durable.directory) {
        Ok(listener) => drop(tasks.spawn(control::serve(listener, Arc::clone(api)))),
        Err(error) => tracing::error!(err = %error, "failed to open the control socket"),
    }
}

fn audit_log(path: &Path) -> Result<AuditLog, StartError> {
    AuditLog::open(path).map_err(|source| StartError::AuditLog { path: path.to_owned(), source })
}

fn bootstrap_secrets(tokens: &[String]) -> Result<Vec<Value>, StartError> {
    let secret =
        |token: &String| bootstrap_secret(token).ok_or_else(|| StartError::BootstrapToken(token.clone()));
    tokens.iter().map(secret).collect()
}

fn acceptor(
    own: &KeyAndCertificate,
    clients: &ClientCertificates,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<TlsAcceptor, StartError> {
    let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).map_err(certificates)?;
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).map_err(certificates)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(certificates)?
        .with_client_cert_verifier(clients.for_handshake())
        .with_single_cert(vec![certificate], key)
        .map_err(certificates)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Running {
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate that clients must trust.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.api.authority.pem().certificate
    }

    /// Creates a client certificate for a user, in one group (`system:masters` has all permissions) or in none.
    pub fn client_certificate(
        &self,
        user: &str,
        group: Option<&str>,
        lifetime: Duration,
    ) -> Result<KeyAndCertificate, StartError> {
        let validity = Validity::starting(self.api.now(), lifetime);
        self.api.authority.client(user, group, validity).map_err(certificates)
    }

    /// A kubeconfig, as JSON (which is YAML too), with a new client certificate that is valid for a year.
    pub fn kubeconfig(&self, user: &str, group: Option<&str>) -> Result<String, StartError> {
        let year = Duration::from_secs(365 * 24 * 3600);
        let client = self.client_certificate(user, group, year)?;
        Ok(self.kubeconfig_with(&json!({
            "client-certificate-data": STANDARD.encode(&client.certificate),
            "client-key-data": STANDARD.encode(&client.key),
        })))
    }

    /// A kubeconfig for the node of this name.
    pub fn node_kubeconfig(&self, node: &str) -> Result<String, StartError> {
        self.kubeconfig(&format!("{NODE_USER_PREFIX}{node}"), Some(NODES))
    }

    /// A kubeconfig with a bearer token, for example a bootstrap token.
    #[must_use]
    pub fn token_kubeconfig(&self, token: &str) -> String {
        self.kubeconfig_with(&json!({"token": token}))
    }

    fn kubeconfig_with(&self, user: &Value) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": CLUSTER,
                "cluster": {
                    "server": self.url(),
                    "certificate-authority-data": STANDARD.encode(self.ca_pem()),
                },
            }],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": "user"}}],
            "current-context": CLUSTER,
        })
        .to_string()
    }

    /// Discards the history: a watch from an older revision fails as expired.
    pub fn compact(&self) {
        self.api.store.compact();
    }

    /// Returns when the server was asked to end at its control socket.
    pub async fn asked_to_end(&self) {
        self.api.closing.cancelled().await;
    }

    /// Stops the server: accepts no new requests, ends watches and waits for other requests. The next server can start with
    /// the returned state; the port is free when this returns.
    pub async fn stop(mut self) -> State {
        self.api.closing.cancel();
        self.api.store.end_watches();
        while self.tasks.join_next().await.is_some() {}
        self.api.proxy.streams.ended().await;
        State {
            store: Arc::clone(&self.api.store),
            authority: self.api.authority.pem().clone(),
            token_key: self.api.tokens.signer.pkcs8().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn watch_that_begins_while_the_server_stops_does_not_keep_it_from_that() {
        let running = LocalApi::start(Options::default()).await.expect("a server");
        let api = Arc::clone(&running.api);
        let after_the_end = |store: &Store| {
            api.closing.cancel();
            store.end_watches();
            store.watch_everything()
        };
        assert!(api.watch_until_stopped(Store::watch_everything).is_some());
        assert!(api.watch_until_stopped(after_the_end).is_none());
        tokio::time::timeout(Duration::from_secs(60), running.stop()).await.expect("it stops");
    }
}
