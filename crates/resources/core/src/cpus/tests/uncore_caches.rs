//! CPUs of one last-level cache: the table of `policy_static_test.go`.

use super::allocation::{allocate_all, lines};
use super::fixtures::{cpus, pod, policy, state};

/// Machine, reserved CPUs, options, shared pool, pod, and the CPUs of the first container, or the caches of all.
const ALLOCATIONS: &str = include_str!("uncore_caches.txt");

#[test]
fn allocations_by_uncore_cache_table() {
    for line in lines(ALLOCATIONS) {
        let [machine, reserved, options, default, words, expected] = line[..] else { panic!("{line:?}") };
        let policy = policy(machine, reserved, options);
        let mut state = state(default, "");
        allocate_all(&policy, &mut state, &pod("p", words)).unwrap();
        let (kind, ids) = expected.split_once(' ').unwrap();
        if kind == "cpus" {
            assert_eq!(state.exclusive(&"p".into(), "c0"), Some(&cpus(ids)), "{line:?}");
            continue;
        }
        let taken = state.all_exclusive();
        let caches = policy.topology().uncore_caches.iter().filter(|(_, cache)| !cache.is_disjoint(&taken));
        assert_eq!(
            caches.map(|(id, _)| *id).collect::<Vec<_>>(),
            cpus(ids).iter().collect::<Vec<_>>(),
            "{line:?}"
        );
    }
}
