//! Who gets which resource of the node: admission of pods, what admitted pods hold, devices, and the numbers of cgroups.
//!
//! Owns: which pods are admitted (`admission`) and what each holds until its containers have ended (`allocations`, `amounts`, `pinned`,
//! `claims`), the devices (`devices`), the CPUs (`cpus`) and memory (`memory`) that containers have exclusively, aligned by NUMA node
//! (`topology`), the state files of these, and the settings of cgroups (`cgroup`). Never: accessing a cgroup, a file or a plugin.
#![forbid(unsafe_code)]

pub mod admission;
pub mod allocations;
pub mod amounts;
pub mod amounts_file;
pub mod cgroup;
pub mod claims;
pub mod cpus;
pub mod devices;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod go_checksum;
pub mod memory;
pub mod pinned;
pub mod quantities;
pub mod rejection;
pub mod requests;
pub mod topology;
