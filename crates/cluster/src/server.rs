//! One API server, and the handles through which it is used.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::uri::Authority;
use model::k8s::{
    CertificateSigningRequest, ConfigMap, Event, Lease, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    RuntimeClass, Secret, Service, ServiceAccount, SubjectAccessReview, TokenRequest, TokenReview,
    TrustBundle,
};
use ports::cluster::{Cluster, ClusterError, ClusterResult, Collection};
use ports::request_metrics::ApiObserver;
use ports::{Clock, TraceContext};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::access::{Access, Impersonation};
use crate::budget::{Bucket, Budget};
use crate::client::{Call, Client, Watched};
use crate::credentials::Credentials;
use crate::dial::Dialer;
use crate::encode::percent;
use crate::error::AccessError;
use crate::objects::{JSON, MAX_OBJECT, Objects, Scope, json_body, malformed};
use crate::pool::Pool;
use crate::rng::Rng;
use crate::tls::{ClientIdentity, Tls};

/// How we present ourselves, and what comes in from outside.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `kubelet/v1.36.2 (linux/amd64) kubernetes/0f2a…`.
    pub user_agent: String,
    /// Several calls over one connection, where the server can; off by `DISABLE_HTTP2`.
    pub http2: bool,
    pub clock: Clock,
    /// Spreads when watches end.
    pub seed: u64,
    /// Knows which trace a call belongs to; `None` where nobody asked for traces.
    pub trace: Option<Arc<dyn TraceContext>>,
}

/// What sets one handle apart from the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HandleSettings {
    /// None: as many calls as it likes.
    pub budget: Option<Budget>,
    /// For each call, from when the budget allows it; for a watch, until it begins.
    pub deadline: Duration,
}

/// One API server. Its identity and its files may change while it is used: later calls get connections of the new
/// kind, calls under way end on the old ones.
#[derive(Debug)]
pub struct ApiServer {
    access: Access,
    authority: Authority,
    headers: HeaderMap,
    tls: Option<Arc<Tls>>,
    credentials: Arc<Credentials>,
    rng: Arc<Rng>,
    shared: Arc<Pool>,
    watched: Arc<Watched>,
    trace: Option<Arc<dyn TraceContext>>,
}

impl ApiServer {
    /// Reads the files that the access names; connects to nothing yet.
    ///
    /// # Errors
    /// A file or a value in it cannot be used.
    pub fn new(access: Access, settings: Settings) -> Result<Self, AccessError> {
        let authority = access
            .server
            .authority
            .parse()
            .map_err(|error| AccessError::new(format!("{}: {error}", access.server.authority)))?;
        let tls = if access.server.tls { Some(Arc::new(Tls::new(&access, settings.http2)?)) } else { None };
        let headers = headers(&settings.user_agent, &access.impersonation)?;
        let credentials = Arc::new(Credentials::new(&access.login, settings.clock, tls.clone()));
        let rng = Arc::new(Rng::new(settings.seed));
        let shared = pool(&access, &tls, &authority);
        let watched = Arc::new(Watched { host: authority.to_string(), observer: OnceLock::new() });
        let trace = settings.trace;
        Ok(Self { access, authority, headers, tls, credentials, rng, shared, watched, trace })
    }

    /// A handle that shares its connections with all others but those of [`Self::handle_apart`].
    #[must_use]
    pub fn handle(&self, settings: HandleSettings) -> ApiHandle {
        self.handle_over(Arc::clone(&self.shared), settings)
    }

    /// A handle with connections of its own: for heartbeats, which must get through whatever else is going on.
    #[must_use]
    pub fn handle_apart(&self, settings: HandleSettings) -> ApiHandle {
        self.handle_over(pool(&self.access, &self.tls, &self.authority), settings)
    }

