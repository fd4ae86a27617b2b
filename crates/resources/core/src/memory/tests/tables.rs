//! The tables, and cases of our own where they say nothing.

use model::containers::regular_containers;

use super::super::hints::mixes_groups;
use super::super::pod_memory::containers;
use super::super::reusable::Reusable;
use super::super::validate::are_equal;
use super::*;
use crate::topology::{HintProvider, ProviderHints};

fn error_of<E: std::fmt::Display>(result: &Result<(), E>) -> String {
    result.as_ref().err().map(ToString::to_string).unwrap_or_default()
}

#[track_caller]
fn check_state(state: &MemoryState, case: &Case<'_>) {
    let expected = case.state("then nodes", "then has");
    assert_eq!(state.containers, expected.containers, "{:?}", case.0);
    assert!(are_equal(&state.nodes, &expected.nodes), "{:#?} {:#?}", state.nodes, expected.nodes);
}

#[test]
fn static_policy_start_table() {
    for case in cases(include_str!("start.txt")) {
        let restored = case.policy().restore(case.state("nodes", "has"));
        let error = restored.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert_eq!(error, case.get("error"), "{:?}", case.0);
        if let Ok(state) = restored {
            check_state(&state, &case);
        }
    }
}

#[test]
fn static_policy_allocate_table() {
    for case in cases(include_str!("allocate.txt")) {
        let (policy, pod) = (case.policy(), pod(case.get("pod")));
        let mut memory = PodMemory::new(&policy, case.state("nodes", "has"));
        let container = regular_containers(&pod).next().unwrap();
        let result = memory.allocate_container(&pod, &container, hint(case.get("hint")));
        assert_eq!(error_of(&result), case.get("error"), "{:?}", case.0);
        if result.is_ok() {
            check_state(&memory.into_state(), &case);
        }
    }
}

#[test]
fn static_policy_allocate_with_init_containers_table() {
    for case in cases(include_str!("allocate_init.txt")) {
        let (policy, pod) = (case.policy(), pod(case.get("pod")));
        let mut memory = PodMemory::new(&policy, case.state("nodes", "has"));
        for container in containers(&pod) {
            let result = memory.allocate_container(&pod, &container, hint(case.get("hint")));
            assert_eq!(error_of(&result), case.get("error"), "{:?}", case.0);
        }
        check_state(&memory.into_state(), &case);
    }
}

#[test]
fn static_policy_allocate_pod_table() {
    for case in cases(include_str!("allocate_pod.txt")) {
        let (policy, pod) = (case.policy(), pod(case.get("pod")));
        let mut memory = PodMemory::new(&policy, case.state("nodes", "has"));
        let result = memory.allocate_to_all(&pod, hint(case.get("hint")));
        assert_eq!(error_of(&result), case.get("error"), "{:?}", case.0);
        if result.is_ok() {
            check_state(&memory.into_state(), &case);
        }
    }
}

#[test]
fn static_policy_remove_container_table() {
    for case in cases(include_str!("remove.txt")) {
        let mut state = case.state("nodes", "has");
        state.remove_container(&"pod1".into(), "container1");
        check_state(&state, &case);
    }
}

#[test]
fn remove_stale_state_table() {
    for case in cases(include_str!("stale.txt")) {
        let mut state = case.state("nodes", "has");
        assert!(state.retain(|_, _| false));
        check_state(&state, &case);
    }
}

#[test]
fn allocate_and_add_pod_with_init_containers_table() {
    for case in cases(include_str!("allocate_and_add.txt")) {
        let (policy, pod) = (case.policy(), pod(case.get("pod")));
        let mut memory = PodMemory::new(&policy, case.state("nodes", "has"));
        for container in containers(&pod) {
            memory.allocate_container(&pod, &container, hint("*-")).unwrap();
        }
        let mut state = memory.into_state();
        for container in containers(&pod) {
            state.container_started(&pod, &"pod1".into(), &container);
        }
        check_state(&state, &case);
    }
}

fn short(name: &str) -> &str {
    match name {
        "memory" => "mem",
        "hugepages-1Gi" => "huge",
        "hugepages-2Mi" => "2mi",
        name => name,
    }
}

/// Sorted by the short names, as the tables are.
fn shown(hints: &ProviderHints) -> String {
    let hint = |hint: &TopologyHint| {
        let ids: String = hint.nodes.unwrap().ids().map(|id| id.to_string()).collect();
        format!("{ids}{}", if hint.is_preferred { '+' } else { '-' })
    };
    let resource = |(name, hints): (&String, &Option<Vec<TopologyHint>>)| {
        let hints: Vec<String> = hints.iter().flatten().map(hint).collect();
        let hints = if hints.is_empty() { "none".to_owned() } else { hints.join(" ") };
        format!("{} {hints}", short(name))
    };
    let mut resources: Vec<String> = hints.iter().map(resource).collect();
    resources.sort();
    resources.join(", ")
}

