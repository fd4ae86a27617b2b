use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const POD: u32 = 65_536;

fn pod(name: &str) -> PodUid {
    PodUid::new(name)
}

fn range(first: u32, length: u32) -> IdRange {
    IdRange { first, length }
}

fn namespaces() -> UserNamespaces {
    UserNamespaces::new(None, POD, 3).unwrap()
}

fn first(mappings: &IdMappings) -> u32 {
    mappings.uids[0].host_id
}

fn file(host_id: u32, length: u32) -> String {
    let mapping = IdMapping { host_id, container_id: 0, length };
    file_content(&IdMappings { uids: vec![mapping], gids: vec![mapping] })
}

#[test]
fn without_subordinate_ids_pods_get_the_ids_right_above_the_nodes() {
    let mut all = namespaces();
    let got: Vec<u32> = ["a", "b", "c"].iter().map(|p| first(&all.allocate(&pod(p)).unwrap())).collect();
    assert_eq!(got, [POD, 2 * POD, 3 * POD]);
    assert_eq!(all.allocate(&pod("d")), Err(UsernsError::Exhausted));
    all.release(&pod("b"));
    assert_eq!(first(&all.allocate(&pod("d")).unwrap()), 2 * POD);
}

#[test]
fn a_pod_keeps_its_range_however_often_it_asks() {
    let mut all = namespaces();
    let once = all.allocate(&pod("a")).unwrap();
    assert_eq!(all.allocate(&pod("a")).unwrap(), once);
    assert_eq!(all.get(&pod("a")), Some(once));
    assert_eq!(all.get(&pod("b")), None);
}

