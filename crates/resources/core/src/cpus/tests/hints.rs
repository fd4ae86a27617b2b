//! Hints for the topology manager: the tables of `topology_hints_test.go`.

use model::containers::find_container;

use super::fixtures::{cpus, pod, policy, state};
use crate::cpus::{exclusive_cpus_of_container, exclusive_cpus_of_pod};
use crate::topology::TopologyHint;

/// `01! 11`: node 0, preferred, or both.
fn shown(hints: Option<Vec<TopologyHint>>) -> String {
    let Some(hints) = hints else { return "any".to_owned() };
    let mut words: Vec<String> = hints
        .iter()
        .map(|hint| format!("{}{}", hint.nodes.unwrap(), if hint.is_preferred { "!" } else { "" }))
        .collect();
    if words.is_empty() {
        words.push("none".to_owned());
    }
    words.join(" ")
}

#[test]
fn hints_of_containers_and_pods_table() {
    for (words, default, assigned, expected) in [
        ("c:2", "2-11", "", "01! 10! 11"),
        ("c:5", "2-11", "", "10! 11"),
        ("c:7", "2-11", "", "11!"),
        ("c:11", "2-11", "", "none"),
        ("c:2", "0,3", "", "11"),
        ("c:5", "0-3", "", "none"),
        ("c:2", "", "p.c0=0,6", "01! 11"),
        ("c:2", "", "p.c0=3,9", "10! 11"),
        ("c:11", "", "p.c0=0-10", "11!"),
        ("c:2", "", "p.c0=0,3,6,9", "none"),
        ("c:11", "", "p.c0=0,3,6,9", "none"),
    ] {
        let (policy, state, pod) =
            (policy("TopologyHints", "0", ""), state(default, assigned), pod("p", words));
        let container = find_container(&pod, "c0").unwrap();
        assert_eq!(
            shown(policy.hints_of_container(&state, &pod, &container)),
            expected,
            "{words} of {default}"
        );
        assert_eq!(shown(policy.hints_of_pod(&state, &pod)), expected, "pod: {words} of {default}");
    }
}

#[test]
fn hints_with_pod_level_resources_table() {
    for (pod_level, words, of_container, of_pod) in [
        (false, "pod:3 c:2", "any", "any"),
        (true, "pod:3 c:2", "01! 11", "01! 11"),
        (true, "pod:2/4 c:1/2", "any", "any"),
        (true, "pod:3 c:1/2", "any", "01! 11"),
        // Nothing is left for the second container.
        (true, "pod:2 c:2 c:-", "01! 11", "none"),
    ] {
        let (mut policy, state, pod) = (policy("TopologyHints", "0", ""), state("0-3", ""), pod("p", words));
        policy.pod_level = pod_level;
        let container = find_container(&pod, "c1").unwrap();
        assert_eq!(shown(policy.hints_of_container(&state, &pod, &container)), of_container, "{words}");
        assert_eq!(shown(policy.hints_of_pod(&state, &pod)), of_pod, "{words}");
    }
}

#[test]
fn hints_by_socket_table() {
    let all = "01! 11 0101 1001 0111 1011 1101 1111";
    let by_socket = "01! 11! 0101 1001 0111 1011 1101 1111";
    for (options, words, default, expected) in [
        ("align-by-socket=false", "c:2", "2,3,11", all),
        ("align-by-socket", "c:2", "2,3,11", by_socket),
        ("align-by-socket", "c:41", "0-28,40-57", "0111! 1111!"),
    ] {
        let policy = policy("DualSocketMultiNumaPerSocketHT", "0", options);
        let hints = policy.hints_of_pod(&state(default, ""), &pod("p", words));
        assert_eq!(shown(hints), expected, "{options}: {words} of {default}");
    }
}

#[test]
fn hints_have_the_nodes_of_cpus_that_init_containers_leave() {
    let (policy, pod) = (policy("TopologyHints", "0", ""), pod("p", "i:2 c:4"));
    let state = state("0,1,6,7,3-5,9-11", "p.i0=2,8");
    let container = find_container(&pod, "c1").unwrap();
    assert_eq!(shown(policy.hints_of_container(&state, &pod, &container)), "01! 11");
    assert_eq!(shown(policy.hints_of_pod(&state, &pod)), "01! 11");
}

#[test]
fn hints_are_the_same_after_a_restart_for_a_pod_with_shared_containers() {
    // The Go kubelet finds CPUs of a container that requests none, and no node will do.
    let (policy, pod) = (policy("TopologyHints", "0", ""), pod("p", "pod:3 c:2 c:-"));
    let mut state = state("0-11", "");
    let before = policy.hints_of_pod(&state, &pod);
    let allocated = policy.allocate_pod(&state, &pod, None).unwrap().unwrap();
    state.assign_pod(&"p".into(), &allocated);
    assert_eq!(state.pods["p"], cpus("0-1,6"));
    assert_eq!(
        (shown(before), shown(policy.hints_of_pod(&state, &pod))),
        ("01! 10! 11".into(), "01! 11".into())
    );
}

#[test]
fn cpus_of_pods_table() {
    for (words, expected) in [
        ("i:0 c:0", 0),
        ("i:0 c:2", 0),
        ("i:2 c:0", 0),
        ("i:2 c:2", 2),
        ("i:5 c:5", 5),
        ("i:2 c:5", 5),
        ("i:5 c:2", 5),
        ("i:2 i:4 c:2 c:4", 6),
        ("s:1 c:1", 2),
        ("i:5 s:1 s:2 s:3 c:1", 7),
        ("i:5 s:1 s:2 i:5 s:3 c:1", 8),
        ("s:10 i:200 c:100", 210),
        ("pod:3 c:1", 3),
        ("pod:3500m c:1", 0),
    ] {
        assert_eq!(exclusive_cpus_of_pod(&pod("p", words), true), expected, "{words}");
    }
}

#[test]
fn containers_with_exclusive_cpus_are_guaranteed_and_request_whole_cpus() {
    for (words, pod_level, expected) in [
        ("c:2", false, 2),
        ("c:2000m", false, 2),
        ("c:1500m", false, 0),
        ("c:2/3", false, 0),
        ("c:2 c:1500m", false, 2),
        ("c:2 c:1/2", false, 0),
        ("c:2 pod:4", true, 2),
        ("c:2 pod:4500m", true, 2),
        ("c:2/3 pod:4", true, 0),
        ("c:2/3 pod:4", false, 2),
        ("c:2 pod:3/4", true, 0),
    ] {
        let pod = pod("p", words);
        let container = find_container(&pod, "c0").unwrap();
        assert_eq!(exclusive_cpus_of_container(&pod, &container, pod_level), expected, "{words} {pod_level}");
    }
}
