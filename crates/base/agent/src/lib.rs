//! What the tasks of every subsystem use: the ports to the outside world, settings, events, metrics and tasks, and what one task
//! publishes for all (`cache`, `pods_view`).
//!
//! A leaf: it knows no task, so each task names in its own arguments which others it talks to.
#![forbid(unsafe_code)]

pub mod cache;
pub mod context;
pub mod damaged;
pub mod error_chain;
pub mod events;
pub mod metrics;
pub mod plugin_handler;
pub mod pod_files;
pub mod pods_view;
pub mod removers;
pub mod retry_delay;
pub mod rng;
pub mod settings;
pub mod tasks;
pub mod trails;
