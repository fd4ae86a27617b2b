//! The Kubernetes API, as the kubelet uses it: a collection for each kind, and the few calls that are not about objects.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use model::k8s::{
    CSIDriver, CSINode, CertificateSigningRequest, ConfigMap, Event, Lease, Node, PersistentVolume,
    PersistentVolumeClaim, Pod, PodCertificateRequest, ResourceClaim, RuntimeClass, Secret, ServiceAccount,
    SubjectAccessReview, TokenRequest, TokenReview, TrustBundle, VolumeAttachment,
};
use model::{MalformedObject, ServiceObject};
use serde_json::Value;

/// Why a call to the API failed. Every variant holds the server's own message if there was one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    #[error("{call}: not found: {message}")]
    NotFound { call: String, message: String },
    #[error("{call}: already exists: {message}")]
    AlreadyExists { call: String, message: String },
    /// The object changed since it was read, or a precondition (UID, resource version) did not hold.
    #[error("{call}: conflict: {message}")]
    Conflict { call: String, message: String },
    /// The resource version is older than what the server remembers: list again.
    #[error("{call}: too old: {message}")]
    Expired { call: String, message: String },
    /// The server did not authenticate the kubelet.
    #[error("{call}: unauthorized: {message}")]
    Unauthorized { call: String, message: String },
    /// The server authenticated the kubelet and denies the call.
    #[error("{call}: forbidden: {message}")]
    Forbidden { call: String, message: String },
    /// The server does not accept the object.
    #[error("{call}: invalid: {message}")]
    Invalid { call: String, message: String },
    /// The server limits requests: try again later.
    #[error("{call}: the server is busy: {message}")]
    Busy { call: String, message: String, retry_after: Option<Duration> },
    /// No answer within the call's deadline. The effect of the call may have happened.
    #[error("{call}: no answer within {deadline:?}")]
    TimedOut { call: String, deadline: Duration },
    /// The connection was refused or broke. The effect of the call may have happened.
    #[error("{call}: the API server cannot be reached: {message}")]
    Unreachable { call: String, message: String },
    /// Any other answer.
    #[error("{call}: {message}")]
    Failed { call: String, code: u16, message: String },
}

impl ClusterError {
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the effect of the call may have happened in spite of the error; only reading the object shows it.
    #[must_use]
    pub const fn is_uncertain(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Unreachable { .. })
    }

    /// How long the server asks to wait before the next call, if it refused this one because it is overloaded.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            // A server that names no time is overloaded all the same.
            Self::Busy { retry_after: None, .. } => Some(UNNAMED_RETRY_AFTER),
            Self::Busy { retry_after, .. } => *retry_after,
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Conflict { .. }
            | Self::Expired { .. }
            | Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::Invalid { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable { .. }
            | Self::Failed { .. } => None,
        }
    }

    /// Whether the same call may succeed later without a change on our side.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::TimedOut { .. } | Self::Unreachable { .. } => true,
            Self::Failed { code, .. } => *code >= 500,
            Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::Conflict { .. }
            | Self::Expired { .. }
            | Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::Invalid { .. } => false,
        }
    }
}

/// The delay after a refusal without `Retry-After`.
const UNNAMED_RETRY_AFTER: Duration = Duration::from_secs(1);

pub type ClusterResult<T> = Result<T, ClusterError>;

/// Selects objects of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    /// All namespaces, and objects without one, where `None`.
    pub namespace: Option<String>,
    /// `spec.nodeName=edge-1`.
    pub fields: Option<String>,
    /// `app=web,tier!=db`.
    pub labels: Option<String>,
}

/// One list of a collection.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<K> {
    pub items: Vec<K>,
    /// Objects that cannot be decoded.
    pub malformed: Vec<MalformedObject>,
    /// The resource version from which a watch continues.
    pub resource_version: String,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    Added(K),
    Modified(K),
    /// The object as it last was.
    Deleted(K),
    /// An event about an object that cannot be decoded. Its name and resource version are known, so that the watch goes on.
    Malformed {
        object: MalformedObject,
        is_deleted: bool,
    },
    /// A bookmark: no selected object changed up to this resource version.
    Bookmark {
        resource_version: String,
    },
}

/// Receives the objects of a list one by one. An object that cannot be decoded does not end the list.
pub type ReadItem<'a, K> = dyn FnMut(Result<K, MalformedObject>) + Send + 'a;

/// Changes in the order in which they happened. The stream ends when the server ends it, which it does every few minutes
/// as normal operation; [`ClusterError::Expired`] means that the changes in between are lost.
pub type Changes<K> = BoxStream<'static, ClusterResult<Change<K>>>;

/// The format of a patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// Lists merge by the keys that the API gives them.
    Strategic(Value),
    /// RFC 6902.
    Json(Value),
}

/// The part of an object that a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Whole,
    Status,
}

/// Precondition and grace period of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Delete only the object with this UID, not a later one of the same name.
    pub uid: Option<String>,
    /// `Some(0)`: at once.
    pub grace_seconds: Option<i64>,
}

