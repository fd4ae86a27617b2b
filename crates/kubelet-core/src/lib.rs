//! The brain: every decision of the kubelet as a pure, synchronous function from what is desired and what was observed
//! to a plan.
//!
//! Architecture invariants:
//! - no I/O, no clock, no randomness, no logging, no task, no lock: time and chance come in as arguments;
//! - decisions iterate in a fixed order (`BTreeMap`, never `HashMap`), so the same input gives the same plan;
//! - every action carries its *why* as an enum, which the golden tests print and events and logs show.
#![forbid(unsafe_code)]

pub mod gc;
mod go_duration;
pub mod housekeeping;
pub mod log_rotation;
pub mod pleg;
pub mod pod;
pub mod probe;
pub mod sources;
pub mod status;
