use model::topology::NumaNode;

use super::super::tests::{nodes, providers, shown};
use super::*;

fn policy(kind: PolicyKind, count: u32, prefers_closest: bool) -> TopologyPolicy {
    TopologyPolicy { kind, scope: Scope::Container, numa: NumaInfo::of(&nodes(count)), prefers_closest }
}

#[track_caller]
fn check(policy: &TopologyPolicy, cases: &[(&str, &str)]) {
    for (hints, expected) in cases {
        // `all`: every node of the machine.
        let count = policy.numa.ids().len();
        let all: String = policy.numa.ids().iter().map(u32::to_string).collect();
        let affinity = policy.merge(&providers(hints));
        assert_eq!(shown(affinity.hint), expected.replace("all", &all), "{hints} on {count} nodes");
        let is_admitted = policy.kind == PolicyKind::BestEffort || affinity.hint.is_preferred;
        assert_eq!(affinity.is_admitted, is_admitted, "{hints}");
    }
}

const COMMON: [(&str, &str); 9] = [
    ("0+ / 0+", "0+"),
    ("1+ / 1+", "1+"),
    ("() / 0+", "0+"),
    ("() / 1+", "1+"),
    ("0+ 1+ / 0+", "0+"),
    ("0+ 1+ / 1+", "1+"),
    ("0+ 1+ / 0+ 01-", "0+"),
    ("1+ 01- / 0+ 1+ 01-", "1+"),
    ("1+ 01-, 0+ 1+ 01-", "1+"),
];

const SEVERAL_NODES: [(&str, &str); 17] = [
    ("01+ 02+ / 01+ 02+", "01+"),
    ("", "all+"),
    ("()", "all+"),
    ("nil", "all+"),
    ("none", "all-"),
    ("*+", "all+"),
    ("*-", "all-"),
    ("0+ / 1+", "all-"),
    ("0+ / 0-", "0-"),
    ("1+ / 1-", "1-"),
    ("0+ / 01+", "0-"),
    ("0+ 1+ / 01-", "0-"),
    ("1+ / 01+", "1-"),
    ("0123- 01- / 01-", "01-"),
    ("0123- 01- / 03-", "03-"),
    ("0123- 01- / 12-", "12-"),
    ("0123- 01- / 23-", "23-"),
];

#[test]
fn best_effort_and_restricted_policy_merge_table() {
    for kind in [PolicyKind::BestEffort, PolicyKind::Restricted] {
        let narrowest = policy(kind, 4, false);
        check(&narrowest, &COMMON);
        check(&narrowest, &SEVERAL_NODES);
        check(&narrowest, &[("0123- 01- / 12- 23-", "12-"), ("0123- 01- / 123- 12- 13- 23-", "12-")]);
    }
}

#[test]
fn policy_merge_with_prefer_closest_numa_nodes_table() {
    for kind in [PolicyKind::BestEffort, PolicyKind::Restricted] {
        let closest = policy(kind, 8, true);
        check(&closest, &COMMON);
        check(&closest, &SEVERAL_NODES);
        check(
            &closest,
            &[
                ("04+ 02+ / 04+ 02+", "02+"),
                ("4+ 02+ / 4+ 02+", "4+"),
                ("0123- 01- / 12- 23-", "23-"),
                ("0123- 01- / 123- 12- 13- 23-", "23-"),
            ],
        );
    }
}

#[test]
fn single_numa_node_policy_merge_table() {
    let cases = [
        ("", "*+"),
        ("()", "*+"),
        ("nil", "*+"),
        ("none", "*-"),
        ("*+", "*+"),
        ("*-", "*-"),
        ("0+ / 1+", "*-"),
        ("0+ / 0-", "*-"),
        ("1+ / 1-", "*-"),
        ("0+ 1+ / 01-", "*-"),
        ("01+, 0+ 1+ 01-", "*-"),
        ("0+ 1+ 01- / ()", "0+"),
    ];
    for prefers_closest in [false, true] {
        let single = policy(PolicyKind::SingleNumaNode, 4, prefers_closest);
        check(&single, &COMMON);
        check(&single, &cases);
    }
}

#[test]
fn filter_single_numa_hints_table() {
    let hints = |text: &str| text.split('/').map(super::super::tests::hints).collect::<Vec<_>>();
    for (all, kept) in [
        ("*- / *+", " / *+"),
        ("0+ *- / 1+ *+", "0+ / 1+ *+"),
        ("1+ 0+ *- /", "1+ 0+ /"),
        ("0+ 1+ 12- 012- *- / 12- 012- 02- 3- / 12- 012- 02-", "0+ 1+ / /"),
    ] {
        assert_eq!(single_node(&hints(all)), hints(kept), "{all}");
    }
}

