//! Updates of running containers and their quota: the tables of `cpu_manager_test.go` and `kuberuntime_container_linux_test.go`.

use model::containers::find_container;

use super::fixtures::{cpus, pod, policy, state};
use crate::cpus::{
    ContainerCpuState, CpuIsolation, CpuUpdate, compute_cpu_updates, disables_quota_of_container,
    disables_quota_of_pod,
};

fn running(set: Option<&str>) -> ContainerCpuState {
    ContainerCpuState::Running { set: set.map(cpus) }
}

#[test]
fn reconcile_table() {
    for (default, assigned, now, expected) in [
        ("3-7", "p.c=1,2", running(None), CpuUpdate::Set(cpus("1-2"))),
        ("", "", ContainerCpuState::NotRunning, CpuUpdate::Later),
        ("1-7", "p.c=", running(None), CpuUpdate::Later),
        ("5-7", "p.c=1,2", running(Some("1,2")), CpuUpdate::None),
        ("3-7", "p.c=1,2", running(Some("3,4")), CpuUpdate::Set(cpus("1-2"))),
        ("3-7", "p.c=1,2", ContainerCpuState::Exited, CpuUpdate::None),
        // Without CPUs of its own it follows the shared pool.
        ("3-7", "", running(Some("0-7")), CpuUpdate::Set(cpus("3-7"))),
        ("3-7", "", running(Some("3-7")), CpuUpdate::None),
        ("", "", running(None), CpuUpdate::Later),
    ] {
        let state = state(default, assigned);
        let updates = compute_cpu_updates(&state, [(&"p".into(), "c", &now)]);
        assert_eq!(updates, [expected], "{default} {assigned} {now:?}");
    }
}

#[test]
fn quota_is_disabled_for_exclusive_cpus_table() {
    for (pod_level, words, of_containers, of_pod) in [
        (false, "c:1", "1", true),
        (false, "c:1500m", "0", false),
        (false, "c:1 c:1500m", "10", true),
        (false, "i:1 c:1500m", "10", true),
        (false, "c:1/2", "0", false),
        (true, "c:1 c:1500m", "10", true),
        (true, "pod:3 c:1 c:1", "11", true),
        (true, "pod:3 c:1 c:-", "10", false),
        (true, "pod:3 c:-", "0", false),
    ] {
        let (mut policy, mut state, pod) =
            (policy("SingleSocketHT", "0", ""), state("0-7", ""), pod("p", words));
        policy.pod_level = pod_level;
        if words.contains("pod:") {
            let cpus = policy.allocate_pod(&state, &pod, None).unwrap().unwrap();
            state.assign_pod(&"p".into(), &cpus);
        } else {
            super::allocation::allocate_all(&policy, &mut state, &pod).unwrap();
        }
        let containers = words.split_whitespace().enumerate().filter(|(_, word)| !word.starts_with("pod"));
        let names = containers.map(|(at, word)| format!("{}{at}", &word[..1]));
        let shown: String = names
            .map(|name| find_container(&pod, &name).unwrap())
            .map(|c| if disables_quota_of_container(&state, &pod, &c, pod_level) { '1' } else { '0' })
            .collect();
        assert_eq!(shown, of_containers, "{words}");
        assert_eq!(disables_quota_of_pod(&state, &pod, pod_level), of_pod, "{words}");
    }
}

#[test]
fn isolation_is_from_the_host_the_pod_or_nothing() {
    let (policy, mut state, pod) =
        (policy("SingleSocketHT", "0", ""), state("0-7", ""), pod("p", "pod:3 c:1 c:-"));
    let isolation =
        |state: &_, name: &str| CpuIsolation::of(state, &pod, &find_container(&pod, name).unwrap(), true);
    assert_eq!(isolation(&state, "c1"), CpuIsolation::Host);
    let cpus = policy.allocate_pod(&state, &pod, None).unwrap().unwrap();
    state.assign_pod(&"p".into(), &cpus);
    assert_eq!(isolation(&state, "c1"), CpuIsolation::Container);
    assert_eq!(isolation(&state, "c2"), CpuIsolation::Pod);
}
