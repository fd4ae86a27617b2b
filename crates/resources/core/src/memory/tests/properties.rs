//! What holds for every order of admissions, starts and ends of pods.

use proptest::prelude::*;

use super::super::pod_memory::containers;
use super::*;

/// A step of the life of a node: a pod is admitted with these containers (kind, memory and huge pages) and a hint, or a pod ends.
#[derive(Clone, Debug)]
enum Step {
    Admit { containers: Vec<(usize, u64, u64)>, of_pod: u64, hint: TopologyHint },
    Start { pod: usize, container: usize },
    End { pod: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mask = proptest::option::of(
        (1..8_u32).prop_map(|bits| NumaMask::of((0..3).filter(|id| bits & (1 << id) != 0))),
    );
    let hint = (mask, any::<bool>()).prop_map(|(nodes, is_preferred)| TopologyHint { nodes, is_preferred });
    let containers = proptest::collection::vec((0..3_usize, 0..6_u64, 0..3_u64), 1..4);
    let admit = (containers, 0..8_u64, hint).prop_map(|(containers, of_pod, hint)| Step::Admit {
        containers,
        of_pod,
        hint,
    });
    let start = (0..20_usize, 0..4_usize).prop_map(|(pod, container)| Step::Start { pod, container });
    let end = (0..20_usize).prop_map(|pod| Step::End { pod });
    proptest::collection::vec(prop_oneof![3 => admit, 1 => start, 1 => end], 1..20)
}

fn pod_of(index: usize, containers: &[(usize, u64, u64)], of_pod: u64) -> Pod {
    let mut text = format!("p{index}");
    if of_pod > 5 {
        text.push_str(&format!(" pod(cpu=9,mem={of_pod}Gi)"));
    }
    for (at, (kind, memory, huge)) in containers.iter().enumerate() {
        let kind = ["i", "s", "c"][*kind];
        text.push_str(&format!(" {kind}:{kind}{at}(cpu=1,mem={memory}Gi,huge={huge}Gi)"));
    }
    pod(&text)
}

fn check_sums(policy: &MemoryPolicy, state: &MemoryState) -> Result<(), TestCaseError> {
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    for (pod, containers) in &state.containers {
        let of_containers = || containers.values().flatten().collect::<Vec<_>>();
        let blocks = state.pods.get(pod).map_or_else(of_containers, |blocks| blocks.iter().collect());
        for block in blocks {
            *taken.entry(block.resource.clone()).or_default() += block.bytes;
        }
    }
    let mut reserved: BTreeMap<String, u64> = BTreeMap::new();
    for (id, node) in &state.nodes {
        prop_assert!(node.assignments >= 0 && node.cells.has(*id));
        for (resource, table) in &node.memory {
            prop_assert_eq!(table.free + table.reserved, table.allocatable, "nothing is allocated twice");
            *reserved.entry(resource.clone()).or_default() += table.reserved;
        }
    }
    taken.retain(|_, bytes| *bytes > 0);
    reserved.retain(|_, bytes| *bytes > 0);
    prop_assert_eq!(taken, reserved, "the blocks of containers are what nodes have given");
    prop_assert_eq!(policy.restore(state.clone()).is_ok(), true, "a restart accepts the state");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn memory_is_never_allocated_twice_and_release_gives_back_what_was_taken(steps in steps()) {
        let case = Case([
            ("machine", "0 mem=12G huge=2G, 1 mem=12G huge=2G, 2 mem=7G huge=1G"),
            ("reserved", "0:mem=1G 1:mem=1G"),
            ("gates", "rm"),
        ].into());
        let policy = case.policy();
        let mut state = policy.restore(MemoryState::default()).unwrap();
        let mut pods = Vec::new();
        for step in steps {
            match step {
                Step::Admit { containers: own, of_pod, hint } => {
                    let pod = pod_of(pods.len(), &own, of_pod);
                    let mut memory = PodMemory::new(&policy, state.clone());
                    let result = if of_pod > 5 {
                        memory.allocate_to_all(&pod, hint)
                    } else {
                        containers(&pod).try_for_each(|own| memory.allocate_container(&pod, &own, hint))
                    };
                    if result.is_ok() {
                        state = memory.into_state();
                    }
                    pods.push(pod);
                }
                Step::Start { pod, container } => {
                    let Some(pod) = pods.get(pod) else { continue };
                    let Some(own) = containers(pod).nth(container) else { continue };
                    state.container_started(pod, &pod_memory::uid_of(pod), &own);
                }
                Step::End { pod } => state.remove_pod(&format!("p{pod}").as_str().into()),
            }
            check_sums(&policy, &state)?;
            let text = checkpoint::write_memory_checkpoint("Static", &state, true);
            prop_assert_eq!(&checkpoint::parse_memory_checkpoint(&text, "Static", true).unwrap(), &state);
        }
        state.retain(|_, _| false);
        prop_assert_eq!(&state.nodes, policy.idle_nodes());
        prop_assert!(state.containers.is_empty() && state.pods.is_empty());
    }
}
