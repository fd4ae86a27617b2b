//! The whole agent on paused time, over a runtime, a machine and a network in memory that outlive it: single scenarios, and a
//! randomized simulation.
#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code, but clippy knows only functions that carry #[test]"
)]

mod cgroup_driver;
mod cgroups;
mod cluster;
mod cluster_admission;
mod cluster_mirrors;
mod cluster_node;
mod cluster_pods;
mod devices;
mod ending;
mod firewall;
mod hints;
mod image_access;
mod image_events;
mod isolation;
mod joining;
mod lifecycle;
mod log_rotation;
mod measuring;
mod objects;
mod pods;
mod pressure;
mod probing;
mod recording_runtime;
mod renewing;
mod restarting;
mod retrying;
mod serving;
mod shutdown;
mod simulation;
mod starting;
mod system_processes;
mod user_namespaces;
mod volumes;
mod world;
