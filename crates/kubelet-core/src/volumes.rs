//! What volumes consist of, decided before anything is mounted or written.
//!
//! Owns: which API objects a pod's volumes are made from, and the files of configMap, secret, downwardAPI and projected
//! volumes; which directories they need inside; how long a service account token is used; what each volume means on this
//! machine (`plan`), which volumes the filesystem counts (`quota`), what is done to a device before it is mounted (`device`), and the order in which volumes are made,
//! waited for and taken down (`engine`). Never: fetching an object, writing a file, mounting.

pub mod bundle;
pub mod device;
pub mod engine;
pub mod image;
mod mount_arguments;
mod nested;
pub mod objects;
pub mod payload;
pub mod plan;
pub mod quota;
pub mod token;

pub use nested::{has_sub_path, nested_mount_points};
pub use objects::{
    ObjectName, RequiredObjects, TokenRequirement, VolumeObjects, object_ttl, required_objects,
};
pub use payload::{PayloadError, PayloadInputs, compute_payload, has_payload};
pub use plan::bound_volume;

#[cfg(test)]
mod tests;
