//! The values of `cpu_assignment_test.go`.

use model::topology::{MachineTopology, Processor};

use super::super::tests::{cpus, topology};
use super::accumulator::Accumulator;
use super::*;

/// The machine, its free CPUs, how many are needed, and those that are assigned or why not.
type Case = (&'static str, &'static str, usize, &'static str);

const PACKED: &[Case] = &[
    ("SingleSocketHT", "0,2,4,6", 5, "requested=5, available=4"),
    ("SingleSocketHT", "0-7", 0, ""),
    ("SingleSocketHT", "0-7", 1, "0"),
    ("SingleSocketHT", "1,3,5-7", 1, "6"),
    ("SingleSocketHT", "0-7", 2, "0,4"),
    ("SingleSocketHT", "0-7", 8, "0-7"),
    ("SingleSocketHT", "0-3,6", 2, "2,6"),
    ("DualSocketHT", "0-11", 6, "0,2,4,6,8,10"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 40, "0-19,40-59"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 20, "0-9,40-49"),
    ("DualSocketMultiNumaPerSocketHT", "10-39,50-79", 20, "10-19,50-59"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 60, "0-29,40-69"),
    ("DualSocketMultiNumaPerSocketHT", "1-39,41-79", 60, "10-39,50-79"),
    ("DualSocketHT", "1-5,7-11", 1, "2"),
    ("DualSocketHT", "0-11", 8, "0-2,4,6-8,10"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 64, "0-31,40-71"),
];

const BY_UNCORE_CACHE: &[Case] = &[
    ("UncoreSingleSocketNoSMT", "1-15", 10, "1-2,4-11"),
    ("DualSocketHT", "1-5,7-11", 1, "1"),
    ("UncoreDualSocketNoSMT", "0-15", 4, "0-3"),
    ("UncoreDualSocketNoSMT", "2-15", 6, "2-7"),
    ("UncoreDualSocketNoSMT", "8-15", 4, "8-11"),
    ("UncoreSingleSocketMultiNuma", "3-8,12", 2, "4-5"),
    ("UncoreSingleSocketSMT", "2-7,10-15", 6, "4-6,12-14"),
    ("UncoreSingleSocketSMT", "1-7,9-15", 10, "1,4-7,9,12-15"),
];

const SPREAD: &[Case] = &[
    ("SingleSocketHT", "0-7", 3, "0-2"),
    ("DualSocketHT", "0-11", 2, "0,2"),
    ("DualSocketHT", "0-11", 3, "0,2,4"),
    ("DualSocketHT", "0-11", 6, "0,2,4,6,8,10"),
    ("DualSocketHT", "0-11", 8, "0-4,6,8,10"),
    ("DualSocketNoHT", "0-7", 2, "0-1"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 8, "0-7"),
    ("QuadSocketFourWayHT", "0-287", 12, "0-2,9-10,13-14,21-22,25-26,33"),
];

/// As before, with the number of CPUs that are given together.
const DISTRIBUTED: &[(&str, &str, usize, usize, &str)] = &[
    ("SingleSocketHT", "0,2,4,6", 5, 1, "requested=5, available=4"),
    ("SingleSocketHT", "0-7", 0, 1, ""),
    ("SingleSocketHT", "0-7", 1, 1, "0"),
    ("SingleSocketHT", "1,3,5-7", 1, 1, "6"),
    ("SingleSocketHT", "0-7", 2, 1, "0,4"),
    ("SingleSocketHT", "0-7", 8, 1, "0-7"),
    ("SingleSocketHT", "0-3,6", 2, 1, "2,6"),
    ("DualSocketHT", "0-11", 6, 1, "0,2,4,6,8,10"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 40, 1, "0-19,40-59"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 20, 1, "0-9,40-49"),
    ("DualSocketMultiNumaPerSocketHT", "10-39,50-79", 20, 1, "10-19,50-59"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 60, 1, "0-29,40-69"),
    ("DualSocketMultiNumaPerSocketHT", "1-39,41-79", 60, 1, "10-39,50-79"),
    ("DualSocketHT", "0-11", 8, 1, "0-3,6-9"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 64, 1, "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 48, 1, "0-7,10-17,20-27,40-47,50-57,60-67"),
    ("DualSocketMultiNumaPerSocketHT", "1-29,32-39,41-69,72-79", 48, 1, "1-8,10-17,20-27,41-48,50-57,60-67"),
    (
        "DualSocketMultiNumaPerSocketHT",
        "2-29,31-39,42-69,71-79",
        48,
        1,
        "10-17,20-27,31-38,50-57,60-67,71-78",
    ),
    (
        "DualSocketMultiNumaPerSocketHT",
        "0-2,10-12,20-22,30-32,40-41,50-51,60-61,70-71",
        16,
        1,
        "0-1,10-11,20-21,30-31,40-41,50-51,60-61,70-71",
    ),
    ("DualSocketHT", "1-5,7-11", 1, 1, "1"),
    ("DualSocketHT", "1-5,7-11", 1, 2, "2"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 26, 1, "0-6,10-16,40-45,50-55"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 26, 2, "0-6,10-15,40-46,50-55"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 62, 1, "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76"),
    ("DualSocketMultiNumaPerSocketHT", "0-79", 62, 2, "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"),
    (
        "DualSocketMultiNumaPerSocketHT",
        "0-8,10-18,20-48,50-58,60-79",
        62,
        1,
        "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77",
    ),
    (
        "DualSocketMultiNumaPerSocketHT",
        "0-8,10-18,20-48,50-58,60-79",
        62,
        2,
        "0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77",
    ),
    (
        "DualSocketMultiNumaPerSocketHT",
        "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76",
        34,
        1,
        "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74",
    ),
    (
        "DualSocketMultiNumaPerSocketHTLarge",
        "0,30-31,43-47,62-63,75-79,94,96,101-111,126-128,158-159,171-175,190-191,203-207,222-223,229-239,254-255",
        28,
        1,
        "43-47,75-79,96,101-105,171-174,203-206,229-232",
    ),
];

fn result(assigned: Result<CpuSet, NotEnoughCpus>) -> String {
    assigned.map_or_else(|why| why.to_string(), |cpus| cpus.to_string())
}

fn check_all(cases: &[Case], strategy: Strategy, prefers_uncore_cache: bool) {
    for (machine, available, count, expected) in cases {
        let topology = topology(machine);
        let assigned = assign_packed(&topology, &cpus(available), *count, strategy, prefers_uncore_cache);
        assert_eq!(full(&result(assigned)), full(expected), "{machine}: {count} of {available}");
    }
}

/// The beginning of the message is the same in all cases.
fn full(text: &str) -> &str {
    text.strip_prefix("not enough cpus available to satisfy request: ").unwrap_or(text)
}

#[test]
fn packed_cpus_table() {
    check_all(PACKED, Strategy::Packed, false);
}

#[test]
fn cpus_by_uncore_cache_table() {
    check_all(BY_UNCORE_CACHE, Strategy::Packed, true);
}

#[test]
fn cpus_spread_over_cores_table() {
    check_all(SPREAD, Strategy::Spread, false);
}

#[test]
fn cpus_distributed_over_numa_nodes_table() {
    for (machine, available, count, group, expected) in DISTRIBUTED {
        let topology = topology(machine);
        let assigned = distributed::assign(&topology, &cpus(available), *count, *group, Strategy::Packed);
        assert_eq!(full(&result(assigned)), full(expected), "{machine}: {count} of {available} by {group}");
    }
}

#[test]
fn shortage_names_both_numbers() {
    let why = NotEnoughCpus { requested: 5, available: 4 };
    assert_eq!(why.to_string(), "not enough cpus available to satisfy request: requested=5, available=4");
}

/// What is free as a whole, in the order in which it is taken.
fn check_free(cases: &[(&str, &str, &[u32])], free: fn(&Accumulator<'_>) -> Vec<u32>) {
    for (machine, available, expected) in cases {
        let topology = topology(machine);
        let accumulator = Accumulator::new(&topology, &cpus(available), 0, Strategy::Packed).unwrap();
        assert_eq!(free(&accumulator), *expected, "{machine}: {available}");
    }
}

#[test]
fn free_sockets_table() {
    let in_order = |accumulator: &Accumulator<'_>| {
        let mut sockets = accumulator.free_sockets();
        sockets.sort_unstable();
        sockets
    };
    check_free(
        &[
            ("SingleSocketHT", "0-7", &[0]),
            ("SingleSocketHT", "1-7", &[]),
            ("DualSocketHT", "0-11", &[0, 1]),
            ("DualSocketHT", "0-9,11", &[1]),
            ("DualSocketHT", "0,2-9,11", &[]),
            ("DualSocketMultiNumaPerSocketHT", "0-79", &[0, 1]),
            ("DualSocketMultiNumaPerSocketHT", "1-79", &[1]),
            ("DualSocketMultiNumaPerSocketHT", "1-78", &[]),
            ("FakeMultiSocketDualSocketPerNumaHT", "0-79", &[0, 1, 2, 3]),
            ("FakeMultiSocketDualSocketPerNumaHT", "0-19,21-79", &[0, 1, 3]),
            ("FakeMultiSocketDualSocketPerNumaHT", "0-59,61-78", &[0, 1]),
            ("FakeMultiSocketDualSocketPerNumaHT", "1-19,21-38,41-78", &[1]),
            ("FakeMultiSocketDualSocketPerNumaHT", "0-40,42-49,51-68,71-79", &[]),
        ],
        in_order,
    );
}

#[test]
fn free_numa_nodes_table() {
    check_free(
        &[
            ("SingleSocketHT", "0-7", &[0]),
            ("SingleSocketHT", "1-7", &[]),
            ("DualSocketHT", "0-11", &[0, 1]),
            ("DualSocketHT", "0-9,11", &[1]),
            ("DualSocketHT", "0,2-9,11", &[]),
            ("DualSocketMultiNumaPerSocketHT", "0-79", &[0, 1, 2, 3]),
            ("DualSocketMultiNumaPerSocketHT", "1-79", &[1, 2, 3]),
            ("DualSocketMultiNumaPerSocketHT", "1-9,11-79", &[2, 3]),
            ("DualSocketMultiNumaPerSocketHT", "1-9,11-59,61-79", &[3]),
            ("DualSocketMultiNumaPerSocketHT", "1-9,11-59,61-78", &[]),
            ("FakeMultiSocketDualSocketPerNumaHT", "0-79", &[0, 1]),
            ("FakeMultiSocketDualSocketPerNumaHT", "0-9,11-79", &[1]),
            ("FakeMultiSocketDualSocketPerNumaHT", "0-9,11-59,61-79", &[]),
        ],
        |accumulator| accumulator.free_numa_nodes(),
    );
}

#[test]
fn free_sockets_and_numa_nodes_table() {
    let cases: [(&str, &str, &[u32], &[u32]); 4] = [
        ("DualSocketMultiNumaPerSocketHT", "0-79", &[0, 1], &[0, 1, 2, 3]),
        ("DualSocketMultiNumaPerSocketHT", "1-79", &[1], &[1, 2, 3]),
        ("DualSocketMultiNumaPerSocketHT", "1-9,11-79", &[1], &[2, 3]),
        ("DualSocketMultiNumaPerSocketHT", "1-59,61-79", &[], &[1, 3]),
    ];
    for (machine, available, sockets, nodes) in cases {
        check_free(&[(machine, available, sockets)], |accumulator| accumulator.free_sockets());
        check_free(&[(machine, available, nodes)], |accumulator| accumulator.free_numa_nodes());
    }
}

#[test]
fn free_cores_table() {
    check_free(
        &[
            ("SingleSocketHT", "0-7", &[0, 1, 2, 3]),
            ("SingleSocketHT", "0-2,4-6", &[0, 1, 2]),
            ("SingleSocketHT", "0-6", &[0, 1, 2]),
            ("SingleSocketHT", "", &[]),
            ("SingleSocketHT", "0-3", &[]),
            ("DualSocketHT", "0-11", &[0, 2, 4, 1, 3, 5]),
            ("DualSocketHT", "1-5,7-11", &[2, 4, 1, 3, 5]),
            ("DualSocketHT", "2-5,8-11", &[2, 4, 3, 5]),
        ],
        |accumulator| accumulator.free_cores(),
    );
}

#[test]
fn free_cpus_table() {
    check_free(
        &[
            ("SingleSocketHT", "0-7", &[0, 4, 1, 5, 2, 6, 3, 7]),
            ("SingleSocketHT", "3-7", &[4, 5, 6, 3, 7]),
            ("DualSocketHT", "0-11", &[0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
            ("DualSocketHT", "1-11", &[6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
            ("DualSocketHT", "1-5,7-11", &[2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
            ("TripleSocketHT", "0-3,6-13", &[12, 13, 0, 1, 2, 3, 6, 7, 8, 9, 10, 11]),
        ],
        |accumulator| accumulator.free_cpus(),
    );
}

/// The Go kubelet takes a core of two threads as free when one is, because the mean of the machine is one thread a core, and then takes both.
#[test]
fn cpus_in_use_are_not_assigned_on_machines_with_unequal_cores() {
    let topology = topology("SingleSocketSingleNumaPerSocketPCoreHTMonolithicUncore");
    for count in 1..=8 {
        let available = cpus("1,3,5,7,16-19");
        let assigned = assign_packed(&topology, &available, count, Strategy::Packed, false).unwrap();
        assert!(assigned.is_subset(&available) && assigned.len() == count, "{count}: {assigned}");
    }
}

/// Two nodes of three CPUs have one pair each to give, so that four pairs can only come from more nodes. The Go kubelet does not return.
#[test]
fn distribution_ends_when_nodes_have_too_few_groups() {
    let topology = topology("DualSocketMultiNumaPerSocketHT");
    let available = cpus("0-2,10-12,20-22,30-32");
    for count in [2, 4, 6, 8] {
        let assigned = distributed::assign(&topology, &available, count, 2, Strategy::Packed).unwrap();
        assert_eq!(assigned.len(), count);
    }
    assert_eq!(distributed::assign(&topology, &available, 10, 2, Strategy::Packed).unwrap().len(), 10);
}

#[test]
fn distribution_over_many_numa_nodes_ends() {
    let processor = |id: u32| Processor { id, core: id, socket: 0, numa_node: id / 5, uncore_cache: 0 };
    let machine = MachineTopology { processors: (0..160).map(processor).collect(), numa_nodes: Vec::new() };
    let topology = CpuTopology::of(&machine);
    let available: CpuSet = (0..160).filter(|id| id % 37 > 3).collect();
    let assigned = distributed::assign(&topology, &available, 101, 1, Strategy::Packed).unwrap();
    assert!(assigned.len() == 101 && assigned.is_subset(&available));
}
