//! Resources of the node: admitted pods and their allocations, and devices.

pub mod admissions;
pub mod devices;
