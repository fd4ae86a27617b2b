//! The decision core: every decision of the kubelet as a pure, synchronous function from what is desired and what was observed
//! to a plan.
//!
//! Architecture invariants:
//! - no I/O, no clock, no randomness, no logging, no task, no lock: time and chance come in as arguments;
//! - decisions iterate in a fixed order (`BTreeMap`, never `HashMap`), so the same input gives the same plan;
//! - every action carries its *why* as an enum, which the golden tests print and events and logs show.
#![forbid(unsafe_code)]

pub mod admission;
pub mod allocations;
pub mod certificates;
pub mod cgroup;
pub mod cgroup_driver;
pub mod container_log;
pub mod devices;
pub mod dns;
pub mod downward;
pub mod env;
pub mod events;
pub mod eviction;
pub mod firewall;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gc;
pub mod hostname;
pub mod hosts_file;
pub mod housekeeping;
pub mod http_action;
pub mod image;
pub mod kernel;
pub mod lease;
pub mod log_paths;
pub mod log_rotation;
mod lru;
pub mod mirror;
pub mod node;
pub mod node_logs;
pub mod oom;
pub mod pleg;
pub mod pod;
pub mod probe;
pub mod reflector;
pub mod request;
pub mod shutdown;
pub mod sources;
pub mod static_pod;
pub mod stats;
pub mod status;
pub mod status_patch;
pub mod status_queue;
pub mod strategic_patch;
pub mod userns;
pub mod volume;