#[test]
fn static_policy_get_topology_hints_table() {
    for case in cases(include_str!("container_hints.txt")) {
        let (policy, pod) = (case.policy(), pod(case.get("pod")));
        let memory = PodMemory::new(&policy, case.state("nodes", "has"));
        let hints = memory.container_hints(&pod, &regular_containers(&pod).next().unwrap());
        assert_eq!(shown(&hints), case.get("hints"), "{:?}", case.0);
    }
}

#[test]
fn static_policy_get_pod_topology_hints_table() {
    for case in cases(include_str!("pod_hints.txt")) {
        let (policy, pod) = (case.policy(), pod(case.get("pod")));
        let memory = PodMemory::new(&policy, case.state("nodes", "has"));
        assert_eq!(shown(&memory.pod_hints(&pod)), case.get("hints"), "{:?}", case.0);
    }
}

#[test]
fn get_pod_requested_resources_table() {
    for case in cases(include_str!("pod_requests.txt")) {
        let expected = case.get("requests").split(',').map(|amount| amount.split_once('=').unwrap());
        let expected: Bytes = expected.map(|(short, bytes)| (name(short).to_owned(), size(bytes))).collect();
        assert_eq!(requests::of_pod(&pod(case.get("pod")), false), Ok(expected), "{:?}", case.0);
    }
}

#[test]
fn validate_pod_scope_resources_table() {
    for case in cases(include_str!("shared_pool.txt")) {
        let pod = pod(case.get("pod"));
        let of_pod = requests::of_pod(&pod, true).unwrap();
        assert_eq!(error_of(&shared_pool::check(&pod, &of_pod)), case.get("error"), "{:?}", case.0);
    }
}

#[test]
fn is_affinity_violating_numa_allocations_table() {
    for (state, mask, is_violated) in [
        ("0[01]x1 , 1[01]x1 , 2[2]x1 , 3[3]x0 ", "12", true),
        ("0[01]x0 , 1[1]x1 ", "01", true),
        ("0[0]x0 , 1[1]x0 ", "01", false),
    ] {
        assert_eq!(mixes_groups(&nodes(state), digits(mask)), is_violated, "{state}");
    }
}

#[test]
fn policy_needs_reserved_memory() {
    let policy = |bytes| {
        let reserved = ReservedMemory([(1, [(MEMORY.to_owned(), bytes)].into())].into());
        MemoryPolicy::new(&machine("0 mem=1G, 1 mem=1G"), &reserved, PodLevelGates::default())
    };
    assert!(policy(size("512M")).is_ok());
    let why = "[memorymanager] you should specify the system reserved memory";
    assert_eq!(policy(0).unwrap_err().to_string(), why);
    let many = (0..17).map(|id| format!("{id} mem=1G")).collect::<Vec<_>>().join(", ");
    let reserved = ReservedMemory([(1, [(MEMORY.to_owned(), 1)].into())].into());
    let error = MemoryPolicy::new(&machine(&many), &reserved, PodLevelGates::default()).unwrap_err();
    assert_eq!(error.to_string(), "unsupported on machines with more than 16 NUMA Nodes");
}

const TWO_NODES: &str = "0[0]x0 mem=2G/1G/1G/0/1G, 1[1]x0 mem=2G/1G/1G/0/1G";

