//! The decisions of a soak (`scripts/soak`), all pure: what happens when, what each pod looks like, what must hold at every moment
//! and at the end, and the chart. `crates/kubelet/benches/soak` observes and acts.
//!
//! Everything follows from one seed: the same seed, length and number of pods give the same schedule.

pub mod chart;
pub mod clock;
pub mod convergence;
pub mod invariants;
pub mod leaks;
pub mod pods;
pub mod rng;
pub mod schedule;
