//! Devices of device plugins (docs/behaviour/plugins.md): which exist, which pod gets which, and the checkpoint on disk.
//!
//! Owns: the [`Registry`] of what plugins have reported, the choice of devices for a pod, the format of the checkpoint, and
//! what a container sees of its devices, and the health that the pod status shows. No plugin is called here. Allocated devices are in the [allocations](crate::allocations).

pub mod affinity;
pub mod allocate_response;
pub mod assign;
pub mod checkpoint;
pub mod health;
pub mod hints;
pub mod registry;

pub use affinity::{Hints, NO_HINTS};
pub use assign::{DeviceShortage, Given, PodDevices};
pub use health::ContainerHealth;
pub use hints::DeviceProvider;
pub use model::devices::DeviceHealth;
pub use registry::{Connection, Registry};
