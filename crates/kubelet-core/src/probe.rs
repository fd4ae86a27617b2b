//! Probes: what their results mean and what each one does next.

pub mod results;
