use std::sync::Arc;

use serde_json::{Value, json};

use super::pod::{PodStep, step};
use super::*;
use crate::object::text;
use crate::store::Store;

const DRIVER: &str = "gpu.example.com";

fn store(objects: &[(&'static str, Value)]) -> Store {
    let store = Store::new(10);
    for (resource, object) in objects {
        let key = Key::new(resource, object::namespace(object), object::name(object));
        store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object.clone()))).unwrap();
    }
    store
}

/// A pod that uses these claims by their names.
fn pod(name: &str, claims: &[&str]) -> Value {
    let claims: Vec<Value> =
        claims.iter().map(|name| json!({"name": name, "resourceClaimName": name})).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}")},
        "spec": {"resourceClaims": claims},
        "status": {"phase": "Pending"},
    })
}

fn claim_with(name: &str, devices: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}")}, "spec": {"devices": devices}})
}

/// A request for devices of the class `gpu`.
fn request(name: &str, details: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    for (field, value) in details.as_object().unwrap() {
        exactly[field] = value.clone();
    }
    json!({"name": name, "exactly": exactly})
}

fn claim(name: &str, details: Value) -> Value {
    claim_with(name, json!({"requests": [request("r", details)]}))
}

fn class(name: &str, driver: &str) -> (&'static str, Value) {
    let selector = json!({"cel": {"expression": format!("device.driver == '{driver}'")}});
    (CLASSES, json!({"metadata": {"name": name}, "spec": {"selectors": [selector]}}))
}

fn slice_of(name: &str, spec: Value) -> (&'static str, Value) {
    let mut whole = json!({
        "driver": DRIVER, "nodeName": "n", "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
    });
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    (SLICES, json!({"metadata": {"name": name}, "spec": whole}))
}

/// Devices of the driver on the node.
fn slice(devices: Value) -> (&'static str, Value) {
    slice_of("slice", json!({"devices": devices}))
}

/// Devices by their names, with the memory of each.
fn with_memory(devices: &[(&str, &str)]) -> Value {
    let device =
        |(name, memory): &(&str, &str)| json!({"name": name, "capacity": {"memory": {"value": memory}}});
    devices.iter().map(device).collect()
}

fn at_least(memory: &str) -> Value {
    let expression = format!("device.capacity['{DRIVER}'].memory.compareTo(quantity('{memory}')) >= 0");
    json!({"selectors": [{"cel": {"expression": expression}}]})
}

