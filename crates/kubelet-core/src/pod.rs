//! Decisions about one pod.

pub mod actions;
pub mod allocation;
pub mod backoff;
pub mod create_error;
pub mod deadline;
#[cfg(test)]
mod extremes;
#[cfg(test)]
pub(crate) mod fixture;
pub mod hash;
pub mod plan;
pub mod restart;
pub mod termination;
pub mod worker;
