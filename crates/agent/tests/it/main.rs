//! The whole agent on paused time, over a runtime, a machine and a network in memory that outlive it. First single
//! stories, then a simulation that throws dice.
#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code, but clippy knows only functions that carry #[test]"
)]

mod ending;
mod hints;
mod isolation;
mod pods;
mod probing;
mod restarting;
mod simulation;
mod starting;
mod user_namespaces;
mod witness;
mod world;
