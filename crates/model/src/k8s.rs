//! The Kubernetes API types the kubelet handles, under one roof so that only this file knows which crate and which
//! API version they come from.

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
pub use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
pub use k8s_openapi::api::core::v1::{
    Affinity, AppArmorProfile, AttachedVolume, Capabilities, ClusterTrustBundleProjection, ConfigMap,
    ConfigMapKeySelector, Container, ContainerImage, ContainerPort, ContainerResizePolicy,
    ContainerRestartRule, ContainerRestartRuleOnExitCodes, ContainerState, ContainerStateRunning,
    ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, ContainerUser, DaemonEndpoint,
    DownwardAPIVolumeFile, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource, EphemeralContainer,
    Event, EventSeries, EventSource, ExecAction, FileKeySelector, GRPCAction, HTTPGetAction, HTTPHeader,
    HostAlias, HostIP, HostPathVolumeSource, KeyToPath, Lifecycle, LifecycleHandler, LinuxContainerUser,
    LocalObjectReference, LocalVolumeSource, Node, NodeAddress, NodeAffinity, NodeCondition,
    NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, NodeSpec, NodeStatus, NodeSwapStatus, NodeSystemInfo,
    ObjectFieldSelector, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition,
    PodDNSConfig, PodDNSConfigOption, PodIP, PodOS, PodSecurityContext, PodSpec, PodStatus, Probe,
    ProjectedVolumeSource, ResourceFieldSelector, ResourceRequirements, SELinuxOptions, SeccompProfile,
    Secret, SecretKeySelector, SecurityContext, Service, ServiceAccount, ServiceAccountTokenProjection,
    ServicePort, ServiceSpec, SleepAction, Sysctl, TCPSocketAction, Taint, Toleration, Volume, VolumeDevice,
    VolumeMount, VolumeMountStatus, VolumeProjection,
};
pub use k8s_openapi::api::node::v1::RuntimeClass;
pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, ListMeta, MicroTime, ObjectMeta, OwnerReference, Time,
};
pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
pub use k8s_openapi::{ByteString, List, Metadata, Resource};

/// A pod out of its JSON. Not generic, so that all rooms share the code, a fifth of a megabyte of it.
///
/// # Errors
/// Names the place in the JSON that is no pod.
pub fn pod_from_json(json: &[u8]) -> serde_json::Result<Pod> {
    serde_json::from_slice(json)
}

/// `v1.PodList`.
pub type PodList = List<Pod>;
