//! The decision core: every decision of the kubelet as a pure, synchronous function from what is desired and what was observed
//! to a plan.
//!
//! Architecture invariants:
//! - no I/O, no clock, no randomness, no logging, no task, no lock: time and random numbers are arguments;
//! - decisions iterate in a fixed order (`BTreeMap`, never `HashMap`), so the same input gives the same plan;
//! - every action carries its *why* as an enum, which the golden tests print and events and logs show.
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod growth;
pub mod node;
pub mod plugins;
pub mod pods;
pub mod takeover;