/// The objects of one kind, as a reflector reads them.
#[async_trait]
pub trait ListWatch<K: Send>: Send + Sync + std::fmt::Debug {
    /// The whole list at once, as it is now.
    async fn list(&self, selection: &Selection) -> ClusterResult<Listed<K>> {
        let (mut items, mut malformed) = (Vec::new(), Vec::new());
        let mut item = |item: Result<K, MalformedObject>| match item {
            Ok(object) => items.push(object),
            Err(object) => malformed.push(object),
        };
        let resource_version = self.read_list(selection, None, &mut item).await?;
        Ok(Listed { items, malformed, resource_version })
    }

    /// Passes each object to `item` while the list arrives, and returns the resource version of the list, which is not older than
    /// `version`: with `0`, the server answers from memory. After an error, the objects so far are a part of a list.
    async fn read_list(
        &self,
        selection: &Selection,
        version: Option<&str>,
        item: &mut ReadItem<'_, K>,
    ) -> ClusterResult<String>;
    /// The changes after the resource version `since`.
    async fn watch(&self, selection: &Selection, since: &str) -> ClusterResult<Changes<K>>;
}

/// The objects of one kind. `namespace` is ignored for kinds that have none.
#[async_trait]
pub trait Collection<K: Send>: ListWatch<K> {
    async fn get(&self, namespace: &str, name: &str) -> ClusterResult<K>;
    async fn create(&self, namespace: &str, object: &K) -> ClusterResult<K>;
    /// Replaces the object; a resource version in it must be the current one.
    async fn update(&self, namespace: &str, object: &K) -> ClusterResult<K>;
    async fn patch(&self, namespace: &str, name: &str, part: Part, patch: &Patch) -> ClusterResult<K>;
    async fn delete(&self, namespace: &str, name: &str, deletion: &Deletion) -> ClusterResult<()>;
}

/// The Kubernetes API. Every call has a deadline of its own; none is retried here, and each handle has a budget of
/// calls per second that other handles do not share.
#[async_trait]
pub trait Cluster: Send + Sync + std::fmt::Debug {
    fn nodes(&self) -> &dyn Collection<Node>;
    fn pods(&self) -> &dyn Collection<Pod>;
    fn leases(&self) -> &dyn Collection<Lease>;
    fn events(&self) -> &dyn Collection<Event>;
    /// Only listed and watched.
    fn services(&self) -> &dyn ListWatch<ServiceObject>;
    fn config_maps(&self) -> &dyn Collection<ConfigMap>;
    fn secrets(&self) -> &dyn Collection<Secret>;
    fn service_accounts(&self) -> &dyn Collection<ServiceAccount>;
    fn runtime_classes(&self) -> &dyn Collection<RuntimeClass>;
    fn csi_drivers(&self) -> &dyn Collection<CSIDriver>;
    /// A node may access only the CSINode of its own name, and may not list or watch any.
    fn csi_nodes(&self) -> &dyn Collection<CSINode>;
    /// A node may only get those of its own volumes.
    fn volume_attachments(&self) -> &dyn Collection<VolumeAttachment>;

    /// In the version of their API that the server offers; only listed and watched.
    fn trust_bundles(&self) -> &dyn Collection<TrustBundle>;
    fn signing_requests(&self) -> &dyn Collection<CertificateSigningRequest>;
    /// A node may create those of its pods, and list and watch those with its name: `spec.nodeName=edge-1`.
    fn pod_certificate_requests(&self) -> &dyn Collection<PodCertificateRequest>;

    /// The PersistentVolumeClaim of that name; claims and volumes are only read one by one.
    async fn claim(&self, namespace: &str, name: &str) -> ClusterResult<PersistentVolumeClaim>;
    /// Patches the status of a PersistentVolumeClaim. A node may change its capacity, conditions and allocated resources.
    async fn patch_claim_status(
        &self,
        namespace: &str,
        name: &str,
        patch: &Patch,
    ) -> ClusterResult<PersistentVolumeClaim>;
    async fn persistent_volume(&self, name: &str) -> ClusterResult<PersistentVolume>;
    /// The ResourceClaim of that name. A node may get those that its pods refer to.
    async fn resource_claim(&self, namespace: &str, name: &str) -> ClusterResult<ResourceClaim>;
    /// Deletes the ResourceSlices that these fields select; a node may do that for its own: `spec.nodeName=edge-1`.
    async fn delete_resource_slices(&self, fields: &str) -> ClusterResult<()>;
    /// A token of a service account.
    async fn request_token(
        &self,
        namespace: &str,
        account: &str,
        request: &TokenRequest,
    ) -> ClusterResult<TokenRequest>;
    /// The user of a bearer token.
    async fn review_token(&self, review: &TokenReview) -> ClusterResult<TokenReview>;
    /// Whether a user is authorized for an action.
    async fn review_access(&self, review: &SubjectAccessReview) -> ClusterResult<SubjectAccessReview>;
    /// The server's `/healthz` reports success.
    async fn healthy(&self) -> ClusterResult<()>;
    /// Opens new connections for later calls, because the old ones may be dead without an error. Calls under way on a live
    /// connection are not affected.
    fn close_connections(&self);
}