#[test]
fn the_file_is_read_back_as_it_was_written() {
    let mappings = namespaces().allocate(&pod("a")).unwrap();
    let text = file_content(&mappings);
    expect![[r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}"#]]
        .assert_eq(&text);
    let mut after_restart = namespaces();
    assert_eq!(after_restart.record(&pod("a"), &text).unwrap(), mappings);
    assert_eq!(first(&after_restart.allocate(&pod("b")).unwrap()), 2 * POD);
}

#[test]
fn ranges_of_an_earlier_configuration_are_kept_and_avoided() {
    let mut all = namespaces();
    all.record(&pod("large"), &file(POD, 2 * POD)).unwrap();
    all.record(&pod("elsewhere"), &file(100 * POD, POD)).unwrap();
    assert_eq!(first(&all.allocate(&pod("new")).unwrap()), 3 * POD);
    assert_eq!(first(&all.get(&pod("elsewhere")).unwrap()), 100 * POD);
}

#[test]
fn no_range_is_allocated_while_one_of_a_pod_is_unknown() {
    let mut all = namespaces();
    let kept = all.allocate(&pod("a")).unwrap();
    all.record(&pod("broken"), "half a fi").unwrap_err();
    assert!(matches!(all.allocate(&pod("b")), Err(UsernsError::Unreadable { .. })));
    assert_eq!(all.allocate(&pod("a")), Ok(kept), "what is known stays");
    all.release(&pod("broken"));
    assert_eq!(first(&all.allocate(&pod("b")).unwrap()), 2 * POD);
}

#[test]
fn unusable_userns_files_are_distinguished() {
    let says = |text: &str, expect: Expect| {
        let mut all = namespaces();
        all.allocate(&pod("a")).unwrap();
        expect.assert_eq(&all.record(&pod("b"), text).unwrap_err().to_string());
    };
    let one = r#"{"hostId":131072,"containerId":0,"length":65536}"#;
    says(
        "",
        expect![
            "user namespace: invalid user namespace mappings file: EOF while parsing a value at line 1 column 0"
        ],
    );
    says(
        &format!(r#"{{"uidMappings":[{one}],"gidMappings":[]}}"#),
        expect![
            "user namespace: invalid user namespace mappings file: there must be exactly one mapping of UIDs and one of GIDs"
        ],
    );
    says(
        &format!(r#"{{"uidMappings":[{one}],"gidMappings":[{}]}}"#, one.replace("131072", "65536")),
        expect![
            "user namespace: invalid user namespace mappings file: GID and UID mapping should be identical"
        ],
    );
    says(
        &file(131_072, 65_536).replace(r#""containerId":0"#, r#""containerId":1"#),
        expect!["user namespace: invalid user namespace mappings file: UID 0 must be mapped"],
    );
    says(
        &file(u32::MAX, 65_536),
        expect![
            "user namespace: invalid user namespace mappings file: there are no 65536 ids from 4294967295 on"
        ],
    );
    says(&file(65_536, 65_536), expect!["user namespace: range picked for pod b already taken by pod a"]);
}

#[test]
fn subordinate_id_ranges_are_validated() {
    let check = |uids: &[IdRange], gids: &[IdRange], per_pod, max_pods, expect: Expect| {
        let found = match UserNamespaces::new(Some((uids, gids)), per_pod, max_pods) {
            Ok(all) => format!("{} pods from {} on", all.pool.length / all.per_pod, all.pool.first),
            Err(error) => error.to_string(),
        };
        expect.assert_eq(&found);
    };
    let alike = |range: IdRange, max_pods, expect| check(&[range], &[range], POD, max_pods, expect);
    alike(range(10 * POD, 110 * POD), 110, expect!["110 pods from 655360 on"]);
    alike(
        range(10 * POD + 1, 110 * POD),
        110,
        expect!["kubelet mappings: kubelet user assigned ID 655361 is not a multiple of 65536"],
    );
    alike(
        range(0, 110 * POD),
        110,
        expect!["kubelet mappings: kubelet user assigned ID 0 must be greater or equal to 65536"],
    );
    alike(
        range(POD, 110 * POD + 5),
        110,
        expect!["kubelet mappings: kubelet user assigned IDs length 7208965 is not a multiple of 65536"],
    );
    alike(
        range(POD, 109 * POD),
        110,
        expect!["kubelet mappings: kubelet user assigned IDs are not enough to support 110 pods"],
    );
    let one = range(POD, 110 * POD);
    check(
        &[one],
        &[range(2 * POD, 110 * POD)],
        POD,
        110,
        expect![[
            r#"kubelet mappings: mismatched subuids and subgids for user "kubelet": [IdRange { first: 65536, length: 7208960 }] and [IdRange { first: 131072, length: 7208960 }]"#
        ]],
    );
    check(
        &[one, one],
        &[one],
        POD,
        110,
        expect![[
            r#"kubelet mappings: user "kubelet" must have exactly one range of subuids and one of subgids, has 2 and 1"#
        ]],
    );
    check(
        &[one],
        &[one],
        1000,
        1,
        expect!["kubelet mappings: kubelet user namespace length 1000 is not a multiple of 65536"],
    );
    assert!(UserNamespaces::new(None, POD, 70_000).is_err(), "there are not that many ids");
    assert!(UserNamespaces::new(None, 0, 1).is_err());
}

/// One event on a node.
#[derive(Clone, Debug)]
enum Step {
    Allocate(u8),
    Release(u8),
    Record(u8, u32, u32),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..12_u8).prop_map(Step::Allocate),
        2 => (0..12_u8).prop_map(Step::Release),
        2 => (0..12_u8, 0..14 * POD, 0..4 * POD).prop_map(|(pod, first, length)| Step::Record(pod, first, length)),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Whatever happens, in any order, and whatever files contain: IDs belong to one pod at most, and no pod with a valid
    /// file of its own gets other IDs.
    #[test]
    fn no_two_pods_ever_share_an_id(steps in steps()) {
        let fresh = || UserNamespaces::new(None, POD, 8).unwrap();
        let mut all = fresh();
        for step in steps {
            match step {
                Step::Allocate(n) => {
                    let before = all.get(&pod(&n.to_string()));
                    let got = all.allocate(&pod(&n.to_string()));
                    prop_assert!(before.is_none() || got == Ok(before.unwrap()));
                }
                Step::Release(n) => all.release(&pod(&n.to_string())),
                Step::Record(n, first, length) => {
                    if all.get(&pod(&n.to_string())).is_none() {
                        let _ = all.record(&pod(&n.to_string()), &file(first, length));
                    }
                }
                Step::Restart => {
                    let mut next = fresh();
                    for uid in all.used.keys() {
                        let text = file_content(&all.get(uid).unwrap());
                        prop_assert_eq!(next.record(uid, &text), Ok(all.get(uid).unwrap()));
                    }
                    all = next;
                }
            }
            let ranges: Vec<IdRange> = all.used.values().copied().collect();
            for (i, one) in ranges.iter().enumerate() {
                prop_assert!(one.first.checked_add(one.length).is_some());
                for two in &ranges[i + 1..] {
                    prop_assert!(!overlap(*one, *two), "{one:?} {two:?}");
                }
            }
        }
    }
}
