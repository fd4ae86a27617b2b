//! What the decisions of several subsystems share: rules for names, hashes, selectors, the downward API, kinds of pods.
//!
//! Owns only what at least two decision cores use. The architecture invariants of every decision core hold here too: no I/O, no
//! clock, no randomness, no logging, no task, no lock.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod decimal;
pub mod declared_features;
pub mod downward;
pub mod exit_signal;
pub mod fnv;
pub mod names;
pub mod node_facts;
pub mod node_labels;
pub mod node_owner;
pub mod node_selector;
pub mod object_name;
pub mod object_version;
pub mod pod_kind;
pub mod pod_stage;
pub mod pod_sums;
pub mod service_account_token;
pub mod sysctl;
pub mod trail;
pub mod waits;
