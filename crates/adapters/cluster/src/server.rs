//! One API server, and the handles to call it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::uri::Authority;
use model::ServiceObject;
use model::k8s::{
    CSIDriver, CSINode, CertificateSigningRequest, ConfigMap, Event, Lease, Node, PersistentVolume,
    PersistentVolumeClaim, Pod, PodCertificateRequest, ResourceClaim, RuntimeClass, Secret, Service,
    ServiceAccount, SubjectAccessReview, TokenRequest, TokenReview, TrustBundle, VolumeAttachment,
};
use ports::cluster::{Cluster, ClusterError, ClusterResult, Collection, ListWatch, Part, Patch};
use ports::request_metrics::ApiObserver;
use ports::{Clock, TraceContext};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::access::{Access, Impersonation};
use crate::budget::{Budget, CallLimiter};
use crate::client::{Call, CallMetrics, Client};
use crate::credentials::Credentials;
use crate::decode::MAX_OBJECT;
use crate::dial::Dialer;
use crate::encode::percent;
use crate::error::AccessError;
use crate::objects::{JSON, Objects, Scope, json_body, malformed};
use crate::pool::Pool;
use crate::rng::Rng;
use crate::tls::{ClientIdentity, Tls};

/// Settings of the client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `kubelet/v1.36.2 (linux/amd64) kubernetes/0f2a…`.
    pub user_agent: String,
    /// HTTP/2 if the server supports it; off with `DISABLE_HTTP2`.
    pub http2: bool,
    pub clock: Clock,
    /// Seed for the jitter of watch timeouts.
    pub seed: u64,
    /// The trace context of calls; `None` if tracing is off.
    pub trace: Option<Arc<dyn TraceContext>>,
}

/// Settings of one handle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HandleSettings {
    /// `None`: no rate limit.
    pub budget: Option<Budget>,
    /// For each call, from when the rate limit allows it; for a watch, until it begins.
    pub deadline: Duration,
}

/// One API server. The client identity and files may change at run time: later calls get new connections, calls under way
/// end on the old ones.
#[derive(Debug)]
pub struct ApiServer {
    access: Access,
    authority: Authority,
    headers: HeaderMap,
    tls: Option<Arc<Tls>>,
    credentials: Arc<Credentials>,
    rng: Arc<Rng>,
    shared: Arc<Pool>,
    metrics: Arc<CallMetrics>,
    trace: Option<Arc<dyn TraceContext>>,
}

impl ApiServer {
    /// Reads the files of the access; does not connect yet.
    ///
    /// # Errors
    /// A file or a value in it is invalid.
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
        let metrics = Arc::new(CallMetrics { host: authority.to_string(), observer: OnceLock::new() });
        let trace = settings.trace;
        Ok(Self { access, authority, headers, tls, credentials, rng, shared, metrics, trace })
    }

    /// A handle that shares its connections with all other handles but those of [`Self::handle_apart`].
    #[must_use]
    pub fn handle(&self, settings: HandleSettings) -> ApiHandle {
        self.handle_over(Arc::clone(&self.shared), settings)
    }

    /// A handle with separate connections, for heartbeats, which other traffic must not delay.
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
            budget: settings.budget.map(CallLimiter::new),
            deadline: settings.deadline,
            metrics: Arc::clone(&self.metrics),
            trace: self.trace.clone(),
        };
        ApiHandle::new(&Arc::new(client), &self.rng)
    }

    /// Reports every call to `observer`. Only the first observer is kept.
    pub fn observe(&self, observer: Arc<dyn ApiObserver>) {
        // A second observer is ignored.
        let _ = self.metrics.observer.set(observer);
    }

    /// Later calls use this client certificate.
    ///
    /// # Errors
    /// The certificate does not match its key.
    pub fn set_identity(&self, identity: ClientIdentity) -> Result<(), AccessError> {
        match &self.tls {
            Some(tls) => tls.set_identity(identity),
            None => Err(AccessError::new(format!(
                "{} does not use TLS, so a client certificate cannot be used",
                self.access.server
            ))),
        }
    }

    /// Reads the certificate files again, and returns whether they have changed. Invalid files change nothing.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub fn reload(&self) -> Result<bool, AccessError> {
        self.tls.as_ref().map_or(Ok(false), |tls| tls.reload())
    }

    /// The URL: `https://10.0.0.1:6443`.
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
        let wrong = || AccessError::new(format!("{value:?} is not a valid value of the header {name}"));
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

/// The older version of this API, for servers without the current one.
const TRUST_BUNDLES_BEFORE: &str = "certificates.k8s.io/v1alpha1";

/// The answer to a deletion of ResourceSlices has all of them.
const MAX_SLICES: usize = 64 << 20;

