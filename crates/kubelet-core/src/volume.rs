//! What volumes consist of, decided before anything is mounted or written.
//!
//! Owns: which API objects a pod's volumes are made from, and the files of configMap, secret, downwardAPI and projected
//! volumes; which directories they need inside; how long a service account token is used. Never: fetching an object, writing a file, mounting.

mod nested;
pub mod objects;
pub mod payload;
pub mod token;

pub use nested::nested_mount_points;
pub use objects::{
    ObjectName, RequiredObjects, TokenRequirement, VolumeObjects, object_ttl, required_objects,
};
pub use payload::{PayloadError, PayloadInputs, compute_payload, has_payload};

#[cfg(test)]
mod tests;
