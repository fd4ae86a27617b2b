//! Devices that plugins look after (docs/behaviour/plugins.md): which there are, who gets which, and how that is kept on disk.
//!
//! Owns: the [`Registry`] of what plugins have said, the choice of devices for a pod, the format of the checkpoint, and
//! what a container sees of its devices. Never calls a plugin. What is handed out is in the [allocations](crate::resources::allocations).

pub mod allocate_response;
pub mod assign;
pub mod checkpoint;
pub mod registry;

pub use assign::{DeviceShortage, Given, PodDevices};
pub use registry::{Connection, Registry};
