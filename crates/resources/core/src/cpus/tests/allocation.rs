//! CPUs for containers: the tables of `policy_static_test.go` and `cpu_manager_test.go`.

use model::containers::{find_container, init_containers, regular_containers};
use model::k8s::Pod;
use model::topology::NumaMask;

use super::fixtures::{cpus, machine, pod, policy, shown, state};
use crate::cpus::{CpuAllocationError, CpuState, StaticCpuPolicy};

/// Machine, reserved CPUs, options, shared pool, assigned CPUs, pod, affinity, and the CPUs of the first container or why there are none.
const ALLOCATIONS: &str = include_str!("allocations.txt");

/// The fields of each line.
pub(super) fn lines(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().map(|line| line.split('|').map(str::trim).collect())
}

/// Allocates the containers of a pod in its order.
pub(super) fn allocate_all(
    policy: &StaticCpuPolicy,
    state: &mut CpuState,
    pod: &Pod,
) -> Result<(), CpuAllocationError> {
    let uid = model::PodRef::of(pod).uid;
    for container in init_containers(pod).chain(regular_containers(pod)) {
        if let Some(allocated) = policy.allocate_container(state, pod, &container, None)? {
            state.assign(&uid, container.name(), allocated.cpus);
        }
    }
    Ok(())
}

#[test]
fn static_policy_allocations_table() {
    for line in lines(ALLOCATIONS) {
        let [machine, reserved, options, default, assigned, words, affinity, expected] = line[..] else {
            panic!("{line:?}")
        };
        let policy = policy(machine, reserved, options);
        let state = state(default, assigned);
        let pod = pod("fakePod", words);
        let nodes = affinity.split(',').filter_map(|node| node.trim().parse().ok());
        let affinity = Some(NumaMask::of(nodes)).filter(|nodes| !nodes.is_empty());
        let container = find_container(&pod, "c0").unwrap();
        let result = match policy.allocate_container(&state, &pod, &container, affinity) {
            Ok(allocated) => allocated.map_or("-".to_owned(), |allocated| allocated.cpus.to_string()),
            Err(why) => why.to_string(),
        };
        assert_eq!(result, expected, "{line:?}");
    }
}

#[test]
fn allocations_near_numa_nodes_table() {
    for (count, affinity, expected) in [
        ("2", None, "0,6"),
        ("2", Some(0), "0,6"),
        ("2", Some(1), "1,7"),
        ("8", Some(0), "0-2,4,6-8,10"),
        ("8", Some(1), "0,1,3,5-7,9,11"),
    ] {
        let policy = policy("DualSocketHT", "0", "");
        let (state, pod) = (state("0-11", ""), pod("p", &format!("c:{count}")));
        let container = find_container(&pod, "c0").unwrap();
        let affinity = affinity.map(|node| NumaMask::of([node]));
        let allocated = policy.allocate_container(&state, &pod, &container, affinity).unwrap().unwrap();
        assert_eq!(allocated.cpus, cpus(expected), "{count} {affinity:?}");
    }
}

#[test]
fn init_containers_cpus_are_reused_table() {
    for (words, expected) in [
        ("i:100m c:4", "p.c1=0-1,4-5"),
        ("i:4 c:4", "p.c1=0-1,4-5 p.i0=0-1,4-5"),
        ("i:6 c:4", "p.c1=0-1,4-5 p.i0=0-2,4-6"),
        ("i:2 c:4", "p.c1=0-1,4-5 p.i0=0,4"),
        ("i:2 i:2 c:2", "p.c2=0,4 p.i0=0,4 p.i1=0,4"),
        ("i:4 i:4 c:2", "p.c2=0,4 p.i0=0-1,4-5 p.i1=0-1,4-5"),
        ("i:2 i:2 c:4", "p.c2=0-1,4-5 p.i0=0,4 p.i1=0,4"),
        ("i:2 i:4 c:6", "p.c2=0-2,4-6 p.i0=0,4 p.i1=0-1,4-5"),
        ("i:2 i:4 c:2 c:2", "p.c2=0,4 p.c3=1,5 p.i0=0,4 p.i1=0-1,4-5"),
        // The CPUs of a sidecar are not reused.
        ("s:4 c:2", "p.c1=2,6 p.s0=0-1,4-5"),
        ("s:2 i:2 s:2 c:2", "p.c3=2,6 p.i1=1,5 p.s0=0,4 p.s2=1,5"),
    ] {
        let policy = policy("SingleSocketHT", "0", "");
        let mut state = state("0-7", "");
        allocate_all(&policy, &mut state, &pod("p", words)).unwrap();
        assert_eq!(shown(&state), expected, "{words}");
        assert_eq!(state.default, cpus("0-7").difference(&state.all_exclusive()));
    }
}

#[test]
fn release_keeps_cpus_that_other_containers_of_the_pod_have_table() {
    let policy = policy("SingleSocketHT", "0", "");
    let mut state = state("0-7", "");
    allocate_all(&policy, &mut state, &pod("p", "i:4 c:2")).unwrap();
    assert_eq!(state.default, cpus("2-3,6-7"));
    state.release(&"p".into(), "i0");
    assert_eq!(state.default, cpus("1-3,5-7"));
    assert_eq!(shown(&state), "p.c1=0,4");
}