/// `claim: request=device …` for each claim, or the reason.
fn allocated(claims: &[Value], others: &[(&'static str, Value)]) -> String {
    let store = store(others);
    let claims: Vec<&Value> = claims.iter().collect();
    match store.read(|objects| allocation::allocate(&claims, "n", objects)) {
        Err(why) => why,
        Ok(results) => {
            let shown = claims.iter().zip(&results).map(|(claim, result)| {
                let devices = items(result, "/devices/results").iter();
                let devices = devices.map(|it| format!("{}={}", text(it, "/request"), text(it, "/device")));
                format!("{}: {}", object::name(claim), devices.collect::<Vec<_>>().join(" "))
            });
            shown.collect::<Vec<_>>().join("; ")
        }
    }
}

/// A request for all devices.
fn all() -> Value {
    json!({"allocationMode": "All", "count": 0})
}

fn sizes(sizes: &[(&str, &str)]) -> (&'static str, Value) {
    slice(with_memory(sizes))
}

/// A pool with one device.
fn pool(name: &str, device: &str) -> (&'static str, Value) {
    let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
    slice_of(name, json!({"pool": pool, "devices": [{"name": device}]}))
}

type Case = (&'static str, Vec<Value>, Vec<(&'static str, Value)>, &'static str);

#[track_caller]
fn check(cases: Vec<Case>) {
    for (name, claims, others, expected) in cases {
        assert_eq!(allocated(&claims, &others), expected, "{name}");
    }
}

/// Cases of `structured/internal/allocatortesting/allocator_testing.go`, by the names that they have there.
#[test]
fn devices_are_found_as_by_the_allocator_of_the_original() {
    let gpu = || class("gpu", DRIVER);
    let two = |one, two| json!({"requests": [request("0", one), request("1", two)]});
    let nothing = || json!({});
    check(vec![
        ("simple", vec![claim("c", nothing())], vec![gpu(), sizes(&[("d1", "1Gi")])], "c: r=d1"),
        (
            "other-node",
            vec![claim("c", nothing())],
            vec![
                gpu(),
                slice_of("other", json!({"nodeName": "other", "devices": [{"name": "x"}]})),
                pool("p2", "d1"),
            ],
            "c: r=d1",
        ),
        (
            "small-and-large-backtrack-requests",
            vec![claim_with("c", two(at_least("1Gi"), at_least("2Gi")))],
            vec![gpu(), sizes(&[("large", "2Gi"), ("small", "1Gi")])],
            "c: 0=small 1=large",
        ),
        (
            "small-and-large-backtrack-claims",
            vec![claim("c0", at_least("1Gi")), claim("c1", at_least("2Gi"))],
            vec![gpu(), sizes(&[("large", "2Gi"), ("small", "1Gi")])],
            "c0: r=small; c1: r=large",
        ),
        (
            "devices-split-across-different-slices",
            vec![claim("c", json!({"count": 2}))],
            vec![gpu(), pool("p1", "d1"), pool("p2", "d2")],
            "c: r=d1 r=d2",
        ),
        (
            "obsolete-slice",
            vec![claim("c", nothing())],
            vec![
                gpu(),
                slice_of(
                    "old",
                    json!({"pool": {"name": "p", "generation": 1, "resourceSliceCount": 2}, "devices": [{"name": "d1"}]}),
                ),
                slice_of(
                    "new",
                    json!({"pool": {"name": "p", "generation": 2, "resourceSliceCount": 2}, "devices": [{"name": "d2"}]}),
                ),
            ],
            "1 cannot allocate all claims. claim a/c, request r: 1 device of class gpu, none match on this node; resource pool gpu.example.com/p is currently being updated",
        ),
        (
            "duplicate-slice",
            vec![claim("c", nothing())],
            vec![gpu(), slice(json!([{"name": "d"}, {"name": "d"}]))],
            "1 cannot allocate all claims. claim a/c, request r: 1 device of class gpu, none match on this node; resource pool gpu.example.com/pool is invalid: it has a name twice",
        ),
        (
            "no-slices",
            vec![claim("c", nothing())],
            vec![gpu()],
            "1 cannot allocate all claims. claim a/c, request r: 1 device of class gpu, none match on this node",
        ),
    ]);
}

#[test]
fn claims_that_cannot_be_allocated_have_the_errors_of_the_original() {
    let gpu = || class("gpu", DRIVER);
    let nothing = || json!({});
    check(vec![
        (
            "no-classes",
            vec![claim("c", nothing())],
            vec![],
            "claim a/c, request r: could not retrieve device class gpu: deviceclass.resource.k8s.io \"gpu\" not found",
        ),
        (
            "empty-class",
            vec![claim("c", json!({"deviceClassName": ""}))],
            vec![],
            "claim a/c, request r: missing device class name (unsupported request type?)",
        ),
        ("no-claims-to-allocate", vec![], vec![gpu()], ""),
        (
            "all-devices-many",
            vec![claim("c", all())],
            vec![gpu(), pool("p1", "d1"), pool("p2", "d2")],
            "c: r=d1 r=d2",
        ),
        (
            "all-devices-of-the-incomplete-pool",
            vec![claim("c", all())],
            vec![
                gpu(),
                slice_of(
                    "s",
                    json!({"pool": {"name": "p", "generation": 1, "resourceSliceCount": 2}, "devices": []}),
                ),
            ],
            "claim a/c, request r: asks for all devices, but resource pool gpu.example.com/p is currently being updated",
        ),
        (
            "all-devices-plus-another",
            vec![claim("c0", all()), claim("c1", json!({"deviceClassName": "other"}))],
            vec![
                gpu(),
                class("other", "b"),
                pool("p1", "d1"),
                slice_of("b", json!({"driver": "b", "devices": [{"name": "d2"}]})),
            ],
            "c0: r=d1; c1: r=d2",
        ),
        (
            "too many",
            vec![claim("c", json!({"count": 33}))],
            vec![gpu()],
            "claim a/c: number of requested devices 33 exceeds the claim limit of 32",
        ),
        (
            "error in a selector",
            vec![claim("c", json!({"selectors": [{"cel": {"expression": "device.name"}}]}))],
            vec![gpu(), sizes(&[("d1", "1Gi")])],
            "claim a/c, request r: selector #0: CEL compile error: undefined field 'name': device has driver, attributes, capacity and allowMultipleAllocations",
        ),
        (
            "error for a device",
            vec![claim("c", json!({"selectors": [{"cel": {"expression": "device.attributes['x'].y"}}]}))],
            vec![gpu(), sizes(&[("d1", "1Gi")])],
            "claim a/c, request r: selector #0: CEL runtime error for device d1: no such key: y",
        ),
        (
            "binding conditions",
            vec![claim("c", json!({}))],
            vec![gpu(), slice(json!([{"name": "d1", "bindingConditions": ["is-attached"]}]))],
            "1 cannot allocate all claims. claim a/c, request r: 1 device of class gpu, none match on this node; devices with binding conditions, which are not used here: 1",
        ),
        (
            "capacity",
            vec![claim("c", json!({"capacity": {"requests": {"memory": "2Gi"}}}))],
            vec![gpu(), sizes(&[("d1", "1Gi"), ("d2", "2Gi")])],
            "c: r=d2",
        ),
    ]);
}

#[test]
fn devices_in_use_are_free_for_administrators_only() {
    let mut user = claim("user", json!({}));
    user["status"]["allocation"] =
        json!({"devices": {"results": [{"driver": DRIVER, "pool": "pool", "device": "d1"}]}});
    let others = || vec![class("gpu", DRIVER), slice(with_memory(&[("d1", "1Gi")])), (CLAIMS, user.clone())];
    assert_eq!(
        allocated(&[claim("c", json!({}))], &others()),
        "1 cannot allocate all claims. claim a/c, request r: 1 device of class gpu, 1 matches on this node, 1 in use (d1 by claim a/user)"
    );
    let admin = || [claim("c", json!({"adminAccess": true}))];
    assert!(allocated(&admin(), &others()).contains("admin access needs the label"));
    let mut others = others();
    let labels = json!({"resource.kubernetes.io/admin-access": "true"});
    others.push(("namespaces", json!({"metadata": {"name": "a", "labels": labels}})));
    assert_eq!(allocated(&admin(), &others), "c: r=d1");
}

#[test]
fn list_of_requests_takes_the_first_that_is_available() {
    let choice = |name: &str, memory: &str, count: u64| {
        let mut choice = at_least(memory);
        choice["name"] = json!(name);
        choice["deviceClassName"] = json!("gpu");
        choice["count"] = json!(count);
        choice
    };
    let claim = claim_with(
        "c",
        json!({"requests": [{"name": "r", "firstAvailable": [choice("big", "4Gi", 1), choice("small", "1Gi", 2)]}]}),
    );
    let with = |devices: &[(&str, &str)]| {
        allocated(std::slice::from_ref(&claim), &[class("gpu", DRIVER), slice(with_memory(devices))])
    };
    assert_eq!(with(&[("d1", "1Gi"), ("d2", "1Gi"), ("d3", "4Gi")]), "c: r/big=d3");
    assert_eq!(with(&[("d1", "1Gi"), ("d2", "1Gi")]), "c: r/small=d1 r/small=d2");
}

#[test]
fn constraints_compare_the_attributes_of_all_devices_of_a_claim() {
    let device = |name: &str, numa: i64| json!({"name": name, "attributes": {"numa": {"int": numa}}});
    let devices = json!([device("d1", 0), device("d2", 1), device("d3", 1), {"name": "d4"}]);
    let with = |constraint: &str, value: &str, requests: Value| {
        let constraints = json!([{constraint: value, "requests": requests}]);
        let requests = [request("0", json!({})), request("1", json!({}))];
        let claim = claim_with("c", json!({"requests": requests, "constraints": constraints}));
        allocated(&[claim], &[class("gpu", DRIVER), slice(devices.clone())])
    };
    assert_eq!(with("matchAttribute", "gpu.example.com/numa", json!([])), "c: 0=d2 1=d3");
    assert_eq!(with("matchAttribute", "gpu.example.com/numa", json!(["0"])), "c: 0=d1 1=d2");
    assert_eq!(with("distinctAttribute", "gpu.example.com/numa", json!([])), "c: 0=d1 1=d2");
    assert!(with("matchAttribute", "other/numa", json!([])).starts_with("1 cannot allocate all claims."));
    assert!(with("unknown", "x", json!([])).contains("empty constraint"));
}

#[test]
fn tainted_device_is_for_requests_that_tolerate_it() {
    let taint =
        |effect: &str| json!([{"name": "d1", "taints": [{"key": "k", "value": "v", "effect": effect}]}]);
    let with = |effect: &str, toleration: Value| {
        let claim = claim("c", json!({"tolerations": [toleration]}));
        allocated(&[claim], &[class("gpu", DRIVER), slice(taint(effect))]) == "c: r=d1"
    };
    assert!(with("None", json!({"key": "other"})));
    assert!(!with("NoSchedule", json!({"key": "other", "operator": "Exists"})));
    assert!(with("NoSchedule", json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"})));
    assert!(!with("NoExecute", json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"})));
    assert!(with("NoExecute", json!({"operator": "Exists"})));
    assert!(with("NoExecute", json!({"key": "k", "value": "v"})));
    assert!(!with("NoExecute", json!({"key": "k", "value": "w", "operator": "Equal"})));
}

#[test]
fn partitions_of_a_device_share_its_counters() {
    let part = |name: &str, memory: &str| json!({"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}]});
    let shared = json!([{"name": "gpu-0", "counters": {"memory": {"value": "4Gi"}}}]);
    let devices = json!([part("whole", "4Gi"), part("half-1", "2Gi"), part("half-2", "2Gi")]);
    let slice = slice_of("slice", json!({"sharedCounters": shared, "devices": devices}));
    assert_eq!(
        allocated(&[claim("c", json!({"count": 2}))], &[class("gpu", DRIVER), slice.clone()]),
        "c: r=half-1 r=half-2"
    );
    let mut user = claim("user", json!({}));
    user["status"]["allocation"] =
        json!({"devices": {"results": [{"driver": DRIVER, "pool": "pool", "device": "half-2"}]}});
    assert_eq!(
        allocated(&[claim("c", json!({}))], &[class("gpu", DRIVER), slice, (CLAIMS, user)]),
        "c: r=half-1"
    );
}

#[test]
fn search_without_end_ends() {
    // Forty devices of which no two have the same attribute: every pair of every request is tried.
    let devices: Value =
        (0..40).map(|n| json!({"name": format!("d{n}"), "attributes": {"n": {"int": n / 20}}})).collect();
    let requests: Vec<Value> = (0..24).map(|n| request(&format!("{n}"), json!({}))).collect();
    let constraints = json!([{"matchAttribute": "gpu.example.com/n"}]);
    let claim = claim_with("c", json!({"requests": requests, "constraints": constraints}));
    let why = allocated(&[claim], &[class("gpu", DRIVER), slice(devices)]);
    assert_eq!(why, "1 cannot allocate all claims: no allocation was found in 100000 steps");
}

#[test]
fn allocation_has_the_configuration_of_class_and_claim() {
    let opaque = |text: &str| json!({"opaque": {"driver": DRIVER, "parameters": {"of": text}}});
    let (resource, mut gpu) = class("gpu", DRIVER);
    gpu["spec"]["config"] = json!([opaque("class")]);
    let mut of_one = opaque("one");
    of_one["requests"] = json!(["1"]);
    let claim = claim_with(
        "c",
        json!({
            "requests": [request("0", json!({})), request("1", json!({"tolerations": [{"key": "k"}]}))],
            "config": [opaque("all"), of_one],
        }),
    );
    let store = store(&[(resource, gpu), slice(with_memory(&[("d1", "1Gi"), ("d2", "1Gi")]))]);
    let results = store.read(|objects| allocation::allocate(&[&claim], "n", objects)).unwrap();
    let result = |request: &str, device: &str| json!({"request": request, "driver": DRIVER, "pool": "pool", "device": device});
    let mut second = result("1", "d2");
    second["tolerations"] = json!([{"key": "k"}]);
    let config = |source: &str, text: &str| {
        let mut config = opaque(text);
        config["source"] = json!(source);
        config
    };
    let mut last = config("FromClaim", "one");
    last["requests"] = json!(["1"]);
    let here = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    assert_eq!(
        results[0],
        json!({
            "devices": {
                "results": [result("0", "d1"), second],
                "config": [config("FromClass", "class"), config("FromClaim", "all"), last],
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
        })
    );
}

fn next(pod: &Value, objects: &[(&'static str, Value)]) -> PodStep {
    store(objects).read(|objects| step(pod, "n", objects))
}

#[test]
fn pod_gets_the_claim_of_its_template_then_its_devices_and_then_its_node() {
    let mut pod = pod("p", &[]);
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    let missing = PodStep::Wait(
        "0/1 nodes are available: resourceclaimtemplate.resource.k8s.io \"t\" not found".to_owned(),
    );
    assert_eq!(next(&pod, &[]), missing);
    let spec = json!({"devices": {"requests": [request("r", json!({}))]}});
    let template = json!({
        "metadata": {"name": "t", "namespace": "a"},
        "spec": {"metadata": {"labels": {"l": "m"}}, "spec": spec},
    });
    let PodStep::Create { name, claim: mut made } = next(&pod, &[(TEMPLATES, template)]) else {
        panic!("a claim")
    };
    assert_eq!((name.as_str(), &made["spec"]), ("gpu", &spec));
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true, "blockOwnerDeletion": true});
    assert_eq!(
        made["metadata"],
        json!({
            "generateName": "p-gpu-", "labels": {"l": "m"}, "ownerReferences": [owner],
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        })
    );
    made["metadata"]["name"] = json!("p-gpu-x");
    made["metadata"]["namespace"] = json!("a");
    let PodStep::Assign { statuses } = next(&pod, &[(CLAIMS, made.clone())]) else { panic!("its name") };
    assert_eq!(statuses, [json!({"name": "gpu", "resourceClaimName": "p-gpu-x"})]);
    pod["status"]["resourceClaimStatuses"] = json!(statuses);
    let others = |claim: &Value| {
        vec![class("gpu", DRIVER), slice(with_memory(&[("d1", "1Gi")])), (CLAIMS, claim.clone())]
    };
    let PodStep::Write(written) = next(&pod, &others(&made)) else { panic!("an allocation") };
    let [(key, _, allocated)] = written.as_slice() else { panic!("one claim") };
    assert_eq!(key.name, "p-gpu-x");
    assert_eq!(
        allocated["status"]["reservedFor"],
        json!([{"resource": "pods", "name": "p", "uid": "uid-p"}])
    );
    assert_eq!(allocated["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(next(&pod, &others(allocated)), PodStep::Bind);
    pod["spec"]["nodeName"] = json!("n");
    assert_eq!(next(&pod, &others(allocated)), PodStep::Nothing);
}

#[test]
fn pod_waits_with_the_reason() {
    let wait = |pod: &Value, others: &[(&'static str, Value)]| {
        let step = next(pod, others);
        let PodStep::Wait(why) = &step else { return format!("{step:?}") };
        why.strip_prefix("0/1 nodes are available: ").unwrap().to_owned()
    };
    let pod = pod("p", &["c"]);
    assert_eq!(wait(&pod, &[]), "resourceclaim \"c\" not found");
    let mut deleted = claim("c", json!({}));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(wait(&pod, &[(CLAIMS, deleted)]), "resourceclaim \"c\" is being deleted");
    let mut shared = claim("c", json!({}));
    shared["status"] = json!({"allocation": {}, "reservedFor": (0..256).map(|n| json!({"uid": n.to_string()})).collect::<Value>()});
    assert_eq!(wait(&pod, &[(CLAIMS, shared)]), "resourceclaim \"c\" is used by 256 pods already");
    let mut gated = pod.clone();
    gated["spec"]["schedulingGates"] = json!([{"name": "g"}]);
    assert_eq!(wait(&gated, &[]), "Nothing");
    let plain = tests::pod("plain", &[]);
    assert_eq!(wait(&plain, &[]), "Bind", "its gates are gone");
    let node = |spec: Value| [(NODES, json!({"metadata": {"name": "n"}, "spec": spec}))];
    let cordoned = node(json!({"unschedulable": true}));
    assert_eq!(wait(&plain, &cordoned), "1 node(s) were unschedulable");
    let tainted = node(json!({"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}));
    assert_eq!(wait(&plain, &tainted), "1 node(s) had untolerated taint {a: b}");
    let mut tolerating = plain.clone();
    tolerating["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}]);
    assert_eq!(wait(&tolerating, &tainted), "Bind");
    let mut bound = plain;
    bound["spec"]["nodeName"] = json!("n");
    assert_eq!(wait(&bound, &cordoned), "Nothing");
}

#[test]
fn claim_is_released_by_its_last_pod_and_deleted_with_the_pod_it_was_made_for() {
    let reserved = |users: &[&str]| {
        let mut claim = claim("c", json!({}));
        let user = |name: &&str| json!({"resource": "pods", "name": name, "uid": format!("uid-{name}")});
        let users: Vec<Value> = users.iter().map(user).collect();
        claim["metadata"]["finalizers"] = json!([FINALIZER, "other"]);
        claim["status"] = json!({"allocation": {"devices": {}}, "reservedFor": users});
        claim
    };
    let step = |claim: &Value, others: &[(&'static str, Value)]| {
        store(others).read(|objects| claim::step(claim, objects))
    };
    let (one, two) = (pod("one", &["c"]), pod("two", &["c"]));
    assert_eq!(step(&reserved(&["one", "two"]), &[(PODS, one.clone()), (PODS, two)]), ClaimStep::Nothing);
    let ClaimStep::Put(next) = step(&reserved(&["one", "two"]), &[(PODS, one.clone())]) else {
        panic!("one is gone")
    };
    assert_eq!(next, reserved(&["one"]));
    let mut ended = one;
    ended["status"]["phase"] = json!("Succeeded");
    let ClaimStep::Put(mut free) = step(&reserved(&["one"]), &[(PODS, ended.clone())]) else {
        panic!("it ended")
    };
    assert_eq!((&free["status"], &free["metadata"]["finalizers"]), (&json!({}), &json!(["other"])));
    assert_eq!(step(&free, &[(PODS, ended.clone())]), ClaimStep::Nothing);
    free["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": "uid-one", "controller": true}]);
    assert_eq!(step(&free, &[(PODS, ended)]), ClaimStep::Delete);
    // What another client allocated, it frees.
    let mut by_hand = reserved(&["gone"]);
    by_hand["metadata"]["finalizers"] = json!([]);
    let ClaimStep::Put(next) = step(&by_hand, &[]) else { panic!("the pod is gone") };
    assert_eq!(next["status"]["allocation"], json!({"devices": {}}));
}

#[test]
fn freed_claim_changed_devices_and_uncordoned_node_lead_to_the_pods_that_wait() {
    let (waiting, mut bound) = (pod("waiting", &["c"]), pod("bound", &[]));
    bound["spec"]["nodeName"] = json!("n");
    let store = store(&[(PODS, waiting.clone()), (PODS, bound)]);
    let affected = |resource, change, object: &Value, previous: Option<&Value>| {
        let key = Key::new(resource, object::namespace(object), object::name(object));
        let previous = previous.map(|previous| Arc::new(previous.clone()));
        let event = Event { key, change, object: Arc::new(object.clone()), previous };
        let keys = store.read(|objects| Scheduling::affected(&event, objects));
        keys.into_iter().map(|key| key.name).collect::<Vec<_>>()
    };
    let (_, slice) = slice(with_memory(&[("d1", "1Gi")]));
    assert_eq!(affected(SLICES, Change::Added, &slice, None), ["waiting"]);
    assert!(affected(SLICES, Change::Modified, &slice, Some(&slice)).is_empty());
    let node = |spec: Value| json!({"metadata": {"name": "n"}, "spec": spec});
    let (cordoned, free) = (node(json!({"unschedulable": true})), node(json!({})));
    assert_eq!(affected(NODES, Change::Modified, &free, Some(&cordoned)), ["waiting"]);
    assert!(affected(NODES, Change::Modified, &free, Some(&free)).is_empty());
    let claim = claim("c", json!({}));
    assert_eq!(affected(CLAIMS, Change::Deleted, &claim, None), ["c", "waiting"]);
    assert_eq!(affected(PODS, Change::Deleted, &waiting, None), ["waiting", "c"]);
    let mut ready = waiting.clone();
    ready["status"]["conditions"] = json!([{"type": "PodScheduled"}]);
    assert!(affected(PODS, Change::Modified, &ready, Some(&waiting)).is_empty());
}
