//! The Kubernetes API types the kubelet handles, under one roof so that only this file knows which crate and which
//! API version they come from.

pub use k8s_openapi::List;
pub use k8s_openapi::api::core::v1::{
    Affinity, AppArmorProfile, Capabilities, ConfigMapKeySelector, Container, ContainerPort,
    ContainerResizePolicy, ContainerRestartRule, ContainerRestartRuleOnExitCodes, ContainerState,
    ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, ContainerUser,
    DownwardAPIVolumeFile, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource, EphemeralContainer,
    ExecAction, GRPCAction, HTTPGetAction, HTTPHeader, HostAlias, HostIP, HostPathVolumeSource, Lifecycle,
    LifecycleHandler, LinuxContainerUser, LocalObjectReference, ObjectFieldSelector, ObjectReference, Pod,
    PodCondition, PodDNSConfig, PodDNSConfigOption, PodIP, PodOS, PodSecurityContext, PodSpec, PodStatus,
    Probe, ResourceFieldSelector, ResourceRequirements, SELinuxOptions, SeccompProfile, SecretKeySelector,
    SecurityContext, SleepAction, Sysctl, TCPSocketAction, Toleration, Volume, VolumeMount,
    VolumeMountStatus,
};
pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    ListMeta, MicroTime, ObjectMeta, OwnerReference, Time,
};
pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// `v1.PodList`.
pub type PodList = List<Pod>;