#[test]
fn release_table() {
    for (default, assigned, container, expected) in [
        ("4-7", "fakePod.fakeContainer1=1-3", "fakeContainer1", "1-7"),
        ("", "fakePod.fakeContainer1=1-3 fakePod.fakeContainer2=4-7", "fakeContainer1", "1-3"),
        ("6-7", "fakePod.fakeContainer1=1,3,5 fakePod.fakeContainer2=2,4", "fakeContainer1", "1,3,5-7"),
        ("2,4,6-7", "fakePod.fakeContainer1=1,3,5", "fakeContainer2", "2,4,6-7"),
    ] {
        let mut state = state(default, assigned);
        state.release(&"fakePod".into(), container);
        assert_eq!(state.default, cpus(expected));
        assert_eq!(state.exclusive(&"fakePod".into(), container), None);
    }
}

#[test]
fn inactive_containers_lose_their_cpus() {
    let mut state = state("5-7", "a.x=1,2 a.y=0 b.x=3,4");
    state.release_inactive(|pod, container| pod.as_str() == "a" && container == "x");
    assert_eq!(shown(&state), "a.x=1-2");
    assert_eq!(state.default, cpus("0,3-7"));
}

#[test]
fn container_keeps_its_cpus_when_its_pod_is_admitted_again() {
    // The Go kubelet refuses the pod, because no whole cores are left.
    let policy = policy("SingleSocketHT", "=0,4", "full-pcpus-only");
    let mut state = state("0-7", "");
    let pod = pod("p", "c:6");
    allocate_all(&policy, &mut state, &pod).unwrap();
    let container = find_container(&pod, "c0").unwrap();
    let again = policy.allocate_container(&state, &pod, &container, None).unwrap().unwrap();
    assert!(again.is_old);
    assert_eq!(again.cpus, cpus("1-3,5-7"));
}

#[test]
fn reused_cpus_count_as_whole_cores() {
    // The Go kubelet refuses the pod, because it looks at the shared pool only.
    let policy = policy("SingleSocketHT", "=0,4", "full-pcpus-only");
    let mut state = state("0-7", "");
    allocate_all(&policy, &mut state, &pod("p", "i:6 c:6")).unwrap();
    assert_eq!(shown(&state), "p.c1=1-3,5-7 p.i0=1-3,5-7");
}

#[test]
fn affinity_to_a_part_of_the_request_does_not_break_cores() {
    // Node 0 has 0, 2, 4, 8 and 10 free: two whole cores, and the sibling of a reserved CPU, which the Go kubelet would give.
    let policy = policy("DualSocketHT", "=1,6", "full-pcpus-only");
    let (state, pod) = (state("0-11", ""), pod("p", "c:6"));
    let container = find_container(&pod, "c0").unwrap();
    let affinity = Some(NumaMask::of([0]));
    let allocated = policy.allocate_container(&state, &pod, &container, affinity).unwrap().unwrap();
    assert_eq!(allocated.cpus, cpus("2-4,8-10"));
}

#[test]
fn pods_without_cpus_fail_with_the_reasons_of_the_go_kubelet() {
    let rejection = |options: &str, words: &str| {
        let policy = policy("SingleSocketHT", "=0", options);
        let why = allocate_all(&policy, &mut state("0-7", ""), &pod("p", words)).unwrap_err().rejection();
        format!("{}: {}", why.reason, why.message)
    };
    assert_eq!(
        rejection("", "c:8"),
        "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: requested=8, \
         available=7, which is unexpected"
    );
    assert_eq!(
        rejection("full-pcpus-only", "c:3"),
        "SMTAlignmentError: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    );
    assert_eq!(
        rejection("full-pcpus-only", "c:8"),
        "SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = \
         8, CPUs per core = 2"
    );
}

#[test]
fn pods_with_resources_of_their_own_share_without_pod_level_managers() {
    let mut policy = policy("SingleSocketHT", "0", "");
    policy.pod_level = false;
    let mut state = state("0-7", "");
    allocate_all(&policy, &mut state, &pod("p", "pod:2 c:1")).unwrap();
    assert_eq!(shown(&state), "");
}

#[test]
fn alignment_to_a_cache_is_reported() {
    let policy = policy("UncoreSingleSocketNoSMT", "=0", "prefer-align-cpus-by-uncorecache");
    for (words, is_aligned) in [("c:4", true), ("c:1", true), ("c:5", false)] {
        let (state, pod) = (state("0-15", ""), pod("p", words));
        let container = find_container(&pod, "c0").unwrap();
        let allocated = policy.allocate_container(&state, &pod, &container, None).unwrap().unwrap();
        assert_eq!(allocated.is_uncore_aligned, is_aligned, "{words}");
    }
}

#[test]
fn cpus_are_counted_per_numa_node() {
    let topology = crate::cpus::CpuTopology::of(&machine("DualSocketHT"));
    assert_eq!(topology.count_per_numa_node(&cpus("0,2,6,1")), [(0, 3), (1, 1)].into());
    assert_eq!(topology.count_per_numa_node(&cpus("1")), [(1, 1)].into());
}
