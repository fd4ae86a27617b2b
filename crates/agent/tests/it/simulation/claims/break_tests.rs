//! Nodes that are broken on purpose: if the simulation did not report them, its invariants would be worthless.

use std::ops::Range;

use fakes::FakeDraDriver;

use super::super::assert_detected;
use super::{Run, run_with};

/// The failure is among the first lines: one violation can cause others.
#[track_caller]
fn assert_seen(invariant: &str, seeds: Range<u64>, breaks: impl Fn(&mut Run)) {
    assert_detected(
        seeds,
        |seed| run_with(seed, &breaks),
        |why| why.lines().take(20).any(|line| line.contains(invariant)),
    );
}

fn each_driver(run: &Run, breaks: impl Fn(&FakeDraDriver) -> &FakeDraDriver) {
    run.drivers.iter().for_each(|driver| _ = breaks(driver));
}

/// Calls go on in the driver when the kubelet is killed or times out.
#[test]
fn simulation_detects_two_calls_for_a_claim_at_once() {
    assert_seen("during another call", 0..10, |run| each_driver(run, FakeDraDriver::outlive_callers));
}

/// The runtime reports that it has stopped containers, and has not.
#[test]
fn simulation_detects_a_claim_that_is_unprepared_under_a_running_container() {
    assert_seen("is unprepared while a container", 0..10, |run| run.world.runtime.report_false_stops());
}

/// Drivers report that they have prepared claims, and have not.
#[test]
fn simulation_detects_a_container_that_starts_without_its_claims_prepared() {
    assert_seen("starts although", 0..10, |run| each_driver(run, FakeDraDriver::ignore_prepares));
}

/// Drivers report that they have unprepared claims, and have not.
#[test]
fn simulation_detects_a_pod_whose_object_goes_before_its_claims_are_unprepared() {
    assert_seen("is gone from the API before", 0..10, |run| {
        each_driver(run, FakeDraDriver::ignore_unprepares)
    });
}

/// The same, seen at the end.
#[test]
fn simulation_detects_a_claim_that_stays_prepared_without_pods() {
    assert_seen("has prepared", 0..10, |run| {
        each_driver(run, FakeDraDriver::ignore_unprepares);
        run.checker.lock().ignores_gone = true;
    });
}

/// A kubelet that does not know what an earlier one has prepared cannot unprepare it.
#[test]
fn simulation_detects_that_the_state_of_claims_is_lost() {
    assert_seen("the state file has", 1..10, |run| run.loses_state = true);
}

/// The kubelet sees no CDI device of a container's claims.
#[test]
fn simulation_detects_a_container_without_the_devices_of_its_claims() {
    assert_seen("with the devices", 0..10, |run| each_driver(run, FakeDraDriver::hide_devices));
}
