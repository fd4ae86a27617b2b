//! A pod, a node and its other pods in; whether it fits out.
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(uid: &str, spec: &Value) -> Pod {
    let mut full = json!({"containers": [{"name": "a"}]});
    for (key, value) in spec.as_object().into_iter().flatten() {
        full[key] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid}, "spec": full})).unwrap()
}

/// A pod that requests CPU (in thousandths) and memory, with equal limits if `guaranteed`.
fn asking(uid: &str, cpu: i64, memory: i64, guaranteed: bool) -> Pod {
    let amounts = json!({"cpu": format!("{cpu}m"), "memory": memory.to_string()});
    let limits = if guaranteed { amounts.clone() } else { json!({}) };
    pod(uid, &json!({"containers": [{"name": "a", "resources": {"requests": amounts, "limits": limits}}]}))
}

fn critical(mut pod: Pod) -> Pod {
    pod.spec.as_mut().unwrap().priority = Some(2_000_000_000);
    pod
}

fn shown(pod: &Pod, active: &[&Pod]) -> String {
    shown_with(Features::default(), pod, active)
}

fn shown_with(features: Features, pod: &Pod, active: &[&Pod]) -> String {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}, {"key": "s", "effect": "NoSchedule"}]},
    }))
    .unwrap();
    let quantity = |text: &str| model::k8s::Quantity(text.to_owned());
    let allocatable = [("cpu", "2"), ("memory", "1000"), ("pods", "4"), ("example.com/gpu", "1")]
        .map(|(name, amount)| (name.to_owned(), quantity(amount)))
        .into();
    let active: Vec<Allocation<'_>> = active.iter().map(|pod| Allocation::whole(pod)).collect();
    match compute_fit(
        pod,
        &FitFacts { may_preempt: true, node: &node, allocatable: &allocatable, active: &active, features },
    ) {
        Fit::Fits => "fits".into(),
        Fit::FitsWithout { victims, .. } => {
            format!("without {}", victims.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        }
        Fit::Refused(Rejection { reason, message }) => format!("{reason}: {message}"),
    }
}

fn tolerant(spec: &Value) -> Pod {
    let mut spec = spec.clone();
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    pod("new", &spec)
}

fn tolerating(mut pod: Pod) -> Pod {
    let all = Toleration { operator: Some("Exists".into()), ..Toleration::default() };
    pod.spec.as_mut().unwrap().tolerations = Some(vec![all]);
    pod
}

#[test]
fn requests_of_active_pods_reduce_what_is_free() {
    let there = asking("old", 1500, 600, false);
    let new = |cpu, memory| tolerating(asking("new", cpu, memory, false));
    assert_eq!(shown(&new(500, 400), &[&there]), "fits");
    assert_eq!(
        shown(&new(501, 400), &[&there]),
        "OutOfcpu: Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"
    );
    assert_eq!(
        shown(&new(500, 401), &[&there]),
        "OutOfmemory: Node didn't have enough resource: memory, requested: 401, used: 600, capacity: 1000"
    );
    assert_eq!(shown(&tolerant(&json!({})), &[&there, &there, &there]), "fits");
    assert_eq!(
        shown(&tolerant(&json!({})), &[&there; 4]),
        "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 4"
    );
}

#[test]
fn pod_without_requests_fits_an_overcommitted_node() {
    let there = asking("old", 9000, 9000, false);
    assert_eq!(shown(&tolerant(&json!({})), &[&there]), "fits");
}

#[test]
fn extended_resources_are_checked_only_if_the_node_has_them() {
    let asking = |name: &str, amount: &str| {
        tolerant(&json!({"containers": [{"name": "a", "resources": {"limits": {name: amount}}}]}))
    };
    assert_eq!(shown(&asking("example.com/gpu", "1"), &[]), "fits");
    assert_eq!(
        shown(&asking("example.com/gpu", "2"), &[]),
        "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1"
    );
    assert_eq!(shown(&asking("example.com/other", "2"), &[]), "fits");
    assert_eq!(
        shown(&asking("ephemeral-storage", "1"), &[]),
        "OutOfephemeral-storage: Node didn't have enough resource: ephemeral-storage, requested: 1, used: 0, capacity: 0"
    );
}

