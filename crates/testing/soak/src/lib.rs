//! The decisions of a soak (`scripts/soak`), all pure: what happens when, what each pod looks like, what must hold at every moment
//! and at the end, and the chart. Only `run` observes and acts.
//!
//! Everything follows from one seed: the same seed, length and number of pods give the same schedule.
#![forbid(unsafe_code)]

pub mod chart;
pub mod clock;
pub mod convergence;
pub mod invariants;
pub mod leaks;
pub mod pods;
pub mod run;
pub mod schedule;
