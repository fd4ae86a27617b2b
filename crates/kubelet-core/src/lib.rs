//! The decisions about pods, the node and plugins, and the report of what a start would do. Those of the other subsystems are in their
//! cores (`crates/*/core`), as is what several share (`base-core`). The tests that follow a pod through all of them are here.
//!
//! In every decision core a decision is a pure, synchronous function from what is desired and what was observed to a plan. Its
//! architecture invariants:
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