#[test]
fn node_name_and_node_selector_must_match() {
    assert_eq!(shown(&tolerant(&json!({"nodeName": "n1", "nodeSelector": {"zone": "a"}})), &[]), "fits");
    assert_eq!(
        shown(&tolerant(&json!({"nodeName": "n2"})), &[]),
        "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name"
    );
    assert_eq!(
        shown(&tolerant(&json!({"nodeName": "n2", "nodeSelector": {"zone": "b"}})), &[]),
        "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    );
}

#[test]
fn host_port_conflict_rejects_the_pod() {
    let with = |ports: Value| tolerant(&json!({"containers": [{"name": "a", "ports": ports}]}));
    let there = with(
        json!([{"containerPort": 1, "hostPort": 80}, {"containerPort": 1, "hostPort": 90, "hostIP": "10.0.0.1"}]),
    );
    let refused =
        "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    for (port, expected) in [
        (json!([{"containerPort": 80}]), "fits"),
        (json!([{"containerPort": 1, "hostPort": 80}]), refused),
        (json!([{"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}]), refused),
        (json!([{"containerPort": 1, "hostPort": 80, "protocol": "UDP"}]), "fits"),
        (json!([{"containerPort": 1, "hostPort": 90, "hostIP": "10.0.0.2"}]), "fits"),
        (json!([{"containerPort": 1, "hostPort": 90, "hostIP": "10.0.0.1", "protocol": "TCP"}]), refused),
        (json!([{"containerPort": 1, "hostPort": 90}]), refused),
    ] {
        assert_eq!(shown(&with(port.clone()), &[&there]), expected, "{port}");
    }
    let sidecar = tolerant(
        &json!({"initContainers": [{"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 80}]}]}),
    );
    assert_eq!(shown(&sidecar, &[&there]), refused);
}

#[test]
fn no_execute_taints_must_be_tolerated_except_by_static_pods() {
    let refused =
        "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    for (toleration, expected) in [
        (json!({"operator": "Exists"}), "fits"),
        (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), "fits"),
        (json!({"key": "k", "value": "v"}), "fits"),
        (json!({"key": "k", "operator": "Equal", "value": "w"}), refused),
        (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), refused),
        (json!({"key": "other", "operator": "Exists"}), refused),
        (json!({"key": "k", "operator": "Gt", "value": "v"}), refused),
    ] {
        assert_eq!(shown(&pod("new", &json!({"tolerations": [toleration]})), &[]), expected, "{toleration}");
    }
    let mut of_file = pod("new", &json!({}));
    of_file.metadata.annotations = Some([("kubernetes.io/config.source".into(), "file".into())].into());
    assert_eq!(shown(&of_file, &[]), "fits");
}

#[test]
fn toleration_compares_integers_if_its_feature_gate_is_enabled() {
    for (operator, bound, taint, is_tolerated) in [
        ("Lt", "100", "99", true),
        ("Lt", "100", "100", false),
        ("Gt", "-2", "-1", true),
        ("Gt", "100", "100", false),
        ("Gt", "7", "007", false),
        ("Gt", "+7", "8", false),
        ("Lt", "x", "1", false),
        ("Lt", "1", "", false),
    ] {
        let toleration = Toleration {
            key: Some("k".to_owned()),
            operator: Some(operator.to_owned()),
            value: Some(bound.to_owned()),
            ..Toleration::default()
        };
        let taint = Taint { key: "k".to_owned(), value: Some(taint.to_owned()), ..Taint::default() };
        let with = Features { comparing_tolerations: true, ..Features::default() };
        assert_eq!(tolerates(&toleration, &taint, with), is_tolerated, "{operator} {bound} {taint:?}");
        assert!(!tolerates(&toleration, &taint, Features::default()), "{operator} {bound} {taint:?}");
    }
    let comparing = pod("new", &json!({"tolerations": [{"key": "k", "operator": "Lt", "value": "1"}]}));
    let with = Features { comparing_tolerations: true, ..Features::default() };
    assert_eq!(shown_with(with, &comparing, &[]), shown(&comparing, &[]), "the taint there is no number");
}

#[test]
fn critical_pod_preempts_lower_qos_classes_first() {
    let new = |cpu, memory| tolerating(critical(asking("new", cpu, memory, false)));
    let (best, burst, sure) =
        (pod("best", &json!({})), asking("burst", 900, 400, false), asking("sure", 1000, 500, true));
    let all = [&best, &burst, &sure];
    assert_eq!(shown(&new(100, 100), &all), "fits");
    assert_eq!(shown(&new(500, 100), &all), "without burst");
    assert_eq!(shown(&new(1500, 100), &all), "without burst sure");
    let (small, large) = (asking("small", 300, 100, false), asking("large", 1500, 100, false));
    assert_eq!(shown(&new(400, 0), &[&large, &small]), "without small");
    assert_eq!(shown(&new(1000, 0), &[&large, &small]), "without large");
    let four = [&best, &burst, &sure, &small];
    assert_eq!(shown(&tolerating(critical(pod("new", &json!({})))), &four), "without best");
}

#[test]
fn preemption_is_skipped_if_it_does_not_help() {
    let burst = asking("burst", 1900, 100, false);
    let new = critical(asking("new", 500, 100, false));
    assert!(shown(&new, &[&burst]).starts_with("TaintToleration: "));
    let huge = tolerating(critical(asking("new", 5000, 100, false)));
    assert_eq!(
        shown(&huge, &[&burst]),
        "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preemption: \
         error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 3000), ]"
    );
    let also = critical(asking("also", 1900, 100, false));
    assert!(shown(&tolerating(new), &[&also]).starts_with("UnexpectedAdmissionError: "));
    assert!(shown(&tolerating(asking("new", 500, 100, false)), &[&burst]).starts_with("OutOfcpu: "));
}

proptest! {
    #[test]
    fn pod_fits_without_its_victims_and_no_victim_is_critical(
        sizes in prop::collection::vec((0..1200_i64, 0..600_i64, 0..3_u8), 0..5),
        cpu in 0..2500_i64, memory in 0..1200_i64,
    ) {
        let pods: Vec<Pod> = sizes.iter().enumerate().map(|(at, (cpu, memory, kind))| {
            let pod = asking(&at.to_string(), *cpu, *memory, *kind == 1);
            if *kind == 2 { critical(pod) } else { pod }
        }).collect();
        let active: Vec<&Pod> = pods.iter().collect();
        let new = tolerating(critical(asking("new", cpu, memory, false)));
        if let Some(victims) = shown(&new, &active).strip_prefix("without ") {
            let victims: Vec<&str> = victims.split(' ').collect();
            let left: Vec<&Pod> = active.iter().copied().filter(|p| !victims.contains(&p.metadata.uid.as_deref().unwrap())).collect();
            prop_assert_eq!(shown(&new, &left), "fits");
            prop_assert!(active.iter().all(|p| !is_critical_pod(p) || left.iter().any(|l| l.metadata.uid == p.metadata.uid)));
        }
    }
}

#[test]
fn standalone_node_names_the_resource_that_a_static_pod_lacks() {
    let node = Node::default();
    let quantity = |text: &str| model::k8s::Quantity(text.to_owned());
    let allocatable =
        [("memory", "1000"), ("pods", "4")].map(|(name, amount)| (name.to_owned(), quantity(amount))).into();
    let mut large =
        pod("new", &json!({"containers": [{"name": "a", "resources": {"requests": {"memory": "2000"}}}]}));
    large.metadata.annotations = Some([("kubernetes.io/config.source".to_owned(), "file".to_owned())].into());
    let reason = |may_preempt| {
        let (active, features): (&[Allocation<'_>], _) = (&[], Features::default());
        let facts = FitFacts { node: &node, allocatable: &allocatable, active, may_preempt, features };
        match compute_fit(&large, &facts) {
            Fit::Refused(rejection) => rejection.reason.to_string(),
            other @ (Fit::Fits | Fit::FitsWithout { .. }) => format!("{other:?}"),
        }
    };
    assert_eq!(reason(false), "OutOfmemory");
    assert_eq!(reason(true), "UnexpectedAdmissionError");
}

/// `lifecycle/predicate_test.go`, TestGeneralPredicates: on a node of 10 thousandths of a core, 20 bytes and 32 pods. Where it
/// lists several reasons, the event names the first.
#[test]
fn general_predicates_table() {
    let fit = |pod: &Pod, active: &[&Pod], taints: Value, labels: Value| {
        let node: Node = serde_json::from_value(
            json!({"metadata": {"name": "machine1", "labels": labels}, "spec": {"taints": taints}}),
        )
        .unwrap();
        let allocatable = [("cpu", "10m"), ("memory", "20"), ("pods", "32")]
            .map(|(name, amount)| (name.to_owned(), model::k8s::Quantity(amount.to_owned())))
            .into();
        let active: Vec<Allocation<'_>> = active.iter().map(|pod| Allocation::whole(pod)).collect();
        let facts = FitFacts {
            may_preempt: true,
            node: &node,
            allocatable: &allocatable,
            active: &active,
            features: Features::default(),
        };
        match compute_fit(pod, &facts) {
            Fit::Fits => "fits".to_owned(),
            Fit::FitsWithout { .. } => "preempts".to_owned(),
            Fit::Refused(rejection) => rejection.reason.to_string(),
        }
    };
    let empty = pod("new", &json!({}));
    let with_port = |uid: &str| {
        pod(uid, &json!({"containers": [{"name": "a", "ports": [{"containerPort": 1, "hostPort": 123}]}]}))
    };
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let tolerant = pod("new", &json!({"tolerations": [{"key": "foo"}, {"key": "bar"}]}));
    let from_file = |spec: Value| {
        let mut pod = pod("new", &spec);
        let annotations = [("kubernetes.io/config.source".to_owned(), "file".to_owned())].into();
        pod.metadata.annotations = Some(annotations);
        pod
    };
    let wants_label = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "foo", "operator": "Exists"}]}]}}}});
    let (nothing, foo) = (json!({}), json!({"foo": "bar"}));
    let no_schedule = taint("foo", "NoSchedule");
    let no_execute = taint("bar", "NoExecute");
    let (greedy, busy) = (asking("new", 8, 10, false), asking("old", 5, 19, false));
    let (port, taken) = (with_port("new"), with_port("old"));
    let elsewhere = pod("new", &json!({"nodeName": "machine2"}));
    let (file, picky) = (from_file(json!({})), from_file(wants_label));
    for (name, pod, active, taints, labels, expected) in [
        ("no resources/port/host requested always fits", &empty, vec![&busy], json!([]), &nothing, "fits"),
        ("not enough cpu and memory resource", &greedy, vec![&busy], json!([]), &nothing, "OutOfcpu"),
        ("host not match", &elsewhere, vec![], json!([]), &nothing, "NodeName"),
        ("hostport conflict", &port, vec![&taken], json!([]), &nothing, "NodePorts"),
        ("toleration match", &tolerant, vec![], json!([no_schedule, no_execute]), &nothing, "fits"),
        ("NoSchedule not match", &empty, vec![], json!([no_schedule]), &nothing, "fits"),
        ("NoExecute not match", &empty, vec![], json!([no_execute]), &nothing, "TaintToleration"),
        ("PreferNoSchedule", &empty, vec![], json!([taint("baz", "PreferNoSchedule")]), &nothing, "fits"),
        ("static pods ignore taints", &file, vec![], json!([no_schedule, no_execute]), &nothing, "fits"),
        ("node affinity failure", &picky, vec![], json!([]), &nothing, "NodeAffinity"),
        ("node affinity match", &picky, vec![], json!([]), &foo, "fits"),
    ] {
        assert_eq!(fit(pod, &active, taints, labels.clone()), expected, "{name}");
    }
}

