//! Cgroups of pods, QoS classes and the node: their names and the values written to them
//! (docs/behaviour/resources-and-qos.md).
//!
//! ```text
//! <cgroupRoot>/kubepods                   all pods: the node's allocatable resources
//!     pod<uid>                            a Guaranteed pod
//!     burstable/pod<uid>                  a QoS cgroup, weighted by the requests of its pods
//!     besteffort/pod<uid>                 a QoS cgroup that gets what is left
//! ```
//! Owns: [`CgroupNames`], and [`CgroupNumbers`] with their translation for both versions of cgroups and for systemd.
//! No cgroup is accessed here; the runtime makes those of containers (`kubelet_core::pods::request::resources`).

pub mod convert;
pub mod name;
pub mod numbers;
pub mod pod;
pub mod qos;

pub use name::CgroupNames;
pub use numbers::{CgroupNumbers, CpuQuota, compute_settings};
pub use pod::{PodRules, compute_pod_numbers};
pub use qos::{QosCgroupNumbers, QosCgroupRules, compute_qos_cgroups};

#[cfg(test)]
mod tests;
