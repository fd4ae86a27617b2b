//! Data types that every other crate uses.
//!
//! Owns the Kubernetes API types in use (re-exported), typed identifiers, quantities, QoS classes, points in time, requests to
//! a container runtime, and its observations.
//!
//! Architecture invariants:
//! - plain data only: nothing here performs I/O, reads a clock, spawns a task or decides policy;
//! - Kubernetes types never get extra fields: kubelet state wraps them.
#![forbid(unsafe_code)]

pub mod annotations;
pub mod build_info;
pub mod certificates;
pub mod cgroup;
pub mod containers;
pub mod cpu_set;
pub mod csi;
pub mod devices;
pub mod digest;
pub mod dra;
pub mod env_value;
pub mod explain;
pub mod ids;
pub mod inventory;
pub mod k8s;
mod malformed;
pub mod node_logs;
pub mod observation;
pub mod path_component;
pub mod payload;
pub mod plugins;
pub mod pod_status;
pub mod qos;
pub mod quantity;
pub mod rate_limiter;
pub mod request;
mod resource_claim;
pub mod service;
mod small_map;
pub mod source;
pub mod stats;
pub mod text;
pub mod time;
pub mod topology;
mod trust_bundle;

pub use build_info::BuildInfo;
pub use certificates::{
    CertificateFacts, CertificateNames, Credential, PemPair, PodKey, PodKeyType, PrivateKey,
};
pub use cgroup::CgroupDriver;
pub use containers::{ContainerKind, ContainerRef};
pub use ids::{ContainerId, ImageId, PodRef, PodUid, SandboxId};
pub use malformed::MalformedObject;
pub use node_logs::NodeLogOptions;
pub use observation::{
    ContainerObservation, ContainerRecord, ContainerState, Instances, PodObservation, SandboxObservation,
    SandboxState,
};
pub use path_component::{path_component_problem, pod_path_problem, pod_uid_problem};
pub use qos::QosClass;
pub use quantity::Amount;
pub use rate_limiter::RateLimiter;
pub use service::{ServiceEntry, ServiceObject};
pub use small_map::SmallMap;
pub use source::PodSource;
pub use time::{MonoTime, Now};
