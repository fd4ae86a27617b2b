//! The connection to the API server: its address, the credentials of this node, and the budgets of calls.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api_agent::ApiClients;
use api_agent::certificates::{ClientCertificate, Join, PairStore, StoredPair};
use api_agent::metrics::ApiMetrics;
use api_core::certificates::{
    BOOTSTRAP_TIMEOUT, CertificateUse, LoginFound, compute_bootstrap_reason, wanted_names,
};
use base_agent::context::Context;
use cluster::{
    Access, ApiServer, Bootstrap, Budget, ClientIdentity, HandleSettings, NodeIdentity, ProxyEnv, Settings,
    X509, kubeconfig,
};
use config::{KubeletConfiguration, Resolved};
use model::CertificateFacts;
use ports::{Certificates, Clock, Cluster, Host};
use tokio_util::sync::CancellationToken;

use crate::start_error::StartError;
use crate::systemd::wait_for_others;
use crate::traces;

/// The timeout of a call.
const DEADLINE: Duration = Duration::from_secs(30);
/// What systemd shows of a node that joins and whose certificate takes long.
const WAITS_FOR_CERTIFICATE: &str = "waiting for the client certificate of this node: kubectl get csr shows the request, kubectl certificate approve ends the wait";
/// Shorter, because a client of the kubelet's server waits for the answer.
const REVIEW_DEADLINE: Duration = Duration::from_secs(10);

/// The API server, and this node's credentials for it.
pub(crate) struct Connected {
    pub(crate) clients: ApiClients,
    /// For token and access reviews of clients of the main port, without a budget: a person may be waiting for the response.
    pub(crate) reviews: Arc<dyn Cluster>,
    pub(crate) identity: Arc<NodeIdentity>,
    pub(crate) store: PairStore,
    /// The facts of the current client certificate; `None` if there is none.
    pub(crate) certificate: Option<CertificateFacts>,
    /// That certificate was embedded in the kubeconfig and was not in the store.
    pub(crate) is_embedded: bool,
}

impl Connected {
    /// Reloads and rotates the credentials while the agent runs; cancels `must_exit` if that is not possible.
    pub(crate) fn keep(self, resolved: &Resolved, ctx: &Arc<Context>, must_exit: CancellationToken) {
        let Self { clients, identity, store, certificate, is_embedded, reviews: _ } = self;
        identity.server.observe(ctx.metrics.get::<ApiMetrics>());
        let tasks = &ctx.tasks;
        tasks.spawn("API files", api_agent::certificates::reload(identity.clone(), ctx.clock));
        let rotates = resolved.kubelet.rotate_certificates;
        let has_bootstrap = identity.bootstrap.is_some();
        // Without rotation and bootstrap kubeconfig, this kubelet cannot renew its certificate; a token is never replaced.
        if !rotates && (!has_bootstrap || certificate.is_none()) {
            return;
        }
        let keeper = ClientCertificate {
            store,
            identity,
            cluster: clients.general,
            clock: ctx.clock,
            rng: ctx.rng.branch(),
            node_name: ctx.settings.node_name.clone(),
            rotates,
            has_bootstrap,
            is_embedded,
            current: certificate,
            metrics: ctx.metrics.clone(),
            must_exit,
        };
        tasks.spawn("client certificate", keeper.run());
    }
}

/// `None` for a standalone kubelet. A node without a valid certificate bootstraps one first, if it has a bootstrap kubeconfig.
pub(crate) async fn connect(
    resolved: &Resolved,
    node_name: &str,
    host: &Host,
    seed: u64,
) -> Result<Option<Connected>, StartError> {
    if resolved.flags.standalone() {
        return Ok(None);
    }
    let connector = Connector::new(resolved, node_name, host, seed)?;
    let clock = connector.settings.clock;
    let bootstrap = Some(&resolved.flags.bootstrap_kubeconfig).filter(|path| !path.is_empty());
    let bootstrap = bootstrap.map(|path| connector.bootstrap(PathBuf::from(path)));
    connector.repair_current().await;
    let mut found = connector.find_login().await;
    if let (Some(bootstrap), Some(reason)) = (&bootstrap, compute_bootstrap_reason(&found, clock.now().wall))
    {
        tracing::info!(reason, "Bootstrapping client certificate with the bootstrap kubeconfig");
        wait_for_others(WAITS_FOR_CERTIFICATE, clock, Box::pin(connector.join(bootstrap))).await?;
        found = connector.find_login().await;
    }
    let certificate = match found {
        LoginFound::Unusable(problem) => return Err(StartError::Kubeconfig(problem)),
        LoginFound::Certificate { facts, .. } => Some(facts),
        LoginFound::Secret | LoginFound::Nothing => None,
    };
    let (server, access) = connector.open().await?;
    let is_embedded = connector.store_embedded(&access).await;
    let clients = clients(&server, &resolved.kubelet);
    let reviews = Arc::new(server.handle(HandleSettings { budget: None, deadline: REVIEW_DEADLINE }));
    let identity = Arc::new(NodeIdentity { server: Arc::new(server), access, bootstrap });
    Ok(Some(Connected { clients, reviews, identity, store: connector.store, certificate, is_embedded }))
}