/// `lifecycle/predicate_test.go`, TestRemoveMissingExtendedResources: what the node does not have is not checked, what it
/// knows to be none is.
#[test]
fn remove_missing_extended_resources_table() {
    for (name, requests, allocatable, expected) in [
        ("available", "1", Some("1"), "fits"),
        ("not available", "1", None, "fits"),
        ("allocatable is 0", "1", Some("0"), "OutOffoo.com/bar"),
        ("more than there is", "2", Some("1"), "OutOffoo.com/bar"),
    ] {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {}})).unwrap();
        let quantity = |text: &str| model::k8s::Quantity(text.to_owned());
        let mut known: BTreeMap<_, _> = [("pods".to_owned(), quantity("4"))].into();
        known.extend(allocatable.map(|amount| ("foo.com/bar".to_owned(), quantity(amount))));
        let resources = json!({"requests": {"foo.com/bar": requests}, "limits": {"foo.com/bar": requests}});
        let pod = pod("new", &json!({"containers": [{"name": "a", "resources": resources}]}));
        let facts = FitFacts {
            may_preempt: true,
            node: &node,
            allocatable: &known,
            active: &[],
            features: Features::default(),
        };
        let found = match compute_fit(&pod, &facts) {
            Fit::Fits => "fits".to_owned(),
            Fit::FitsWithout { .. } => "preempts".to_owned(),
            Fit::Refused(rejection) => rejection.reason.to_string(),
        };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn port_clash_names_the_pod_and_container_that_have_the_host_port() {
    let with_ports = |uid: &str, ports: Value| {
        pod(uid, &json!({"containers": [{"name": "app", "image": "i", "ports": ports}]}))
    };
    let web = with_ports(
        "web",
        json!([{"containerPort": 80, "hostPort": 8080}, {"containerPort": 53, "hostPort": 53, "protocol": "UDP"}]),
    );
    let one = with_ports("one", json!([{"containerPort": 1, "hostPort": 8080, "hostIP": "127.0.0.1"}]));
    let two = with_ports(
        "two",
        json!([{"containerPort": 1, "hostPort": 53, "protocol": "UDP"}, {"containerPort": 1, "hostPort": 53}]),
    );
    let free = with_ports("free", json!([{"containerPort": 1, "hostPort": 81}]));
    let active = [Allocation::whole(&one), Allocation::whole(&two), Allocation::whole(&free)];
    let found: Vec<_> = port_clashes(&web, &active);
    assert_eq!(
        found,
        [
            format!("host port 8080/TCP is taken by container app of pod {}", PodRef::of(&one)),
            format!("host port 53/UDP is taken by container app of pod {}", PodRef::of(&two)),
        ]
    );
    assert!(port_clashes(&free, &active[..2]).is_empty());
}