/// The options of the configuration as `name=value`, on a machine with so many nodes.
fn start(policy: &str, scope: &str, options: &str, nodes: Vec<NumaNode>) -> Result<TopologyPolicy, String> {
    let options = options.split(',').filter_map(|option| option.split_once('='));
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let machine = MachineTopology { numa_nodes: nodes, ..MachineTopology::default() };
    TopologyPolicy::new(policy, scope, &options, &machine).map_err(|error| error.to_string())
}

#[test]
fn new_manager_table() {
    for name in ["none", "best-effort", "restricted", "single-numa-node"] {
        assert_eq!(start(name, "container", "", Vec::new()).unwrap().kind().name(), name);
    }
    let error = |policy, scope, options, nodes| start(policy, scope, options, nodes).unwrap_err();
    assert_eq!(error("unknown", "container", "", Vec::new()), "unknown policy: \"unknown\"");
    for policy in ["best-effort", "restricted"] {
        assert_eq!(
            error(policy, "container", "unknown-option=true", Vec::new()),
            "unknown Topology Manager Policy option: \"unknown-option\""
        );
    }
    assert_eq!(
        error("best-effort", "container", "prefer-closest-numa-nodes=true", vec![NumaNode::default()]),
        "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
    );
    assert_eq!(
        error("best-effort", "container", "", nodes(9)),
        "unsupported on machines with more than 8 NUMA Nodes"
    );
    assert_eq!(start("none", "container", "unknown-option=true", nodes(9)), Ok(TopologyPolicy::none()));
}

#[test]
fn manager_scope_table() {
    for scope in ["container", "pod"] {
        assert_eq!(start("best-effort", scope, "", Vec::new()).unwrap().scope().name(), scope);
    }
    assert_eq!(start("best-effort", "unknown", "", Vec::new()).unwrap_err(), "unknown scope: \"unknown\"");
}

#[test]
fn new_topology_manager_options_table() {
    let parse = |options: &str| {
        let options = options.split(',').filter_map(|option| option.split_once('='));
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Options::parse(&options).map_err(|error| error.to_string())
    };
    let options = |prefers_closest, max_nodes| Ok(Options { prefers_closest, max_nodes });
    assert_eq!(parse("prefer-closest-numa-nodes=true,max-allowable-numa-nodes=8"), options(true, 8));
    assert_eq!(parse("max-allowable-numa-nodes=12"), options(false, 12));
    assert_eq!(parse("max-allowable-numa-nodes=+12"), options(false, 12));
    assert_eq!(parse("prefer-closest-numa-nodes=F"), options(false, 8));
    assert_eq!(parse(""), options(false, 8));
    for (text, why) in [
        (
            "prefer-closest-numa-nodes=not a boolean",
            "bad value for option \"prefer-closest-numa-nodes\": strconv.ParseBool: parsing \"not a boolean\": invalid syntax",
        ),
        (
            "max-allowable-numa-nodes=can't parse to int",
            "unable to convert policy option to integer \"max-allowable-numa-nodes\": strconv.Atoi: parsing \"can't parse to int\": invalid syntax",
        ),
        (
            "max-allowable-numa-nodes=99999999999999999999",
            "unable to convert policy option to integer \"max-allowable-numa-nodes\": strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        (
            "max-allowable-numa-nodes=7",
            "the minimum value of \"max-allowable-numa-nodes\" should not be less than 8",
        ),
    ] {
        assert_eq!(parse(text), Err(why.to_owned()));
    }
}

#[test]
fn max_allowable_numa_nodes_raises_the_limit_to_at_most_64() {
    let many = |count: u32| (0..count).map(|id| NumaNode { id, ..NumaNode::default() }).collect::<Vec<_>>();
    let start = |count, limit: u32| {
        start("restricted", "pod", &format!("max-allowable-numa-nodes={limit}"), many(count)).map(|_| ())
    };
    assert_eq!(start(9, 9), Ok(()));
    assert_eq!(start(64, 100), Ok(()));
    assert_eq!(start(10, 9), Err("unsupported on machines with more than 9 NUMA Nodes".to_owned()));
    assert_eq!(start(65, 100), Err("unsupported on machines with more than 64 NUMA Nodes".to_owned()));
}

#[test]
fn only_the_single_numa_node_policy_guarantees_alignment() {
    for kind in [PolicyKind::None, PolicyKind::BestEffort, PolicyKind::Restricted] {
        assert!(!policy(kind, 2, false).guarantees_alignment());
    }
    assert!(policy(PolicyKind::SingleNumaNode, 2, false).guarantees_alignment());
}

#[test]
fn policy_none_admits_without_a_preference() {
    let affinity = TopologyPolicy::none().merge(&providers("0+ / 1+"));
    assert_eq!((shown(affinity.hint).as_str(), affinity.is_admitted), ("*-", true));
}
