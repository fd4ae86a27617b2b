use super::*;
use crate::resources;
use crate::store::{Key, NotStored, Store, Write};

fn put(store: &Store, resource: &'static str, object: Value) {
    let key = Key::new(resource, "a", object::name(&object));
    store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
}

fn quota(spec: Value) -> Value {
    json!({"metadata": {"name": "q", "namespace": "a"}, "spec": spec})
}

fn pod(name: &str, resources: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a"},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": "Running", "qosClass": if resources == json!({}) { "BestEffort" } else { "Burstable" }},
    })
}

fn refused(store: &Store, resource: &str, object: &Value) -> String {
    let resource = resources::stored(resource).unwrap();
    store.read(|objects| refusal(resource, object, None, objects)).unwrap_or_default()
}

fn requests(cpu: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": "64Mi"}})
}

#[test]
fn pod_that_exceeds_a_quota_is_refused_with_what_is_used() {
    let store = Store::new(10);
    put(&store, "resourcequotas", quota(json!({"hard": {"pods": "2", "requests.cpu": "1"}})));
    put(&store, "pods", pod("one", requests("600m")));
    assert_eq!(refused(&store, "pods", &pod("two", requests("400m"))), "");
    assert_eq!(
        refused(&store, "pods", &pod("two", requests("500m"))),
        "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
    );
    put(&store, "pods", pod("two", requests("100m")));
    assert_eq!(
        refused(&store, "pods", &pod("three", requests("100m"))),
        "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    );
}

#[test]
fn pods_that_have_ended_use_nothing_but_their_count() {
    let store = Store::new(10);
    put(&store, "resourcequotas", quota(json!({"hard": {"pods": "1", "count/pods": "2"}})));
    let mut ended = pod("one", requests("1"));
    ended["status"]["phase"] = json!("Succeeded");
    put(&store, "pods", ended);
    assert_eq!(refused(&store, "pods", &pod("two", json!({}))), "");
    put(&store, "pods", pod("two", json!({})));
    let why = refused(&store, "pods", &pod("three", json!({})));
    assert_eq!(
        why,
        "exceeded quota: q, requested: count/pods=1,pods=1, used: count/pods=2,pods=1, limited: count/pods=2,pods=1"
    );
}

#[test]
fn containers_must_specify_what_a_quota_limits() {
    let store = Store::new(10);
    put(&store, "resourcequotas", quota(json!({"hard": {"limits.memory": "1Gi", "requests.cpu": "1"}})));
    assert_eq!(
        refused(&store, "pods", &pod("one", json!({}))),
        "failed quota: q: must specify limits.memory for: main; requests.cpu for: main"
    );
}

#[test]
fn scopes_select_the_pods_of_a_quota() {
    let store = Store::new(10);
    put(&store, "resourcequotas", quota(json!({"hard": {"pods": "0"}, "scopes": ["BestEffort"]})));
    assert!(refused(&store, "pods", &pod("one", json!({}))).starts_with("exceeded quota: q"));
    assert_eq!(refused(&store, "pods", &pod("one", requests("1"))), "");
    let selector = |operator, values| json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]});
    for (operator, values, is_refused) in [
        ("In", json!(["high"]), true),
        ("In", json!(["low"]), false),
        ("NotIn", json!(["low"]), true),
        ("Exists", json!([]), true),
        ("DoesNotExist", json!([]), false),
    ] {
        let spec = json!({"hard": {"pods": "0"}, "scopeSelector": selector(operator, values)});
        put(&store, "resourcequotas", quota(spec));
        let mut high = pod("one", json!({}));
        high["spec"]["priorityClassName"] = json!("high");
        assert_eq!(!refused(&store, "pods", &high).is_empty(), is_refused, "{operator}");
    }
}

#[test]
fn claims_count_by_storage_and_class_and_other_objects_by_number() {
    let store = Store::new(10);
    let hard = json!({
        "requests.storage": "3Gi",
        "fast.storageclass.storage.k8s.io/requests.storage": "1Gi",
        "configmaps": "0",
        "count/leases.coordination.k8s.io": "0",
    });
    put(&store, "resourcequotas", quota(json!({"hard": hard})));
    let claim = |class: &str, size: &str| {
        json!({
            "metadata": {"name": "c", "namespace": "a"},
            "spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}},
        })
    };
    assert_eq!(refused(&store, "persistentvolumeclaims", &claim("slow", "2Gi")), "");
    assert!(
        refused(&store, "persistentvolumeclaims", &claim("fast", "2Gi"))
            .contains("limited: fast.storageclass")
    );
    assert!(
        refused(&store, "persistentvolumeclaims", &claim("slow", "4Gi")).contains("requests.storage=4Gi")
    );
    let named = |kind| json!({"kind": kind, "metadata": {"name": "x", "namespace": "a"}});
    assert!(refused(&store, "configmaps", &named("ConfigMap")).contains("configmaps=1"));
    assert!(refused(&store, "leases", &named("Lease")).contains("count/leases.coordination.k8s.io=1"));
    assert_eq!(refused(&store, "secrets", &named("Secret")), "");
}

#[test]
fn update_counts_only_what_is_more_than_before() {
    let store = Store::new(10);
    put(&store, "resourcequotas", quota(json!({"hard": {"requests.cpu": "1"}})));
    let old = pod("one", requests("800m"));
    put(&store, "pods", old.clone());
    let resource = resources::stored("pods").unwrap();
    let refused =
        |new: &Value| store.read(|objects| refusal(resource, new, Some(&old), objects)).unwrap_or_default();
    assert_eq!(refused(&pod("one", requests("1"))), "");
    assert!(refused(&pod("one", requests("1100m"))).contains("requested: requests.cpu=300m"));
}

#[test]
fn status_shows_the_use_of_everything_that_is_limited() {
    let store = Store::new(10);
    let quota = quota(json!({"hard": {"pods": "4", "requests.memory": "1Gi", "secrets": "2"}}));
    put(&store, "pods", pod("one", requests("1")));
    put(&store, "pods", pod("two", requests("1")));
    let status = store.read(|objects| status(&quota, objects, "a"));
    assert_eq!(status["used"], json!({"pods": "2", "requests.memory": "128Mi", "secrets": "0"}));
    assert_eq!(status["hard"], quota["spec"]["hard"]);
}