    fn handle_over(&self, pool: Arc<Pool>, settings: HandleSettings) -> ApiHandle {
        let client = Client {
            pool,
            credentials: Arc::clone(&self.credentials),
            prefix: self.access.server.prefix.clone(),
            headers: self.headers.clone(),
            budget: settings.budget.map(Bucket::new),
            deadline: settings.deadline,
            watched: Arc::clone(&self.watched),
            trace: self.trace.clone(),
        };
        ApiHandle::new(&Arc::new(client), &self.rng)
    }

    /// From now on `observer` is told of every call. Only the first one is kept.
    pub fn observe(&self, observer: Arc<dyn ApiObserver>) {
        // Whoever comes second is told so by nothing else either.
        let _ = self.watched.observer.set(observer);
    }

    /// The calls to come show this certificate.
    ///
    /// # Errors
    /// Certificate and key do not belong together.
    pub fn set_identity(&self, identity: ClientIdentity) -> Result<(), AccessError> {
        match &self.tls {
            Some(tls) => tls.set_identity(identity),
            None => Err(AccessError::new(format!("{} has no use for certificates", self.access.server))),
        }
    }

    /// Reads the certificate files again. Whether there was anything new in them; what cannot be used changes nothing.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub fn reload(&self) -> Result<bool, AccessError> {
        self.tls.as_ref().map_or(Ok(false), |tls| tls.reload())
    }

    /// Where it is: `https://10.0.0.1:6443`.
    #[must_use]
    pub fn url(&self) -> String {
        self.access.server.to_string()
    }
}

fn pool(access: &Access, tls: &Option<Arc<Tls>>, authority: &Authority) -> Arc<Pool> {
    Pool::new(Dialer::new(access, tls.clone()), authority.clone())
}

fn headers(user_agent: &str, impersonation: &Impersonation) -> Result<HeaderMap, AccessError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(JSON));
    let mut add = |name: String, value: &str| {
        let wrong = || AccessError::new(format!("{value:?} cannot be the header {name}"));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        headers.append(header, HeaderValue::from_str(value).map_err(|_| wrong())?);
        Ok(())
    };
    add(USER_AGENT.to_string(), user_agent)?;
    for (name, value) in [("Impersonate-User", &impersonation.user), ("Impersonate-Uid", &impersonation.uid)]
    {
        if let Some(value) = value {
            add(name.to_owned(), value)?;
        }
    }
    for group in &impersonation.groups {
        add("Impersonate-Group".to_owned(), group)?;
    }
    for (key, values) in &impersonation.extra {
        for value in values {
            add(format!("Impersonate-Extra-{}", percent(key)), value)?;
        }
    }
    Ok(headers)
}

/// The version of this API that servers had before the one we ask for first.
const TRUST_BUNDLES_BEFORE: &str = "certificates.k8s.io/v1alpha1";

/// The API with a budget and a deadline of its own.
#[derive(Debug)]
pub struct ApiHandle {
    client: Arc<Client>,
    rng: Arc<Rng>,
    nodes: Objects<Node>,
    pods: Objects<Pod>,
    leases: Objects<Lease>,
    events: Objects<Event>,
    services: Objects<Service>,
    config_maps: Objects<ConfigMap>,
    secrets: Objects<Secret>,
    service_accounts: Objects<ServiceAccount>,
    runtime_classes: Objects<RuntimeClass>,
    trust_bundles: Objects<TrustBundle>,
    signing_requests: Objects<CertificateSigningRequest>,
}

impl ApiHandle {
    fn new(client: &Arc<Client>, rng: &Arc<Rng>) -> Self {
        let namespaced = Scope::Namespaced;
        let cluster = Scope::Cluster;
        Self {
            nodes: Objects::new(client, rng, cluster),
            pods: Objects::new(client, rng, namespaced),
            leases: Objects::new(client, rng, namespaced),
            events: Objects::new(client, rng, namespaced),
            services: Objects::new(client, rng, namespaced),
            config_maps: Objects::new(client, rng, namespaced),
            secrets: Objects::new(client, rng, namespaced),
            service_accounts: Objects::new(client, rng, namespaced),
            runtime_classes: Objects::new(client, rng, cluster),
            trust_bundles: Objects::new(client, rng, cluster).or(TRUST_BUNDLES_BEFORE),
            signing_requests: Objects::new(client, rng, cluster),
            client: Arc::clone(client),
            rng: Arc::clone(rng),
        }
    }

