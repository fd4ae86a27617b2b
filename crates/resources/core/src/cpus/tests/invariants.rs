//! What holds after any sequence of admissions and releases.

use std::collections::BTreeSet;

use model::cpu_set::CpuSet;
use model::topology::NumaMask;
use model::{ContainerKind, PodUid};
use proptest::prelude::*;

use super::fixtures::{options, pod, settings, topology};
use crate::cpus::{CpuState, StaticCpuPolicy, parse_cpu_state, write_cpu_state};
use model::containers::{all_containers, find_container, init_containers, regular_containers};

const MACHINES: [&str; 9] = [
    "SingleSocketHT",
    "DualSocketHT",
    "TripleSocketHT",
    "UncoreSingleSocketMultiNuma",
    "DualSocketMultiNumaPerSocketHT",
    "SingleSocketSingleNumaPerSocketPCoreHTMonolithicUncore",
    "TwoCoreVm",
    "Laptop",
    "EpycNps4",
];
const OPTIONS: [&str; 9] = [
    "",
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "full-pcpus-only distribute-cpus-across-numa",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
    "full-pcpus-only prefer-align-cpus-by-uncorecache strict-cpu-reservation",
    "align-by-socket full-pcpus-only",
];

#[derive(Clone, Debug)]
enum Step {
    /// A pod of this number, with these containers, near these nodes.
    Admit(usize, String, Option<u64>),
    /// The pod of this number, or only its first container, ends.
    Release(usize, bool),
    /// The kubelet restarts.
    Restart,
}

fn containers() -> impl Strategy<Value = String> {
    let kind = prop_oneof![Just("i"), Just("s"), Just("c"), Just("c")];
    let cpus = prop_oneof![
        6 => (1_usize..9).prop_map(|count| count.to_string()),
        1 => Just("500m".to_owned()),
        1 => Just("1/2".to_owned())
    ];
    let container = (kind, cpus).prop_map(|(kind, cpus)| format!("{kind}:{cpus}"));
    let own =
        prop_oneof![3 => Just(String::new()), 1 => (2_usize..12).prop_map(|count| format!(" pod:{count}"))];
    (prop::collection::vec(container, 1..4), own).prop_map(|(words, own)| words.join(" ") + &own)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_usize..8, containers(), prop::option::of(1_u64..16)).prop_map(|(at, words, nodes)| Step::Admit(at, words, nodes)),
        3 => (0_usize..8, any::<bool>()).prop_map(|(at, is_whole)| Step::Release(at, is_whole)),
        1 => Just(Step::Restart),
    ]
}

fn admit(policy: &StaticCpuPolicy, state: &mut CpuState, uid: &PodUid, words: &str, nodes: Option<u64>) {
    let pod = pod(uid.as_str(), words);
    let affinity = nodes.map(|bits| NumaMask::of((0..4).filter(|id| bits & (1 << id) != 0)));
    if words.contains("pod:") {
        if let Ok(Some(cpus)) = policy.allocate_pod(state, &pod, affinity) {
            state.assign_pod(uid, &cpus);
        }
        return;
    }
    let mut after = state.clone();
    for container in init_containers(&pod).chain(regular_containers(&pod)) {
        match policy.allocate_container(&after, &pod, &container, affinity) {
            Ok(Some(allocated)) => {
                let requested = policy.exclusive_cpus_of(&pod, &container);
                assert_eq!(allocated.cpus.len(), requested, "{words}");
                after.assign(uid, container.name(), allocated.cpus);
            }
            Ok(None) => {}
            // The pod is not admitted, and keeps nothing.
            Err(_) => return,
        }
    }
    check_containers_that_run_together(&after, uid, &pod);
    *state = after;
}

/// Only init containers share CPUs, with containers that run after them.
fn check_containers_that_run_together(state: &CpuState, uid: &PodUid, pod: &model::k8s::Pod) {
    let mut seen = CpuSet::new();
    for container in all_containers(pod).filter(|container| container.kind != ContainerKind::Init) {
        let cpus = state.exclusive(uid, container.name()).cloned().unwrap_or_default();
        assert!(seen.is_disjoint(&cpus), "{}", container.name());
        seen = seen.union(&cpus);
    }
}

