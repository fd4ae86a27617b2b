//! A simulated Kubernetes API: resource versions, conflicts, watches with history, graceful deletion of pods; calls fail, hang,
//! or succeed and answer too late. All on tokio's time, so paused time makes hours pass at once.
//!
//! Owns: [`FakeCluster`], a handle that can be cloned and survives any number of kubelets. It starts no task. Patches
//! and selectors follow the rules of `localapi`; its validation, defaults and controllers are not here.

mod collection;
mod faults;
mod select;
mod store;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use model::ServiceObject;
use model::k8s::{
    CSIDriver, CSINode, CertificateSigningRequest, ConfigMap, Event, Lease, Node, PersistentVolume,
    PersistentVolumeClaim, Pod, PodCertificateRequest, ResourceClaim, RuntimeClass, Secret, Service,
    ServiceAccount, SubjectAccessReview, Time, TokenRequest, TokenReview, TrustBundle, VolumeAttachment,
};
use parking_lot::Mutex;
use ports::Clock;
use ports::cluster::{Cluster, ClusterResult, Collection, Deletion, ListWatch, Part, Patch};
use serde_json::{Value, json};
use tokio::sync::watch;

pub use collection::FakeObjects;
pub use faults::{ClusterCall, ClusterFault, Outage, Verb};
pub use store::FakeObject;

use self::faults::Script;
use self::store::Store;
use crate::fake::EPOCH_SECONDS;

/// The rule of a `SubjectAccessReview`: user, verb, resource with its subresource.
type Access = Box<dyn Fn(&SubjectAccessReview) -> bool + Send + Sync>;

/// The fake. Clones share everything.
#[derive(Clone, Debug)]
pub struct FakeCluster {
    shared: Arc<Shared>,
    nodes: FakeObjects<Node>,
    pods: FakeObjects<Pod>,
    leases: FakeObjects<Lease>,
    events: FakeObjects<Event>,
    services: FakeObjects<Service>,
    config_maps: FakeObjects<ConfigMap>,
    secrets: FakeObjects<Secret>,
    service_accounts: FakeObjects<ServiceAccount>,
    runtime_classes: FakeObjects<RuntimeClass>,
    csi_drivers: FakeObjects<CSIDriver>,
    csi_nodes: FakeObjects<CSINode>,
    volume_attachments: FakeObjects<VolumeAttachment>,
    claims: FakeObjects<PersistentVolumeClaim>,
    persistent_volumes: FakeObjects<PersistentVolume>,
    resource_claims: FakeObjects<ResourceClaim>,
    trust_bundles: FakeObjects<TrustBundle>,
    signing_requests: FakeObjects<CertificateSigningRequest>,
    pod_certificate_requests: FakeObjects<PodCertificateRequest>,
}

