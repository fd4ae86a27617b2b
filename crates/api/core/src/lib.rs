//! What the kubelet reads from the Kubernetes API and writes to it: reflectors, status patches, mirror pods, events,
//! certificates.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod csi_node;
pub mod env_objects;
pub mod env_services;
pub mod events;
mod lru;
pub mod mirror;
pub mod reflector;
pub mod retry;
pub mod status_patch;
pub mod status_queue;
pub mod strategic_patch;
