//! Nodes that are broken on purpose: if the simulation did not report them, its invariants would be worthless.

use std::ops::Range;

use super::{Run, run_with};

/// One of these seeds finds it. Some invariants need several events in a row; the ranges begin shortly before the first that finds them,
/// so that the test is short.
#[track_caller]
fn assert_seen(invariant: &str, seeds: Range<u64>, breaks: impl Fn(&mut Run)) {
    let failures = seeds.filter_map(|seed| run_with(seed, &breaks).err());
    let is_expected = |why: &String| why.lines().take(10).any(|line| line.contains(invariant));
    let mut seen: Vec<String> = Vec::new();
    for why in failures {
        seen.push(why.lines().next().unwrap_or_default().to_owned());
        if is_expected(&why) {
            return;
        }
    }
    assert_eq!(seen, [invariant], "the failures do not have the expected one");
}

#[test]
fn simulation_detects_a_device_that_is_allocated_twice() {
    assert_seen("device", 0..20, |run| run.lose_at_kill("kubelet_internal_checkpoint"));
}

#[test]
fn simulation_detects_exclusive_cpus_that_change() {
    assert_seen("had the CPUs", 60..80, |run| run.lose_at_kill("cpu_manager_state"));
}

#[test]
fn simulation_detects_a_final_status_that_is_lost() {
    assert_seen("the final status of", 20..40, |run| run.lose_at_kill("status.json"));
}

#[test]
fn simulation_detects_a_mount_that_is_left_behind() {
    assert_seen("something is left", 0..20, |run| _ = run.world.host.ignore_unmounts());
}

#[test]
fn simulation_detects_a_file_that_is_not_written_durably() {
    assert_seen("the kubelet does not start", 0..20, |run| _ = run.world.host.ignore_flushes());
}
