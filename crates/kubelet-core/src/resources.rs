//! Who gets which resource of the node: admission of pods, what admitted pods hold, devices, and the numbers of cgroups.

pub mod admission;
pub mod allocations;
pub mod cgroup;
pub mod devices;
pub mod quantities;
pub mod rejection;
pub mod requests;
