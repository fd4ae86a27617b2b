//! What each option promises, for requests of every size on machines from 2 to 512 CPUs.

use model::cpu_set::CpuSet;

use super::fixtures::{cpus, pod, policy, state};
use crate::cpus::assign::assign;
use crate::cpus::topology::CpuGroups;
use crate::cpus::{CpuOptions, CpuTopology, StaticCpuPolicy};

const MACHINES: [&str; 6] =
    ["TwoCoreVm", "Laptop", "DualXeonGold6230", "EpycNps4", "ArmServer", "DualEpyc9754"];

fn check_sizes(options: CpuOptions, check: impl Fn(&CpuTopology, usize, &CpuSet)) {
    for machine in MACHINES {
        let topology = super::fixtures::topology(machine);
        let all = topology.cpus();
        let step = (all.len() / 40).max(1);
        for count in (1..=all.len()).step_by(step) {
            let taken = assign(&topology, options, all, count).unwrap();
            assert!(taken.len() == count && taken.is_subset(all), "{machine}: {count} are {taken}");
            check(&topology, count, &taken);
        }
    }
}

fn touched(groups: &CpuGroups, cpus: &CpuSet) -> usize {
    groups.values().filter(|group| !group.is_disjoint(cpus)).count()
}

/// As few groups as `count` CPUs need if all groups have the same size.
fn fewest(topology: &CpuTopology, groups: &CpuGroups, count: usize) -> usize {
    count.div_ceil(topology.cpus().len() / groups.len())
}

#[test]
fn packed_requests_need_as_few_sockets_nodes_and_cores_as_possible() {
    check_sizes(CpuOptions::default(), |topology, count, taken| {
        for groups in [&topology.sockets, &topology.numa_nodes] {
            assert_eq!(touched(groups, taken), fewest(topology, groups, count), "{count} are {taken}");
        }
        if topology.has_equal_cores() {
            assert_eq!(touched(&topology.cores, taken), fewest(topology, &topology.cores, count), "{taken}");
        }
    });
}

#[test]
fn requests_by_uncore_cache_need_as_few_caches_as_possible() {
    let options = CpuOptions { prefer_align_cpus_by_uncorecache: true, ..CpuOptions::default() };
    check_sizes(options, |topology, count, taken| {
        let caches = &topology.uncore_caches;
        assert_eq!(touched(caches, taken), fewest(topology, caches, count), "{count} are {taken}");
    });
}

#[test]
fn spread_requests_smaller_than_a_node_take_one_thread_of_each_core_first() {
    let options = CpuOptions { distribute_cpus_across_cores: true, ..CpuOptions::default() };
    check_sizes(options, |topology, count, taken| {
        let cores = topology.cpus_per_socket() / topology.cpus_per_core();
        let is_less_than_a_node = topology.numa_nodes.values().all(|node| count < node.len());
        if topology.has_equal_cores() && is_less_than_a_node && count <= cores {
            assert_eq!(touched(&topology.cores, taken), count, "{taken}");
        }
    });
}

#[test]
fn distributed_requests_take_the_same_number_from_each_node() {
    let options = CpuOptions { distribute_cpus_across_numa: true, ..CpuOptions::default() };
    for (full_pcpus_only, name) in [(false, "CPUs"), (true, "cores")] {
        check_sizes(CpuOptions { full_pcpus_only, ..options }, |topology, count, taken| {
            let group = if full_pcpus_only { topology.cpus_per_core() } else { 1 };
            if !count.is_multiple_of(group) {
                return;
            }
            let shares = topology.count_per_numa_node(taken);
            let most = shares.values().max().unwrap();
            assert!(shares.values().all(|share| most - share <= group), "{name}: {count} are {shares:?}");
            let nodes = &topology.numa_nodes;
            assert_eq!(shares.len(), fewest(topology, nodes, count), "{count} are {shares:?}");
        });
    }
}

fn half_full(machine: &str, options: &str) -> (StaticCpuPolicy, crate::cpus::CpuState) {
    let policy = policy(machine, "2", options);
    let mut started = policy.start(state("", "")).unwrap();
    for at in 0..policy.topology().cpus().len() / 8 {
        let uid = format!("p{at}");
        super::allocation::allocate_all(&policy, &mut started, &pod(&uid, "c:4")).unwrap();
    }
    (policy, started)
}

/// With 512 CPUs of which half are exclusive, in pods of 4.
#[test]
fn admission_on_a_half_full_machine_of_512_cpus_takes_free_cpus() {
    for options in ["", "full-pcpus-only", "prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"]
    {
        let (policy, mut state) = half_full("DualEpyc9754", options);
        let before = state.default.clone();
        super::allocation::allocate_all(&policy, &mut state, &pod("new", "i:8 s:2 c:32 c:16")).unwrap();
        let sizes = state.assigned["new"].values().map(CpuSet::len).collect::<Vec<_>>();
        assert_eq!(sizes, [32, 16, 8, 2], "{options}");
        let own = state.assigned["new"].values().fold(CpuSet::new(), |all, cpus| all.union(cpus));
        assert_eq!(before.difference(&state.default), own);
        assert!(!policy.topology().cpus().is_empty() && policy.reserved().is_subset(&state.default));
    }
}

#[test]
fn hint_of_a_large_request_on_a_half_full_machine_needs_both_nodes() {
    let (policy, state) = half_full("DualXeonGold6230", "");
    let hints = policy.hints_of_pod(&state, &pod("new", "c:36")).unwrap();
    let nodes: Vec<String> = hints.iter().map(|hint| hint.nodes.unwrap().to_string()).collect();
    assert_eq!(nodes, ["10", "11"]);
    assert_eq!(policy.available(&state).intersection(&cpus("20-39,60-79")).len(), 38);
}