/// What is needed to connect to the API server.
struct Connector {
    /// `--kubeconfig`.
    path: PathBuf,
    proxies: ProxyEnv,
    settings: Settings,
    store: PairStore,
    rotates: bool,
    node_name: String,
}

impl Connector {
    fn new(resolved: &Resolved, node_name: &str, host: &Host, seed: u64) -> Result<Self, StartError> {
        // The kubeconfig refers to files in it, and may be read from any working directory.
        let cert_dir = std::path::absolute(&resolved.flags.cert_dir).map_err(|error| {
            StartError::Host(format!("--cert-dir {:?}: {error}", resolved.flags.cert_dir))
        })?;
        Ok(Self {
            path: PathBuf::from(&resolved.flags.kubeconfig),
            proxies: ProxyEnv::from_env(),
            settings: Settings {
                user_agent: user_agent(&host.machine.info().architecture),
                http2: std::env::var_os("DISABLE_HTTP2").is_none_or(|value| value.is_empty()),
                clock: Clock::system(),
                seed,
                trace: traces::context(resolved.kubelet.tracing.as_ref()),
            },
            store: PairStore {
                files: host.files.clone(),
                certificates: Arc::new(X509),
                dir: cert_dir,
                name: "kubelet-client",
            },
            rotates: resolved.kubelet.rotate_certificates,
            node_name: node_name.to_owned(),
        })
    }

    fn bootstrap(&self, kubeconfig: PathBuf) -> Bootstrap {
        Bootstrap {
            kubeconfig,
            proxies: self.proxies.clone(),
            settings: self.settings.clone(),
            handle: HandleSettings { budget: None, deadline: DEADLINE },
        }
    }

    /// A certificate that this kubelet rotated has precedence over that of the kubeconfig.
    async fn renewed(&self) -> Option<StoredPair> {
        if !self.rotates {
            return None;
        }
        let wanted = wanted_names(CertificateUse::Client, &self.node_name, [], []);
        let now = self.settings.clock.now().wall;
        match self.store.load().await {
            Ok(stored) => {
                stored.filter(|stored| stored.facts.is_good_at(now) && stored.facts.names.cover(&wanted))
            }
            Err(error) => {
                tracing::warn!(err = %error, "Failed to load rotated client certificate");
                None
            }
        }
    }

    /// Repairs the link to the current pair, which the kubeconfig may refer to: after a power cut, its target may be empty.
    async fn repair_current(&self) {
        if let Err(error) = self.store.load().await {
            tracing::debug!(err = %error, "Failed to load current client certificate");
        }
    }

    async fn find_login(&self) -> LoginFound {
        let access = match kubeconfig::read(&self.path, &self.proxies) {
            Ok(access) => access,
            Err(error) => return LoginFound::Unusable(error.to_string()),
        };
        if let Some(stored) = self.renewed().await {
            let origin = self.store.current_path().display().to_string();
            return LoginFound::Certificate { facts: stored.facts, origin };
        }
        let origin = access.client_origin();
        let unusable = |error: &dyn std::fmt::Display| {
            LoginFound::Unusable(format!("the kubeconfig {}: {origin}: {error}", self.path.display()))
        };
        match access.client_pair() {
            Ok(None) if access.has_login() => LoginFound::Secret,
            Ok(None) => LoginFound::Nothing,
            Ok(Some(pair)) => match X509.read(&pair) {
                Ok(facts) => LoginFound::Certificate { facts, origin },
                Err(error) => unusable(&error),
            },
            Err(error) => unusable(&error),
        }
    }

