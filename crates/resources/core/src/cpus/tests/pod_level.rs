//! CPUs of pods as a whole: the tables of `policy_static_test.go` and `policy_static_restore_test.go`.

use super::fixtures::{cpus, pod, policy, shown, state};
use crate::cpus::{parse_cpu_state, write_cpu_state};

#[test]
fn allocations_of_pods_table() {
    let nothing_left = "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers";
    for (words, expected, default) in [
        ("pod:2 c:1", "p.c1=2", "0-1,3-7,9-11"),
        ("pod:1 c:-", "p.c1=6", "0-5,7-11"),
        ("pod:3 c:1 c:1 c:-", "p.c1=6 p.c2=2 p.c3=8", "0-1,3-5,7,9-11"),
        ("pod:2 i:1 i:1 c:1 c:1", "p.c3=2 p.c4=8 p.i1=2 p.i2=2", "0-1,3-7,9-11"),
        ("pod:3 i:- s:1 i:- c:1 c:-", "p.c4=2 p.c5=8 p.i1=2,6,8 p.i3=2,8 p.s2=6", "0-1,3-5,7,9-11"),
        ("pod:3 i:- s:- i:- c:1 c:-", "p.c4=6 p.c5=2,8 p.i1=2,6,8 p.i3=2,6,8 p.s2=2,8", "0-1,3-5,7,9-11"),
        ("pod:2 c:1 c:1 c:-", nothing_left, "0-11"),
        ("pod:2/1 c:1", "", "0-11"),
    ] {
        let (policy, mut state) = (policy("DualSocketHT", "=0", ""), state("0-11", ""));
        let result = match policy.allocate_pod(&state, &pod("p", words), None) {
            Ok(Some(cpus)) => {
                state.assign_pod(&"p".into(), &cpus);
                shown(&state)
            }
            Ok(None) => String::new(),
            Err(why) => why.to_string(),
        };
        assert_eq!((result.as_str(), state.default), (expected, cpus(default)), "{words}");
    }
}

#[test]
fn exclusive_parts_of_pods_are_counted() {
    for (words, exclusive) in [("pod:2 c:1", 1), ("pod:1 c:-", 0), ("pod:3 i:- s:1 i:- c:1 c:-", 2)] {
        let policy = policy("DualSocketHT", "=0", "");
        let cpus = policy.allocate_pod(&state("0-11", ""), &pod("p", words), None).unwrap().unwrap();
        assert_eq!(cpus.exclusive, exclusive, "{words}");
    }
}

#[test]
fn pods_without_cpus_for_their_shared_containers_table() {
    for (words, is_refused) in [
        ("pod:4 c:2 c:-", false),
        ("pod:4 c:2 c:2", false),
        ("pod:4 c:- c:-", false),
        ("pod:6 c:3 c:2 c:500m/1 c:-", false),
        ("pod:5 c:3 c:2 c:-", true),
        ("pod:2 i:1 s:1 c:-", false),
        ("pod:2 i:2 c:2", false),
        ("pod:2 s:2 i:-", true),
        ("pod:2 i:- s:2", false),
        ("pod:2 s:2 s:-", true),
        ("pod:2 s:1 c:1", false),
    ] {
        let result = policy("SingleSocketHT", "0", "").check_shared_pool(&pod("p", words));
        assert_eq!(result.is_err(), is_refused, "{words}");
    }
    let why = policy("SingleSocketHT", "0", "").check_shared_pool(&pod("p", "pod:2 s:2 i:-")).unwrap_err();
    let rejection = why.rejection();
    assert_eq!(rejection.reason, "EmptyPodSharedPoolError");
    assert_eq!(
        rejection.message,
        "pod rejected, pod has shared init containers but no cpus available for them"
    );
}

#[test]
fn pod_keeps_its_cpus_over_a_restart_table() {
    let policy = policy("Restore", "1", "");
    let started = policy.start(Default::default()).unwrap();
    let pod = pod("p", "pod:2 c:1 c:-");
    let cpus_of_pod = policy.allocate_pod(&started, &pod, None).unwrap().unwrap();
    let mut state = started;
    state.assign_pod(&"p".into(), &cpus_of_pod);
    let text = write_cpu_state("static", &state, true);
    let (read, _) = parse_cpu_state(&text, "static", true, |_| None).unwrap();
    let restarted = policy.start(read).unwrap();
    assert_eq!(restarted, state);
    let again = policy.allocate_pod(&restarted, &pod, None).unwrap().unwrap();
    assert!(again.pod.is_old);
    assert_eq!(again.pod.cpus, cpus_of_pod.pod.cpus);
}

#[test]
fn cpus_of_a_pod_return_with_its_last_container() {
    let (policy, mut state) = (policy("DualSocketHT", "=0", ""), state("0-11", ""));
    let cpus_of_pod = policy.allocate_pod(&state, &pod("p", "pod:3 c:1 c:-"), None).unwrap().unwrap();
    state.assign_pod(&"p".into(), &cpus_of_pod);
    state.release(&"p".into(), "c1");
    assert_eq!(state.default, cpus("0-1,3-5,7,9-11"));
    state.release(&"p".into(), "c2");
    assert_eq!(state, super::fixtures::state("0-11", ""));
}
