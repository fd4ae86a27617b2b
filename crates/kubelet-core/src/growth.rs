//! A pod with many of anything goes through every decision about it, and none of them takes time that grows faster than n log n: the
//! decisions run on the one thread that also renews the lease.
//!
//! Each part of a pod that can be counted is a function from a number to a pod; each decision is a stage. A new part or decision gets a line
//! in its table.

mod parts;
mod stages;

use parts::{PARTS, Part};
use stages::{Big, STAGES};

/// How many of a part the larger pod has.
const MANY: usize = 3000;

/// Every stage with the part; the names of those that grow too fast.
fn too_fast(part: &Part) -> Vec<String> {
    let (small, large) = (Big::new(&(part.pod)(part.many / 4)), Big::new(&(part.pod)(part.many)));
    let found = STAGES.iter().filter_map(|(stage, run)| {
        let times = fixtures::growth::grows_too_fast(&mut || run(&small), &mut || run(&large))?;
        Some(format!("{} through {stage}: {times}", part.name))
    });
    found.collect()
}

/// The parts are measured by several tests, which run at the same time.
fn check(share: usize) {
    let own = PARTS.iter().skip(share).step_by(SHARES);
    let found: Vec<String> = own.flat_map(too_fast).collect();
    assert!(found.is_empty(), "grows faster than n log n:\n{}", found.join("\n"));
}

const SHARES: usize = 4;

#[test]
fn growth_of_decisions_with_each_part_of_a_pod_is_linear_first_share() {
    check(0);
}

#[test]
fn growth_of_decisions_with_each_part_of_a_pod_is_linear_second_share() {
    check(1);
}

#[test]
fn growth_of_decisions_with_each_part_of_a_pod_is_linear_third_share() {
    check(2);
}

#[test]
fn growth_of_decisions_with_each_part_of_a_pod_is_linear_fourth_share() {
    check(3);
}