    /// Stores a certificate that is embedded in the kubeconfig, unless the store has one that has not expired. kubeadm writes
    /// such kubeconfigs for control plane nodes, and replaces them by one that refers to `kubelet-client-current.pem` when that
    /// file exists. Returns whether the certificate is to be rotated at once.
    async fn store_embedded(&self, access: &Access) -> bool {
        if !self.rotates || !access.embeds_client_pair() {
            return false;
        }
        let now = self.settings.clock.now().wall;
        match self.store.load().await {
            Ok(Some(stored)) if now < stored.facts.not_after => return false,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(err = %error, "Failed to load stored client certificate, replacing it by that of the kubeconfig")
            }
        }
        let Ok(Some(pair)) = access.client_pair() else { return false };
        if let Err(error) = self.store.save(&pair, now).await {
            tracing::warn!(err = %error, "Failed to store client certificate of the kubeconfig");
        }
        true
    }

    /// Requests a certificate and writes a kubeconfig with it.
    async fn join(&self, bootstrap: &Bootstrap) -> Result<(), StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError::Bootstrap(error.to_string());
        let text = kubeconfig::for_node(&bootstrap.kubeconfig, &self.store.current_path());
        let text = text.map_err(|error| failed(&error))?;
        let cluster = bootstrap.open().map_err(|error| failed(&error))?;
        let join = Join {
            cluster: &cluster,
            clock: self.settings.clock,
            store: &self.store,
            node_name: &self.node_name,
            timeout: BOOTSTRAP_TIMEOUT,
        };
        join.run().await.map_err(|error| failed(&error))?;
        let written = async {
            if let Some(dir) = self.path.parent() {
                tokio::fs::create_dir_all(dir).await.map_err(|error| failed(&error))?;
            }
            let written = self.store.files.write_durably(&self.path, text.as_bytes(), 0o600).await;
            written.map_err(|error| failed(&base_agent::error_chain::chain(&error)))
        };
        written.await
    }

    async fn open(&self) -> Result<(ApiServer, Access), StartError> {
        let named = |error: &dyn std::fmt::Display| {
            StartError::Kubeconfig(format!("the kubeconfig {}: {error}", self.path.display()))
        };
        let access = kubeconfig::read(&self.path, &self.proxies)
            .map_err(|error| StartError::Kubeconfig(error.to_string()))?;
        let server = ApiServer::new(access.clone(), self.settings.clone()).map_err(|error| named(&error))?;
        if let Some(StoredPair { pair, .. }) = self.renewed().await {
            let identity = ClientIdentity::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes());
            identity.and_then(|identity| server.set_identity(identity)).map_err(|error| named(&error))?;
        }
        tracing::info!(url = server.url(), "Using API server");
        Ok((server, access))
    }
}

fn clients(server: &ApiServer, config: &KubeletConfiguration) -> ApiClients {
    let handle = |budget, deadline| HandleSettings { budget, deadline };
    let kube = budget(config.kube_api_qps, config.kube_api_burst);
    let events = budget(config.event_record_qps, config.event_burst);
    // A heartbeat after the lease has expired is too late.
    let lease = model::time::wait_of(config.node_lease_duration_seconds.into());
    let beat = config.node_status_update_frequency.as_std().min(lease);
    ApiClients {
        general: Arc::new(server.handle(handle(kube, DEADLINE))),
        status: Arc::new(server.handle(handle(kube, DEADLINE))),
        events: Arc::new(server.handle(handle(events, DEADLINE))),
        heartbeat: Arc::new(server.handle_apart(handle(None, beat))),
    }
}

/// A QPS of zero is the default of 5, a negative one is no limit.
fn budget(qps: i32, burst: i32) -> Option<Budget> {
    const DEFAULT_QPS: f64 = 5.0;
    let per_second = match qps {
        0 => DEFAULT_QPS,
        n if n < 0 => return None,
        n => f64::from(n),
    };
    Some(Budget { per_second, burst: u32::try_from(burst).unwrap_or(1).max(1) })
}

fn user_agent(architecture: &str) -> String {
    let version = config::KUBERNETES_VERSION;
    format!("kubelet/{version} (linux/{architecture}) kubernetes/kubelet-rs-{}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_qps_is_the_default_and_negative_qps_is_no_limit() {
        let limits = |qps, burst| budget(qps, burst).map(|budget| (budget.per_second, budget.burst));
        assert_eq!(limits(7, 9), Some((7.0, 9)));
        assert_eq!(limits(0, 9), Some((5.0, 9)));
        assert_eq!(limits(7, 0), Some((7.0, 1)), "a burst of 0 is 1");
        assert_eq!(limits(-1, 9), None);
    }
}
