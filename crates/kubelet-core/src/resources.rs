//! Who gets which resource of the node: admission of pods, what admitted pods hold, devices, and the numbers of cgroups.

pub mod admission;
pub mod allocations;
pub mod amounts;
pub mod amounts_file;
pub mod cgroup;
pub mod claims;
pub mod cpus;
pub mod devices;
pub mod go_checksum;
pub mod memory;
pub mod pinned;
pub mod quantities;
pub mod rejection;
pub mod requests;
pub mod topology;
