//! Probes: the meaning of their results, and the next step of each.

pub mod machine;
pub mod outcome;
pub mod results;
pub mod spec;
