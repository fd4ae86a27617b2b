//! Tests of the CPU manager. Tables named `…_table` have the values of the Go kubelet's unit tests (1.36), on its machines.

mod allocation;
mod fixtures;
mod hints;
mod invariants;
mod machines;
mod options;
mod pod_level;
mod reconcile;
mod start;
mod state_file;
mod uncore_caches;

pub(super) use fixtures::{cpus, topology};
