//! The tasks of the kubelet. They observe, wait and act; every decision is made in a decision core (`kubelet-core` and the cores of subsystems).
//!
//! ```text
//! file, url --sets--> SyncLoop --desired state--> PodWorker (one per pod) --passes--> Runtime, Host, Net
//!                                             ^    ^
//!                              observations --'    '-- verdicts of the pod's probes
//! Runtime --listings, hints--> Pleg
//! ```
//! Architecture invariants:
//! - a task owns the state that it changes; other tasks hold a handle. No lock spans an await;
//! - the sync loop never waits for a pod, and no pod waits for another;
//! - this crate names no adapter: it reaches the runtime, the host and the network through `ports` only.
#![forbid(unsafe_code)]

pub mod cgroup_problems;
mod heartbeat;
mod log_tail;
pub mod metrics;
pub mod node;
pub mod node_handle;
pub mod node_view;
pub mod plugins;
pub mod pods;
mod probe_metrics;
pub mod run_once;
pub mod serving;
mod start;
pub mod takeover;

pub use start::{Agent, Ports};
