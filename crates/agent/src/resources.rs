//! Resources of the node: admitted pods and their allocations, devices, and CPUs and memory that pods have for themselves.

pub mod admissions;
pub(crate) mod amounts;
pub(crate) mod cgroup_values;
pub mod claims;
pub(crate) mod cpusets;
pub mod devices;
pub(crate) mod pins;
