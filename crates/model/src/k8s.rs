//! The Kubernetes API types in use, re-exported, so that only this file depends on the crate and API version that they come
//! from.

use crate::service::ServiceObject;

pub use crate::resource_claim::{
    AllocatedDevice, ClaimAllocation, ClaimConsumer, ClaimDevices, ResourceClaim, ResourceClaimStatus,
};
pub use crate::trust_bundle::{TrustBundle, TrustBundleSpec};
pub use k8s_openapi::api::authentication::v1::{
    BoundObjectReference, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec, TokenReviewStatus,
    UserInfo,
};
pub use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
pub use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec, CertificateSigningRequestStatus,
};
pub use k8s_openapi::api::certificates::v1beta1::{
    PodCertificateRequest, PodCertificateRequestSpec, PodCertificateRequestStatus,
};
pub use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
/// What a container uses of the pod's claims; the object of that name belongs to another group.
pub use k8s_openapi::api::core::v1::ResourceClaim as ContainerResourceClaim;
pub use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, Affinity, AppArmorProfile, AttachedVolume, AzureDiskVolumeSource,
    CSIPersistentVolumeSource, CSIVolumeSource, Capabilities, ClusterTrustBundleProjection, ConfigMap,
    ConfigMapKeySelector, Container, ContainerExtendedResourceRequest, ContainerImage, ContainerPort,
    ContainerResizePolicy, ContainerRestartRule, ContainerRestartRuleOnExitCodes, ContainerState,
    ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, ContainerUser,
    DaemonEndpoint, DownwardAPIVolumeFile, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource,
    EphemeralContainer, Event, EventSeries, EventSource, ExecAction, FCVolumeSource, FileKeySelector,
    GCEPersistentDiskVolumeSource, GRPCAction, HTTPGetAction, HTTPHeader, HostAlias, HostIP,
    HostPathVolumeSource, ImageVolumeStatus, KeyToPath, Lifecycle, LifecycleHandler, LinuxContainerUser,
    LocalObjectReference, LocalVolumeSource, Node, NodeAddress, NodeAffinity, NodeCondition,
    NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, NodeSpec, NodeStatus, NodeSwapStatus, NodeSystemInfo,
    ObjectFieldSelector, ObjectReference, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimCondition, PersistentVolumeSpec, Pod, PodCertificateProjection, PodCondition,
    PodDNSConfig, PodDNSConfigOption, PodExtendedResourceClaimStatus, PodIP, PodOS, PodSecurityContext,
    PodSpec, PodStatus, PortworxVolumeSource, Probe, ProjectedVolumeSource, ResourceFieldSelector,
    ResourceHealth, ResourceRequirements, ResourceStatus, SELinuxOptions, SeccompProfile, Secret,
    SecretKeySelector, SecretReference, SecurityContext, Service, ServiceAccount,
    ServiceAccountTokenProjection, ServicePort, ServiceSpec, SleepAction, Sysctl, TCPSocketAction, Taint,
    Toleration, Volume, VolumeDevice, VolumeMount, VolumeMountStatus, VolumeNodeAffinity, VolumeProjection,
    VolumeStatus, VsphereVirtualDiskVolumeSource,
};
pub use k8s_openapi::api::node::v1::RuntimeClass;
/// The tokens that a CSI driver requests; the kind of that name belongs to another group.
pub use k8s_openapi::api::storage::v1::TokenRequest as CSITokenRequest;
pub use k8s_openapi::api::storage::v1::{
    CSIDriver, CSIDriverSpec, CSINode, CSINodeDriver, CSINodeSpec, VolumeAttachment, VolumeAttachmentSource,
    VolumeAttachmentSpec, VolumeAttachmentStatus, VolumeError, VolumeNodeResources,
};
pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, ListMeta, MicroTime, ObjectMeta, OwnerReference, Time,
};
pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
pub use k8s_openapi::{ByteString, List, Metadata, Resource};

/// Parses a pod from JSON. Not generic, so that all crates share the code, which has a fifth of a megabyte.
///
/// # Errors
/// The JSON is not a valid pod; the error has the position.
pub fn pod_from_json(json: &[u8]) -> serde_json::Result<Pod> {
    serde_json::from_slice(json)
}

/// What identifies an object of a list or a watch.
pub trait ApiObject: Send + Sync + 'static {
    /// `pods`.
    const PLURAL: &'static str;

    /// Empty for a kind without namespaces.
    fn namespace(&self) -> &str;
    fn name(&self) -> &str;
    fn resource_version(&self) -> &str;
}

impl<K: Metadata<Ty = ObjectMeta> + Send + Sync + 'static> ApiObject for K {
    const PLURAL: &'static str = K::URL_PATH_SEGMENT;

    fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    fn resource_version(&self) -> &str {
        self.metadata().resource_version.as_deref().unwrap_or_default()
    }
}

impl ApiObject for ServiceObject {
    const PLURAL: &'static str = Service::URL_PATH_SEGMENT;

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// `v1.PodList`.
pub type PodList = List<Pod>;