/// No CPU is in two places, none is lost, and reserved ones are never exclusive.
fn check(policy: &StaticCpuPolicy, state: &CpuState, at_start: &CpuSet) {
    let mut seen = state.default.clone();
    for uid in state.assigned.keys().collect::<BTreeSet<_>>() {
        let containers = state.assigned[uid].values().fold(CpuSet::new(), |all, cpus| all.union(cpus));
        let cpus = state.pods.get(uid).cloned().unwrap_or(containers.clone());
        assert!(containers.is_subset(&cpus));
        assert!(seen.is_disjoint(&cpus), "{uid} shares {}", seen.intersection(&cpus));
        if policy.options.full_pcpus_only && policy.topology.has_equal_cores() {
            assert_eq!(policy.topology.whole_cores(&cpus), cpus, "{uid} has parts of cores");
        }
        seen = seen.union(&cpus);
    }
    assert_eq!(seen, *at_start);
    assert!(policy.reserved().is_disjoint(&state.all_exclusive()));
}

fn restarted(policy: &StaticCpuPolicy, state: &CpuState) -> CpuState {
    let text = write_cpu_state("static", state, true);
    let (read, _) = parse_cpu_state(&text, "static", true, |_| None).unwrap();
    policy.start(read).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn cpus_are_neither_shared_nor_lost(
        machine in prop::sample::select(MACHINES.to_vec()),
        words in prop::sample::select(OPTIONS.to_vec()),
        reserved in 1_usize..4,
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let (topology, none, texts) = (topology(machine), CpuSet::new(), options(words));
        let Ok(policy) = StaticCpuPolicy::of(&settings("static", &texts, &none), topology, reserved) else {
            return Ok(());
        };
        let mut state = policy.start(CpuState::default()).unwrap();
        let at_start = state.default.clone();
        for step in steps {
            match step {
                Step::Admit(at, words, nodes) => {
                    let uid = PodUid::new(format!("p{at}"));
                    if !state.assigned.contains_key(&uid) {
                        admit(&policy, &mut state, &uid, &words, nodes);
                    }
                }
                Step::Release(at, is_whole) => {
                    let uid = PodUid::new(format!("p{at}"));
                    let names: Vec<String> = state.assigned.get(&uid).into_iter().flat_map(|c| c.keys().cloned()).collect();
                    for name in names.into_iter().take(if is_whole { usize::MAX } else { 1 }) {
                        state.release(&uid, &name);
                    }
                }
                Step::Restart => prop_assert_eq!(&restarted(&policy, &state), &state),
            }
            check(&policy, &state, &at_start);
        }
        state.release_inactive(|_, _| false);
        prop_assert_eq!(state, CpuState { default: at_start, ..CpuState::default() });
    }

    #[test]
    fn hinted_nodes_have_the_cpus(
        machine in prop::sample::select(MACHINES.to_vec()),
        words in prop::sample::select(vec!["", "full-pcpus-only", "distribute-cpus-across-numa"]),
        sizes in prop::collection::vec(1_usize..6, 0..8),
        count in 1_usize..12,
    ) {
        let policy = super::fixtures::policy(machine, "1", words);
        let mut state = policy.start(CpuState::default()).unwrap();
        for (at, size) in sizes.iter().enumerate() {
            admit(&policy, &mut state, &PodUid::new(format!("p{at}")), &format!("c:{size}"), None);
        }
        let pod = pod("new", &format!("c:{count}"));
        let container = find_container(&pod, "c0").unwrap();
        for hint in policy.hints_of_container(&state, &pod, &container).unwrap() {
            if let Ok(allocated) = policy.allocate_container(&state, &pod, &container, hint.nodes) {
                let (near, cpus) = (policy.topology().cpus_in(hint.nodes.unwrap()), allocated.unwrap().cpus);
                let needs_more = policy.options.full_pcpus_only;
                prop_assert!(needs_more || cpus.is_subset(&near), "{} of {}", cpus, near);
            }
        }
    }
}