struct Shared {
    clock: Clock,
    store: Mutex<Store>,
    script: Mutex<Script>,
    /// Bearer tokens and their users.
    tokens: Mutex<Vec<(String, String)>>,
    access: Mutex<Access>,
    /// Changes whenever watches have something to read.
    changes: watch::Sender<u64>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Default for FakeCluster {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeCluster {
    /// An empty cluster on a virtual clock, like that of [`crate::FakeRuntime`].
    #[must_use]
    pub fn new() -> Self {
        let epoch = Timestamp::from_second(EPOCH_SECONDS).unwrap_or(Timestamp::UNIX_EPOCH);
        Self::with_clock(Clock::starting_at(epoch))
    }

    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        let shared = Arc::new(Shared {
            clock,
            store: Mutex::default(),
            script: Mutex::default(),
            tokens: Mutex::default(),
            access: Mutex::new(Box::new(|_| true)),
            changes: watch::channel(0).0,
        });
        Self {
            nodes: FakeObjects::new(&shared),
            pods: FakeObjects::new(&shared),
            leases: FakeObjects::new(&shared),
            events: FakeObjects::new(&shared),
            services: FakeObjects::new(&shared),
            config_maps: FakeObjects::new(&shared),
            secrets: FakeObjects::new(&shared),
            service_accounts: FakeObjects::new(&shared),
            runtime_classes: FakeObjects::new(&shared),
            csi_drivers: FakeObjects::new(&shared),
            csi_nodes: FakeObjects::new(&shared),
            volume_attachments: FakeObjects::new(&shared),
            claims: FakeObjects::new(&shared),
            persistent_volumes: FakeObjects::new(&shared),
            resource_claims: FakeObjects::new(&shared),
            trust_bundles: FakeObjects::new(&shared),
            signing_requests: FakeObjects::new(&shared),
            pod_certificate_requests: FakeObjects::new(&shared),
            shared,
        }
    }

    // ---- scripting ----

    /// The fault applies to the next such call for such objects (`pods`; `""` for any). Faults queue up.
    pub fn fault(&self, verb: Verb, plural: &str, fault: ClusterFault) -> &Self {
        self.shared.script.lock().push(verb, plural, fault);
        self
    }

    /// The fault applies to the next `count` such calls.
    pub fn fault_times(&self, verb: Verb, plural: &str, fault: &ClusterFault, count: usize) -> &Self {
        for _ in 0..count {
            self.fault(verb, plural, fault.clone());
        }
        self
    }

    /// The fault applies to every such call after the queued ones; `None` ends it.
    pub fn fault_always(&self, verb: Verb, plural: &str, fault: Option<ClusterFault>) -> &Self {
        self.shared.script.lock().set_always(verb, plural, fault);
        self
    }

    /// Every call takes this long before it does anything.
    pub fn latency(&self, latency: Duration) -> &Self {
        self.shared.script.lock().latency = latency;
        self
    }

    /// Disconnects the node, or (`None`) reconnects it. Watches break; changes meanwhile are kept in the history.
    pub fn set_outage(&self, outage: Option<Outage>) -> &Self {
        {
            let mut script = self.shared.script.lock();
            script.outage = outage;
            script.breaks += u64::from(outage.is_some());
        }
        self.shared.announce();
        self
    }

    /// Drops this field from every status, as a server does whose feature gate for it is disabled.
    pub fn drop_status_field(&self, field: &'static str) -> &Self {
        self.shared.store.lock().drop_status_field(field);
        self
    }

    /// Clears every fault, and is reachable.
    pub fn clear_faults(&self) -> &Self {
        self.shared.script.lock().clear_faults();
        self
    }

    /// How long a call waits before it times out; the duration of hanging calls.
    pub fn set_deadline(&self, deadline: Duration) -> &Self {
        self.shared.script.lock().deadline = deadline;
        self
    }

    /// Ends every watch, as happens every few minutes.
    pub fn end_watches(&self) -> &Self {
        self.shared.script.lock().ends += 1;
        self.shared.announce();
        self
    }

    /// Sends a bookmark to every watch.
    pub fn send_bookmarks(&self) -> &Self {
        self.shared.script.lock().bookmarks += 1;
        self.shared.announce();
        self
    }

    /// Compacts its history: a watch from an earlier resource version is expired.
    pub fn compact(&self) -> &Self {
        self.shared.store.lock().compact();
        self.shared.announce();
        self
    }

    /// Sets the user of this bearer token.
    pub fn accept_token(&self, token: &str, user: &str) -> &Self {
        self.shared.tokens.lock().push((token.to_owned(), user.to_owned()));
        self
    }

    /// Sets the authorization rule; at first everything is allowed.
    pub fn set_access(
        &self,
        allowed: impl Fn(&SubjectAccessReview) -> bool + Send + Sync + 'static,
    ) -> &Self {
        *self.shared.access.lock() = Box::new(allowed);
        self
    }

    /// Calls the observer at every change from now on, at the moment it is made.
    pub fn watch_changes(
        &self,
        on_change: impl Fn(&str, Option<&Value>, Option<&Value>) + Send + Sync + 'static,
    ) -> &Self {
        self.shared.store.lock().watch(Box::new(on_change));
        self
    }

    // ---- actions of other clients ----

    /// Another client creates the object, or replaces all of it with its status. Returns the stored object.
    pub fn put<K: FakeObject>(&self, object: &K) -> K {
        let now = self.shared.clock.now().wall;
        let put = self.shared.store.lock().put(object, now);
        self.shared.announce();
        put
    }

    /// As [`Self::put`], for JSON that may not be an object of the kind: an API server of another version, or an object that was stored
    /// as no client can decode it.
    pub fn put_json<K: FakeObject>(&self, object: Value) -> &Self {
        let now = self.shared.clock.now().wall;
        self.shared.store.lock().put_json::<K>(object, now);
        self.shared.announce();
        self
    }

    /// Another client deletes the object. Returns whether there was one.
    pub fn remove<K: FakeObject>(&self, namespace: &str, name: &str, grace_seconds: Option<i64>) -> bool {
        let now = self.shared.clock.now().wall;
        let deletion = Deletion { uid: None, grace_seconds };
        let removed = self.shared.store.lock().delete::<K>("", namespace, name, &deletion, now);
        self.shared.announce();
        removed.is_ok()
    }

    // ---- inspection ----

    /// The stored object. No fault applies, and it is not counted.
    #[must_use]
    pub fn object<K: FakeObject>(&self, namespace: &str, name: &str) -> Option<K> {
        self.shared.store.lock().get("", namespace, name).ok()
    }

    /// All objects of a kind, by namespace and name. No fault applies, and it is not counted.
    #[must_use]
    pub fn all<K: FakeObject>(&self) -> Vec<K> {
        self.shared.store.lock().all()
    }

    /// The calls so far, in the order they began: `patch pods/status default/web`.
    #[must_use]
    pub fn call_lines(&self) -> Vec<String> {
        self.shared.script.lock().calls.iter().map(ToString::to_string).collect()
    }

    /// The same calls with their times.
    #[must_use]
    pub fn calls(&self) -> Vec<ClusterCall> {
        self.shared.script.lock().calls.clone()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.shared.script.lock().calls.clear();
    }

    /// How often the client closed its connections.
    #[must_use]
    pub fn closed_connections(&self) -> u64 {
        self.shared.script.lock().closed_connections
    }

    /// The number of open watches.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.shared.changes.receiver_count()
    }
}

