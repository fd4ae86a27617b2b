//! With which state and reserved CPUs a kubelet starts: the tables of `policy_static_test.go`, and what it refuses.

use std::collections::BTreeMap;

use model::Amount;
use model::cpu_set::CpuSet;
use model::topology::MachineTopology;

use super::allocation::lines;
use super::fixtures::{cpus, machine, options, policy, settings, state};
use crate::cpus::{CpuPolicy, CpuState};

/// Machine, reserved CPUs, options, shared pool, assigned CPUs, and the shared pool with which the kubelet starts, or why it does not.
const STARTS: &str = include_str!("start.txt");

#[test]
fn start_of_the_static_policy_table() {
    for line in lines(STARTS) {
        let [machine, reserved, options, default, assigned, expected] = line[..] else { panic!("{line:?}") };
        let started = policy(machine, reserved, options).start(state(default, assigned));
        let result = started.map_or_else(|why| why.to_string(), |state| state.default.to_string());
        assert_eq!(result, expected, "{line:?}");
    }
}

#[test]
fn assignments_without_a_shared_pool_are_refused() {
    let why = policy("SingleSocketHT", "=0", "").start(state("", "p.c=1-7")).unwrap_err();
    assert_eq!(why.to_string(), "default cpuset cannot be empty");
}

#[test]
fn kubelet_starts_when_all_cpus_but_strictly_reserved_ones_are_exclusive() {
    // The Go kubelet refuses, because the shared pool is empty.
    let full = state("", "p.c=1-7");
    let policy = policy("SingleSocketHT", "=0", "strict-cpu-reservation");
    assert_eq!(policy.start(full.clone()).unwrap(), full);
    let why = policy.start(state("", "p.c=1-6")).unwrap_err();
    assert_eq!(why.to_string(), "default cpuset cannot be empty");
}

#[test]
fn cpus_of_pods_are_known_at_start() {
    let policy = policy("SingleSocketHT", "=0", "");
    let mut of_pod = state("0-3", "p.c=4-5");
    of_pod.pods.insert("p".into(), cpus("4-7"));
    assert_eq!(policy.start(of_pod.clone()).unwrap(), of_pod);
}

fn policy_of(
    name: &str,
    words: &str,
    reserved_cpus: &CpuSet,
    reserved: Option<&str>,
) -> Result<CpuPolicy, String> {
    let options: BTreeMap<String, String> = options(words);
    let mut settings = settings(name, &options, reserved_cpus);
    settings.reserved = reserved.map(|text| Amount::parse(text).unwrap());
    CpuPolicy::of(&settings, &machine("DualSocketHT")).map_err(|why| why.to_string())
}

fn reserved_of(policy: &CpuPolicy) -> String {
    match policy {
        CpuPolicy::None => "-".to_owned(),
        CpuPolicy::Static(policy) => policy.reserved().to_string(),
    }
}

#[test]
fn reserved_cpus_are_given_or_taken_by_topology_with_fractions_rounded_up() {
    for (given, amount, expected) in [
        ("", "1", "0"),
        ("", "100m", "0"),
        ("", "1500m", "0,6"),
        ("", "2", "0,6"),
        ("", "2001m", "0,2,6"),
        ("", "6", "0,2,4,6,8,10"),
        ("1,3", "2", "1,3"),
        ("1,3", "1200m", "1,3"),
    ] {
        let policy = policy_of("static", "", &cpus(given), Some(amount)).unwrap();
        assert_eq!(reserved_of(&policy), expected, "{given} {amount}");
        assert_eq!(policy.allocatable(), cpus("0-11").difference(&cpus(expected)));
    }
}

#[test]
fn policies_that_cannot_start_are_refused_with_the_messages_of_the_go_kubelet() {
    let refused = |name: &str, words: &str, given: &str, amount: Option<&str>| {
        policy_of(name, words, &cpus(given), amount).unwrap_err()
    };
    assert_eq!(refused("dynamic", "", "", None), "unknown policy: \"dynamic\"");
    assert_eq!(
        refused("none", "full-pcpus-only a=b", "", None),
        "new none policy error: None policy: received unsupported options=map[a:b full-pcpus-only:true]"
    );
    assert_eq!(
        refused("static", "", "", None),
        "[cpumanager] unable to determine reserved CPU resources for static policy"
    );
    assert_eq!(
        refused("static", "", "", Some("0")),
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
    );
    let reserve = "new static policy error: [cpumanager] unable to reserve the required amount of CPUs";
    assert_eq!(refused("static", "", "0-1", Some("1")), format!("{reserve} (size of 0-1 did not equal 1)"));
    assert_eq!(refused("static", "", "", Some("13")), format!("{reserve} (size of  did not equal 13)"));
    assert_eq!(
        refused("static", "", "0,12", Some("2")),
        "new static policy error: [cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: 12"
    );
    assert_eq!(
        refused("static", "fast", "", Some("1")),
        "new static policy error: unknown CPU Manager Policy option: \"fast\""
    );
    let (options, none) = (BTreeMap::new(), CpuSet::new());
    let empty = CpuPolicy::of(&settings("none", &options, &none), &MachineTopology::default());
    assert_eq!(empty.unwrap_err().to_string(), "could not detect number of cpus");
}

#[test]
fn policy_none_has_no_exclusive_cpus_and_keeps_the_state() {
    let policy = policy_of("none", "", &CpuSet::new(), None).unwrap();
    assert_eq!((policy.name(), policy.allocatable()), ("none", CpuSet::new()));
    assert_eq!(policy.start(CpuState::default()), Ok(CpuState::default()));
}
