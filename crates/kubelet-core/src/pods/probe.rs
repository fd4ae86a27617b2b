//! Probes: what their results mean and what each one does next.

pub mod machine;
pub mod outcome;
pub mod results;
pub mod spec;