impl Shared {
    fn announce(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl Cluster for FakeCluster {
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
        self.claims.get(namespace, name).await
    }

    async fn patch_claim_status(
        &self,
        namespace: &str,
        name: &str,
        patch: &Patch,
    ) -> ClusterResult<PersistentVolumeClaim> {
        self.claims.patch(namespace, name, Part::Status, patch).await
    }

    async fn persistent_volume(&self, name: &str) -> ClusterResult<PersistentVolume> {
        self.persistent_volumes.get("", name).await
    }

    async fn resource_claim(&self, namespace: &str, name: &str) -> ClusterResult<ResourceClaim> {
        self.resource_claims.get(namespace, name).await
    }

    async fn delete_resource_slices(&self, fields: &str) -> ClusterResult<()> {
        let call = format!("delete resourceslices with {fields}");
        self.shared.act(Verb::Delete, "resourceslices", fields, &call, |_| Ok(())).await
    }

    async fn request_token(
        &self,
        namespace: &str,
        account: &str,
        request: &TokenRequest,
    ) -> ClusterResult<TokenRequest> {
        let call = format!("create token of serviceaccounts {namespace}/{account}");
        let subject = format!("{namespace}/{account}");
        self.shared
            .act(Verb::Create, "serviceaccounts/token", &subject, &call, |shared| {
                shared.store.lock().get::<ServiceAccount>(&call, namespace, account)?;
                let mut tokens = shared.tokens.lock();
                let token = format!("token-{}", tokens.len() + 1);
                tokens.push((token.clone(), format!("system:serviceaccount:{namespace}:{account}")));
                drop(tokens);
                let mut answer = request.clone();
                let life = answer.spec.as_ref().and_then(|spec| spec.expiration_seconds).unwrap_or(3600);
                let ends = shared.clock.now().wall + Duration::from_secs(life.unsigned_abs());
                let status = json!({"token": token, "expirationTimestamp": Time(ends)});
                answer.status = serde_json::from_value(status).ok();
                Ok(answer)
            })
            .await
    }

    async fn review_token(&self, review: &TokenReview) -> ClusterResult<TokenReview> {
        self.shared
            .act(Verb::Create, "tokenreviews", "", "create tokenreviews", |shared| {
                let tokens = shared.tokens.lock();
                let requested = Some(review.spec.token.as_str());
                let user = tokens.iter().find(|(token, _)| Some(token.as_str()) == requested);
                let status = match user {
                    Some((_, user)) => json!({"authenticated": true, "user": {"username": user}}),
                    None => json!({"authenticated": false}),
                };
                drop(tokens);
                let mut answer = review.clone();
                answer.status = serde_json::from_value(status).ok();
                Ok(answer)
            })
            .await
    }

    async fn review_access(&self, review: &SubjectAccessReview) -> ClusterResult<SubjectAccessReview> {
        self.shared
            .act(Verb::Create, "subjectaccessreviews", "", "create subjectaccessreviews", |shared| {
                let allowed = (shared.access.lock())(review);
                let mut answer = review.clone();
                answer.status = serde_json::from_value(json!({"allowed": allowed})).ok();
                Ok(answer)
            })
            .await
    }

    async fn healthy(&self) -> ClusterResult<()> {
        self.shared.act(Verb::Get, "healthz", "", "get /healthz", |_| Ok(())).await
    }

    fn close_connections(&self) {
        self.shared.script.lock().closed_connections += 1;
    }
}
