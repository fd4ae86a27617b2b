//! The decisions about volumes, made before anything is mounted or written.
//!
//! Owns: what each type of volume is made from (`types`) and what a pod's volume means on this node (`plan`) and what its containers do with it (`index`); which API objects a
//! pod's volumes show, and the files of configMap, secret, downwardAPI and projected volumes (`objects`, `payload`); how long a
//! service account token is used (`token`); when a certificate of a pod is requested and renewed (`pod_certificate`); which volumes the filesystem counts (`quota`); with which SELinux label it is mounted (`selinux`); what is done to a device before it is
//! mounted (`device`); what drivers are called with (`csi`), and whether their volumes are attached to this node (`attachment`), and whether a PersistentVolume
//! is one of this node (`node_affinity`); and
//! in which order volumes are mounted, awaited and torn down (`engine`). Never: fetching an object, writing
//! a file, mounting.
#![forbid(unsafe_code)]

pub mod attachment;
pub mod block;
pub mod bundle;
pub mod csi;
pub mod csi_versions;
pub mod device;
pub mod engine;
pub mod fc;
pub mod flex;
mod go_json;
pub mod image;
pub mod index;
pub mod iscsi;
mod mount_arguments;
mod nested;
pub mod node_affinity;
pub mod objects;
pub mod payload;
mod pem;
pub mod plan;
pub mod planned_pod;
pub mod pod_certificate;
pub mod quota;
pub mod selinux;
pub mod token;
pub mod types;

pub use nested::{has_sub_path, nested_mount_points};
pub use objects::{RequiredObjects, VolumeObjects, object_ttl};
pub use payload::{PayloadError, PayloadInputs};
pub use plan::bound_volume;
pub use types::{compute_payload, has_payload, may_have_driver, required_objects, required_objects_of};

#[cfg(test)]
mod tests;