/// The API with its own rate limit and deadline.
#[derive(Debug)]
pub struct ApiHandle {
    client: Arc<Client>,
    rng: Arc<Rng>,
    nodes: Objects<Node>,
    pods: Objects<Pod>,
    leases: Objects<Lease>,
    events: Objects<Event>,
    services: Objects<ServiceObject>,
    config_maps: Objects<ConfigMap>,
    secrets: Objects<Secret>,
    service_accounts: Objects<ServiceAccount>,
    runtime_classes: Objects<RuntimeClass>,
    csi_drivers: Objects<CSIDriver>,
    csi_nodes: Objects<CSINode>,
    volume_attachments: Objects<VolumeAttachment>,
    trust_bundles: Objects<TrustBundle>,
    signing_requests: Objects<CertificateSigningRequest>,
    pod_certificate_requests: Objects<PodCertificateRequest>,
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
            services: Objects::<Service>::new(client, rng, namespaced).decoded_as(),
            config_maps: Objects::new(client, rng, namespaced),
            secrets: Objects::new(client, rng, namespaced),
            service_accounts: Objects::new(client, rng, namespaced),
            runtime_classes: Objects::new(client, rng, cluster),
            csi_drivers: Objects::new(client, rng, cluster),
            csi_nodes: Objects::new(client, rng, cluster),
            volume_attachments: Objects::new(client, rng, cluster),
            trust_bundles: Objects::new(client, rng, cluster).or(TRUST_BUNDLES_BEFORE),
            signing_requests: Objects::new(client, rng, cluster),
            pod_certificate_requests: Objects::new(client, rng, namespaced),
            client: Arc::clone(client),
            rng: Arc::clone(rng),
        }
    }

    fn claims(&self) -> Objects<PersistentVolumeClaim> {
        Objects::new(&self.client, &self.rng, Scope::Namespaced)
    }

    /// Posts a review object, and returns it with its status.
    async fn post<Q: Serialize + DeserializeOwned + Sync>(
        &self,
        name: String,
        target: String,
        question: &Q,
    ) -> ClusterResult<Q> {
        let body = Some(json_body(&name, question)?);
        let call = Call { name, method: Method::POST, target, body, most: MAX_OBJECT, gzip: false };
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

    fn services(&self) -> &dyn ListWatch<ServiceObject> {
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

    fn csi_drivers(&self) -> &dyn Collection<CSIDriver> {
        &self.csi_drivers
    }

    fn csi_nodes(&self) -> &dyn Collection<CSINode> {
        &self.csi_nodes
    }

    fn volume_attachments(&self) -> &dyn Collection<VolumeAttachment> {
        &self.volume_attachments
    }

    fn trust_bundles(&self) -> &dyn Collection<TrustBundle> {
        &self.trust_bundles
    }

    fn signing_requests(&self) -> &dyn Collection<CertificateSigningRequest> {
        &self.signing_requests
    }

    fn pod_certificate_requests(&self) -> &dyn Collection<PodCertificateRequest> {
        &self.pod_certificate_requests
    }

    async fn claim(&self, namespace: &str, name: &str) -> ClusterResult<PersistentVolumeClaim> {
        self.claims().get(namespace, name).await
    }

    async fn patch_claim_status(
        &self,
        namespace: &str,
        name: &str,
        patch: &Patch,
    ) -> ClusterResult<PersistentVolumeClaim> {
        self.claims().patch(namespace, name, Part::Status, patch).await
    }

    async fn persistent_volume(&self, name: &str) -> ClusterResult<PersistentVolume> {
        Objects::<PersistentVolume>::new(&self.client, &self.rng, Scope::Cluster).get("", name).await
    }

    async fn resource_claim(&self, namespace: &str, name: &str) -> ClusterResult<ResourceClaim> {
        Objects::<ResourceClaim>::new(&self.client, &self.rng, Scope::Namespaced).get(namespace, name).await
    }

    async fn delete_resource_slices(&self, fields: &str) -> ClusterResult<()> {
        let call = Call {
            name: format!("delete resourceslices with {fields}"),
            method: Method::DELETE,
            target: format!("/apis/resource.k8s.io/v1/resourceslices?fieldSelector={}", percent(fields)),
            body: None,
            most: MAX_SLICES,
            gzip: false,
        };
        self.client.answer(&call).await.map(drop)
    }

    async fn request_token(
        &self,
        namespace: &str,
        account: &str,
        request: &TokenRequest,
    ) -> ClusterResult<TokenRequest> {
        let name = format!("create token of serviceaccounts {namespace}/{account}");
        if namespace.is_empty() || account.is_empty() {
            let message = "namespace or name of the ServiceAccount is missing".to_owned();
            return Err(ClusterError::Invalid { call: name, message });
        }
        let (namespace, account) = (percent(namespace), percent(account));
        let target = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        self.post(name, target, request).await
    }

    async fn review_token(&self, review: &TokenReview) -> ClusterResult<TokenReview> {
        let target = "/apis/authentication.k8s.io/v1/tokenreviews".to_owned();
        self.post("create tokenreviews".to_owned(), target, review).await
    }

    async fn review_access(&self, review: &SubjectAccessReview) -> ClusterResult<SubjectAccessReview> {
        let target = "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned();
        self.post("create subjectaccessreviews".to_owned(), target, review).await
    }

    async fn healthy(&self) -> ClusterResult<()> {
        let call = Call {
            name: "get /healthz".to_owned(),
            method: Method::GET,
            target: "/healthz".to_owned(),
            body: None,
            most: MAX_OBJECT,
            gzip: false,
        };
        self.client.answer(&call).await.map(drop)
    }

    fn close_connections(&self) {
        self.client.pool.renew();
    }
}
