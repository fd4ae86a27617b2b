//! The whole agent on paused time, over a runtime, a machine and a network in memory that outlive it: single scenarios, and a
//! randomized simulation.
#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code, but clippy knows only functions that carry #[test]"
)]

mod agent_restart;
mod bootstrap;
mod certificate_rotation;
mod cgroup_driver;
mod cgroups;
mod change_over;
mod claims;
mod cluster;
mod cluster_admission;
mod cluster_node;
mod cluster_pods;
mod csi;
mod csi_cluster;
mod csi_expansion;
mod csi_faults;
mod csi_migration;
mod csi_node_loss;
mod csi_selinux;
mod csi_stats;
mod devices;
mod eviction;
mod fibre_channel;
mod firewall;
mod flex;
mod hostile_objects;
mod image_access;
mod image_events;
mod image_requests;
mod inventory;
mod iscsi;
mod isolation;
mod lifecycle;
mod log_rotation;
mod mirror_pods;
mod node_shutdown;
mod objects;
mod pins;
mod plugins;
mod pod_certificates;
mod pod_start;
mod pods;
mod probes;
mod recording_runtime;
mod resize;
mod runtime_events;
mod serving_certificate;
mod simulation;
mod stats;
mod sync_retry;
mod system_processes;
mod termination;
mod user_namespaces;
mod volumes;
mod waits;
mod world;
