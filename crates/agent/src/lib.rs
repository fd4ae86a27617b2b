//! The tasks of the kubelet: what runs, waits and acts. Every decision they carry out is made in `kubelet-core`.
//!
//! ```text
//! file, url --sets--> SyncLoop --orders--> PodWorker (one per pod) --passes--> Runtime, Host, Net
//!                                             ^    ^
//!                              observations --'    '-- verdicts of the pod's probes
//! Runtime --listings, hints--> Pleg
//! ```
//! Architecture invariants:
//! - a task owns what it changes; others hold a handle. No lock spans an await;
//! - the sync loop never waits for a pod, and no pod waits for another;
//! - nothing here names an adapter: the world is reached through `ports` only.
#![forbid(unsafe_code)]

pub mod admissions;
pub mod api;
pub mod cache;
pub mod certificates;
pub mod cgroup_driver;
mod checkpoints;
pub mod cluster;
mod container_garbage_collection;
mod container_logs;
mod damaged;
pub mod devices;
pub mod engine;
pub mod events;
mod eviction;
mod firewall;
pub mod hooks;
mod http_action;
pub mod images;
pub mod log_rotation;
mod log_tail;
pub mod metrics;
pub mod node;
mod node_cgroups;
mod oom_watcher;
pub mod pass;
pub mod pleg;
mod pod_cgroups;
mod pod_cidr;
pub mod pods_view;
mod probe_metrics;
mod prober;
pub mod rng;
pub mod run_once;
pub mod settings;
mod shutdown;
pub mod sources;
mod start;
mod stats;
mod streams;
pub mod sync_loop;
mod system_logs;
mod system_processes;
pub mod tasks;
pub mod user_namespaces;
pub mod volumes;
mod worker;

pub use settings::Settings;
pub use start::{Agent, Ports};
pub use stats::Samplers;