fn two_nodes(gates: &'static str) -> Case<'static> {
    let machine = "0 mem=2G, 1 mem=2G";
    let reserved = "0:mem=1G 1:mem=1G";
    Case([("machine", machine), ("reserved", reserved), ("nodes", TWO_NODES), ("gates", gates)].into())
}

#[test]
fn memory_nodes_of_a_container_are_those_of_its_blocks() {
    let case = Case([("nodes", TWO_NODES), ("has", "p/a:mem@1=1G p/b:mem@01=1G+huge@0=0 p/c:none")].into());
    let state = case.state("nodes", "has");
    let of = |container| state.nodes_of(&"p".into(), container);
    assert_eq!(of("a"), Some(digits("1")));
    assert_eq!(of("b"), Some(digits("01")));
    assert_eq!((of("c"), of("d")), (None, None));
}

#[test]
fn memory_of_ended_init_containers_is_released_when_the_next_container_starts() {
    let case = two_nodes("");
    let (policy, pod) =
        (case.policy(), pod("p i:a(cpu=1,mem=600Mi) s:b(cpu=1,mem=100Mi) c:c(cpu=1,mem=200Mi)"));
    let mut memory = PodMemory::new(&policy, case.state("nodes", ""));
    for container in containers(&pod) {
        memory.allocate_container(&pod, &container, hint("0+")).unwrap();
    }
    let mut state = memory.into_state();
    let reserved = |state: &MemoryState| state.nodes[&0].memory[MEMORY].reserved;
    assert_eq!(reserved(&state), size("600M"));
    for container in containers(&pod) {
        state.container_started(&pod, &"p".into(), &container);
    }
    assert_eq!(reserved(&state), size("300M"));
    assert_eq!(state.containers["p"].keys().collect::<Vec<_>>(), ["b", "c"]);
    state.remove_pod(&"p".into());
    assert_eq!(state.nodes, case.policy().idle_nodes().clone());
}

#[test]
fn memory_of_a_whole_pod_is_released_with_its_last_container() {
    let case = two_nodes("rm");
    let (policy, pod) = (case.policy(), pod("p pod(cpu=2,mem=1Gi) c:a(cpu=1,mem=512Mi) c:b()"));
    let mut memory = PodMemory::new(&policy, case.state("nodes", ""));
    memory.allocate_to_all(&pod, hint("1+")).unwrap();
    let again = memory.clone();
    memory.allocate_to_all(&pod, hint("0+")).unwrap();
    assert_eq!(memory.state, again.state, "it keeps what it has");
    let mut state = memory.into_state();
    assert_eq!(policy.restore(state.clone()), Ok(state.clone()), "a restart accepts it");
    state.remove_container(&"p".into(), "a");
    assert_eq!(state.nodes[&1].memory[MEMORY].free, 0);
    assert!(state.retain(|_, _| false) && !state.retain(|_, _| false));
    assert_eq!(state, MemoryState { nodes: policy.idle_nodes().clone(), ..MemoryState::default() });
}

#[test]
fn allocatable_memory_is_listed_by_node_and_resource() {
    let case = Case([("nodes", "0[0]x0 mem=2G/1G/1G/0/1G huge=1G/0/1G/1G/0, 1[1]x0 mem=1G/1G/0/0/0")].into());
    assert_eq!(case.state("nodes", "").allocatable(), [blocks("huge@0=1G"), blocks("mem@0=1G")].concat());
}

#[test]
fn failed_allocation_rejects_the_pod_with_the_reason_of_the_go_kubelet() {
    let case = two_nodes("rm");
    let policy = case.policy();
    let rejection = |text: &str| {
        let (pod, mut memory) = (pod(text), PodMemory::new(&policy, case.state("nodes", "")));
        let container = regular_containers(&pod).next().unwrap();
        let rejection = if text.contains("pod(") {
            memory.allocate_pod(&pod, hint("*-"))
        } else {
            memory.allocate(&pod, &container, hint("*-"))
        };
        let rejection = rejection.unwrap_err();
        format!("{}: {}", rejection.reason, rejection.message)
    };
    assert_eq!(
        rejection("p c:a(cpu=1,mem=3Gi)"),
        "UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to get the default NUMA affinity, \
         no NUMA nodes with enough memory is available, which is unexpected"
    );
    assert_eq!(
        rejection("p c:a(cpu=1,mem=100m)"),
        "UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to represent quantity as int64, \
         which is unexpected"
    );
    assert_eq!(
        rejection("p pod(cpu=2,mem=1Gi) c:a(cpu=1,mem=1Gi) c:b()"),
        "EmptyPodSharedPoolError: pod rejected, sum of exclusive container memory requests equals pod budget, \
         leaving no memory for shared containers"
    );
}

#[test]
fn hint_with_too_little_memory_is_extended_by_nodes_of_the_same_group() {
    let choose = |state: &str, requests: &str, text: &str| {
        let nodes = nodes(state);
        let supply = hints::Supply { nodes: &nodes, reusable: &Reusable::default() };
        let chosen = supply.choose(&[(MEMORY.to_owned(), size(requests))].into(), hint(text));
        chosen.map_or_else(|error| error.to_string(), |mask| mask.to_string())
    };
    assert_eq!(choose(TWO_NODES, "1G", "1+"), "10");
    assert_eq!(choose(TWO_NODES, "1G", "*+"), "01");
    assert_eq!(choose(TWO_NODES, "1500M", "1+"), "11");
    let used = "0[0]x1 mem=2G/1G/1G/500M/524M, 1[1]x0 mem=2G/1G/1G/0/1G";
    let why = "[memorymanager] failed to find NUMA nodes to extend the current topology hint";
    assert_eq!(choose(used, "1500M", "1+"), why);
    assert_eq!(choose(used, "1G", "*+"), "10");
    assert_eq!(choose(used, "600M", "0-"), why);
    assert_eq!(choose(used, "100M", "01+"), "[memorymanager] preferred hint violates NUMA node allocation");
    let group = "0[01]x1 mem=2G/1G/1G/500M/524M, 1[01]x1 mem=2G/1G/1G/0/1G";
    assert_eq!(choose(group, "100M", "*+"), "[memorymanager] failed to find the default preferred hint");
    assert_eq!(choose(group, "100M", "*-"), "11");
    let why = "[memorymanager] failed to find the extended preferred hint";
    assert_eq!(choose(group, "600M", "0+"), why);
    assert_eq!(choose(group, "600M", "0-"), "11");
    assert_eq!(choose(group, "100M", "0-"), "11", "a node of a group is not used alone");
}
