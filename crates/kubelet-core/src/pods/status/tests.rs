//! Golden tables and invariants of the pod status. `scenario.rs` has the little language they are written in.

mod devices;
mod golden;
mod invariants;
mod restart;
mod scenario;
