//! Cgroups of pods, QoS classes and the node: what they are called and what is written into them
//! (docs/behaviour/resources-and-qos.md).
//!
//! ```text
//! <cgroupRoot>/kubepods                   all pods: what the node can give them
//!     pod<uid>                            a Guaranteed pod
//!     burstable/pod<uid>                  a QoS cgroup weighs what its pods request
//!     besteffort/pod<uid>                 a QoS cgroup that gets what is left
//! ```
//! Owns: [`CgroupNames`], and [`CgroupNumbers`] with their translation for both versions of cgroups and for systemd.
//! Never touches a cgroup; containers' own are asked of the runtime ([`crate::pods::request::resources`]).

pub mod convert;
pub mod name;
pub mod numbers;
pub mod pod;
pub mod qos;

pub use name::CgroupNames;
pub use numbers::{CgroupNumbers, CpuQuota, compute_settings};
pub use pod::{MemoryQos, PodRules, compute_pod_numbers};
pub use qos::{QosCgroupNumbers, QosCgroupRules, compute_qos_cgroups};

#[cfg(test)]
mod tests;
