//! Decisions about one pod.

pub mod plan;
