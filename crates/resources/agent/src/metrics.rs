//! The metrics of allocations, claims, cgroups and devices (docs/behaviour/metrics.md).

mod cgroups;
mod claims;
mod devices;
mod pins;

pub use cgroups::{CgroupMetrics, CgroupWork};
pub use claims::ClaimMetrics;
pub use devices::DeviceMetrics;
pub use pins::PinMetrics;
