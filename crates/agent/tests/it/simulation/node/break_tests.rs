//! Nodes that are broken on purpose: if the simulation did not report them, its invariants would be worthless.

use std::ops::Range;

use super::super::assert_detected;
use super::{Run, run_with};

/// The failure is among the first lines: one violation can cause others.
#[track_caller]
fn assert_seen(invariant: &str, seeds: Range<u64>, breaks: impl Fn(&mut Run)) {
    assert_detected(
        seeds,
        |seed| run_with(seed, &breaks),
        |why| why.lines().take(10).any(|line| line.contains(invariant)),
    );
}

#[test]
fn simulation_detects_a_device_that_is_allocated_twice() {
    assert_seen("device", 3..20, |run| run.lose_at_kill("kubelet_internal_checkpoint"));
}

#[test]
fn simulation_detects_exclusive_cpus_that_change() {
    assert_seen("had the CPUs", 65..80, |run| run.lose_at_kill("cpu_manager_state"));
}

#[test]
fn simulation_detects_a_final_status_that_is_lost() {
    assert_seen("the final status of", 28..40, |run| run.lose_at_kill("status.json"));
}

#[test]
fn simulation_detects_a_mount_that_is_left_behind() {
    assert_seen("something is left", 0..20, |run| _ = run.world.host.ignore_unmounts());
}

#[test]
fn simulation_detects_a_file_that_is_not_written_durably() {
    assert_seen("the kubelet does not start", 0..20, |run| _ = run.world.host.ignore_flushes());
}