    /// Sends a question that is an object, and is answered by the same object filled in.
    async fn ask<Q: Serialize + DeserializeOwned + Sync>(
        &self,
        name: String,
        target: String,
        question: &Q,
    ) -> ClusterResult<Q> {
        let body = Some(json_body(&name, question)?);
        let call = Call { name, method: Method::POST, target, body, most: MAX_OBJECT };
        let json = self.client.answer(&call).await?;
        serde_json::from_slice(&json).map_err(|error| malformed(&call, &error))
    }
}

#[async_trait]
impl Cluster for ApiHandle {
    fn nodes(&self) -> &dyn Collection<Node> {
        &self.nodes
    }

    fn pods(&self) -> &dyn Collection<Pod> {
        &self.pods
    }

    fn leases(&self) -> &dyn Collection<Lease> {
        &self.leases
    }

    fn events(&self) -> &dyn Collection<Event> {
        &self.events
    }

    fn services(&self) -> &dyn Collection<Service> {
        &self.services
    }

    fn config_maps(&self) -> &dyn Collection<ConfigMap> {
        &self.config_maps
    }

    fn secrets(&self) -> &dyn Collection<Secret> {
        &self.secrets
    }

    fn service_accounts(&self) -> &dyn Collection<ServiceAccount> {
        &self.service_accounts
    }

    fn runtime_classes(&self) -> &dyn Collection<RuntimeClass> {
        &self.runtime_classes
    }

    fn trust_bundles(&self) -> &dyn Collection<TrustBundle> {
        &self.trust_bundles
    }

    fn signing_requests(&self) -> &dyn Collection<CertificateSigningRequest> {
        &self.signing_requests
    }

    async fn claim(&self, namespace: &str, name: &str) -> ClusterResult<PersistentVolumeClaim> {
        let claims = Objects::<PersistentVolumeClaim>::new(&self.client, &self.rng, Scope::Namespaced);
        claims.get(namespace, name).await
    }

    async fn persistent_volume(&self, name: &str) -> ClusterResult<PersistentVolume> {
        Objects::<PersistentVolume>::new(&self.client, &self.rng, Scope::Cluster).get("", name).await
    }

    async fn request_token(
        &self,
        namespace: &str,
        account: &str,
        request: &TokenRequest,
    ) -> ClusterResult<TokenRequest> {
        let name = format!("create token of serviceaccounts {namespace}/{account}");
        if namespace.is_empty() || account.is_empty() {
            let message = "the ServiceAccount needs a namespace and a name".to_owned();
            return Err(ClusterError::Invalid { call: name, message });
        }
        let (namespace, account) = (percent(namespace), percent(account));
        let target = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        self.ask(name, target, request).await
    }

    async fn review_token(&self, review: &TokenReview) -> ClusterResult<TokenReview> {
        let target = "/apis/authentication.k8s.io/v1/tokenreviews".to_owned();
        self.ask("create tokenreviews".to_owned(), target, review).await
    }

    async fn review_access(&self, review: &SubjectAccessReview) -> ClusterResult<SubjectAccessReview> {
        let target = "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned();
        self.ask("create subjectaccessreviews".to_owned(), target, review).await
    }

    async fn healthy(&self) -> ClusterResult<()> {
        let call = Call {
            name: "get /healthz".to_owned(),
            method: Method::GET,
            target: "/healthz".to_owned(),
            body: None,
            most: MAX_OBJECT,
        };
        self.client.answer(&call).await.map(drop)
    }

    fn close_connections(&self) {
        self.client.pool.renew();
    }
}
