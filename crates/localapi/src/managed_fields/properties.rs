//! Invariants of any sequence of applies and updates of pods.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::compare::compare;
use super::entries::Entries;
use super::schema::Type;
use super::{Applied, Refused, Writer, apply, track};

#[derive(Clone, Debug)]
enum Request {
    Apply { manager: &'static str, configuration: Value, force: bool },
    Update { manager: &'static str, object: Value },
}

fn container() -> impl Strategy<Value = Value> {
    let env = subsequence(vec!["A", "B", "C"], 0..=3).prop_shuffle();
    let image = select(vec!["", "1", "2"]);
    (env, image).prop_map(|(env, image)| {
        let env: Vec<Value> = env.into_iter().map(|name| json!({"name": name})).collect();
        let mut container = json!({});
        if !env.is_empty() {
            container["env"] = json!(env);
        }
        if !image.is_empty() {
            container["image"] = json!(image);
        }
        container
    })
}

/// A pod without empty maps and lists, or with some.
fn pod() -> impl Strategy<Value = Value> {
    let labels = btree_map(select(vec!["x", "y", "z"]), select(vec!["1", "2"]), 0..3);
    let finalizers = subsequence(vec!["a", "b", "c", "d"], 0..=4).prop_shuffle();
    let containers = btree_map(select(vec!["c", "d", "e"]), container(), 0..3);
    let selector = btree_map(select(vec!["s", "t"]), select(vec!["1", "2"]), 0..2);
    (labels, finalizers, containers, selector).prop_map(|(labels, finalizers, containers, selector)| {
        let containers: Vec<Value> = containers
            .into_iter()
            .map(|(name, mut container)| {
                container["name"] = json!(name);
                container
            })
            .collect();
        let mut pod = json!({"spec": {"nodeSelector": selector}});
        if !labels.is_empty() {
            pod["metadata"]["labels"] = json!(labels);
        }
        if !finalizers.is_empty() {
            pod["metadata"]["finalizers"] = json!(finalizers);
        }
        if !containers.is_empty() {
            pod["spec"]["containers"] = json!(containers);
        }
        pod
    })
}

fn request() -> impl Strategy<Value = Request> {
    let manager = || select(vec!["one", "two", "three"]);
    prop_oneof![
        (manager(), pod(), any::<bool>()).prop_map(|(manager, configuration, force)| Request::Apply {
            manager,
            configuration,
            force
        }),
        (manager(), pod()).prop_map(|(manager, object)| Request::Update { manager, object }),
    ]
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, api_version: "v1", subresource: "", time: "2026-01-01T00:00:00Z" }
}

fn applied(live: Option<&Value>, manager: &str, pod: &Value, force: bool) -> Result<Value, Refused> {
    let Applied { mut object, entries } = apply("pods", live, pod, &writer(manager), force)?;
    object["metadata"]["managedFields"] = entries;
    Ok(object)
}

fn updated(live: Option<&Value>, manager: &str, mut new: Value) -> Value {
    if let Some(live) = live {
        new["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
    }
    if let Some(entries) = track("pods", live, &new, &writer(manager)) {
        new["metadata"]["managedFields"] = entries;
    }
    new
}

/// Every path of an entry is in the object.
fn check_owned_paths_exist(object: &Value) {
    let all = compare(Type::of_resource("pods"), &json!({}), object).added;
    for (owner, entry) in Entries::of(object).iter() {
        let mut missing = entry.fields.clone();
        missing.subtract(&all);
        assert!(missing.is_empty(), "{owner:?} owns {:?}, which is not in {object}", missing.paths());
    }
}

/// Everything of a configuration is in the object that it was applied to.
fn check_contains(object: &Value, configuration: &Value) {
    let difference = compare(Type::of_resource("pods"), configuration, object);
    assert!(difference.removed.is_empty(), "{:?} of {configuration} in {object}", difference.removed.paths());
    assert!(
        difference.modified.is_empty(),
        "{:?} of {configuration} in {object}",
        difference.modified.paths()
    );
}

proptest! {
    #[test]
    fn owned_paths_exist_and_a_repeated_apply_changes_nothing(requests in vec(request(), 1..8)) {
        let mut stored: Option<Value> = None;
        for request in requests {
            match request {
                Request::Update { manager, object } => {
                    stored = Some(updated(stored.as_ref(), manager, object));
                }
                Request::Apply { manager, configuration, force } => {
                    match applied(stored.as_ref(), manager, &configuration, force) {
                        Ok(object) => {
                            check_contains(&object, &configuration);
                            let again = applied(Some(&object), manager, &configuration, false);
                            prop_assert_eq!(again.as_ref(), Ok(&object));
                            stored = Some(object);
                        }
                        Err(Refused::Conflicts(conflicts)) => prop_assert!(!force && !conflicts.is_empty()),
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }
            check_owned_paths_exist(stored.as_ref().unwrap_or(&Value::Null));
        }
    }
}
