//! Decisions about one pod.

pub mod actions;
pub mod backoff;
#[cfg(test)]
mod fixture;
pub mod hash;
pub mod plan;
pub mod restart;
