//! Sequences of requests and the owners after them. The values are those of the tables of structured-merge-diff, in fields of the served
//! kinds.

use serde_json::{Value, json};

use super::{Applied, Conflict, Refused, Writer, apply, track};

/// One object and its entries, as a server stores them.
struct Stored {
    plural: &'static str,
    object: Option<Value>,
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, api_version: "v1", subresource: "", time: "2026-01-01T00:00:00Z" }
}

impl Stored {
    fn new(plural: &'static str) -> Self {
        Self { plural, object: None }
    }

    fn try_apply(&mut self, writer: &Writer<'_>, configuration: &Value, force: bool) -> Result<(), Refused> {
        let Applied { mut object, entries } =
            apply(self.plural, self.object.as_ref(), configuration, writer, force)?;
        object["metadata"]["managedFields"] = entries;
        self.object = Some(object);
        Ok(())
    }

    fn apply(&mut self, manager: &str, configuration: Value) {
        self.try_apply(&writer(manager), &configuration, false).unwrap();
    }

    fn force(&mut self, manager: &str, configuration: Value) {
        self.try_apply(&writer(manager), &configuration, true).unwrap();
    }

    fn conflicts(&mut self, manager: &str, configuration: Value) -> Vec<(String, String)> {
        match self.try_apply(&writer(manager), &configuration, false) {
            Err(Refused::Conflicts(conflicts)) => {
                conflicts.into_iter().map(|Conflict { manager, path }| (manager, path)).collect()
            }
            other => panic!("expected conflicts, got {other:?}"),
        }
    }

    /// A PUT.
    fn update(&mut self, manager: &str, mut new: Value) {
        let current = self.object.take();
        if let Some(current) = &current {
            new["metadata"]["managedFields"] = current["metadata"]["managedFields"].clone();
        }
        if let Some(entries) = track(self.plural, current.as_ref(), &new, &writer(manager)) {
            new["metadata"]["managedFields"] = entries;
        }
        self.object = Some(new);
    }

    /// The object without its entries.
    fn bare(&self) -> Value {
        let mut object = self.object.clone().unwrap();
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        if metadata.is_empty() {
            object.as_object_mut().unwrap().remove("metadata");
        }
        object
    }

    /// The fields of each manager.
    fn owners(&self) -> Value {
        let entries = self.object.as_ref().unwrap()["metadata"]["managedFields"].as_array().cloned();
        let owner = |entry: Value| (entry["manager"].as_str().unwrap().to_owned(), entry["fieldsV1"].clone());
        Value::Object(entries.unwrap_or_default().into_iter().map(owner).collect())
    }
}

fn data(data: Value) -> Value {
    json!({"data": data})
}

fn containers(containers: Value) -> Value {
    json!({"spec": {"containers": containers}})
}

/// The paths of containers that have only a name.
fn named(names: &[&str]) -> Value {
    let container = |name: &&str| (format!("k:{{\"name\":\"{name}\"}}"), json!({".": {}, "f:name": {}}));
    json!({"f:spec": {"f:containers": Value::Object(names.iter().map(container).collect())}})
}

#[test]
fn apply_owns_what_it_applies_and_removes_what_it_applies_no_longer() {
    let mut stored = Stored::new("configmaps");
    stored.apply("default", data(json!({"numeric": "1", "string": "string"})));
    stored.apply("default", data(json!({"numeric": "2", "string": "string", "bool": "false"})));
    assert_eq!(stored.bare(), data(json!({"numeric": "2", "string": "string", "bool": "false"})));
    let fields = json!({"f:data": {"f:bool": {}, "f:numeric": {}, "f:string": {}}});
    assert_eq!(stored.owners(), json!({"default": fields}));
    stored.apply("default", data(json!({"string": "new string"})));
    assert_eq!(stored.bare(), data(json!({"string": "new string"})));
    assert_eq!(stored.owners(), json!({"default": {"f:data": {"f:string": {}}}}));
}

#[test]
fn update_of_other_fields_is_no_conflict() {
    let mut stored = Stored::new("configmaps");
    stored.apply("default", data(json!({"numeric": "1", "string": "string"})));
    stored.update("controller", data(json!({"numeric": "1", "string": "string", "bool": "true"})));
    stored.apply("default", data(json!({"numeric": "2", "string": "string"})));
    assert_eq!(stored.bare(), data(json!({"numeric": "2", "string": "string", "bool": "true"})));
    let expected = json!({
        "default": {"f:data": {"f:numeric": {}, "f:string": {}}},
        "controller": {"f:data": {"f:bool": {}}},
    });
    assert_eq!(stored.owners(), expected);
}

#[test]
fn change_of_a_field_of_another_manager_is_a_conflict_unless_it_is_forced() {
    let mut stored = Stored::new("configmaps");
    stored.apply("default", data(json!({"numeric": "1", "string": "string"})));
    stored.update("controller", data(json!({"numeric": "1", "string": "controller string", "bool": "true"})));
    let configuration = || data(json!({"numeric": "2", "string": "user string"}));
    let conflicts = stored.conflicts("default", configuration());
    assert_eq!(conflicts, [(r#""controller" using v1"#.to_owned(), ".data.string".to_owned())]);
    stored.force("default", configuration());
    assert_eq!(stored.bare(), data(json!({"numeric": "2", "string": "user string", "bool": "true"})));
    let expected = json!({
        "default": {"f:data": {"f:numeric": {}, "f:string": {}}},
        "controller": {"f:data": {"f:bool": {}}},
    });
    assert_eq!(stored.owners(), expected);
}

#[test]
fn same_value_is_owned_by_both_managers() {
    let mut stored = Stored::new("configmaps");
    stored.apply("one", data(json!({"a": "0"})));
    stored.apply("two", data(json!({"a": "0"})));
    let fields = json!({"f:data": {"f:a": {}}});
    assert_eq!(stored.owners(), json!({"one": fields, "two": fields}));
    assert_eq!(
        stored.conflicts("two", data(json!({"a": "1"}))),
        [("\"one\"".to_owned(), ".data.a".to_owned())]
    );
    // A field stays until its last manager does not apply it any more.
    stored.apply("one", json!({}));
    assert_eq!(stored.bare(), data(json!({"a": "0"})));
    stored.apply("two", json!({}));
    assert_eq!(stored.bare(), json!({}));
    assert_eq!(stored.owners(), json!({}));
}

#[test]
fn field_that_an_update_took_stays_when_it_is_applied_no_longer() {
    let mut stored = Stored::new("configmaps");
    stored.apply("default", data(json!({"numeric": "2"})));
    stored.update("controller", data(json!({"numeric": "1"})));
    stored.apply("default", json!({}));
    assert_eq!(stored.bare(), data(json!({"numeric": "1"})));
    assert_eq!(stored.owners(), json!({"controller": {"f:data": {"f:numeric": {}}}}));
}

#[test]
fn list_elements_of_several_managers_are_kept_apart() {
    let mut stored = Stored::new("pods");
    stored.apply("apply-one", containers(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}])));
    stored.apply("apply-two", containers(json!([{"name": "c"}, {"name": "d"}])));
    stored.apply("apply-one", containers(json!([{"name": "a"}])));
    assert_eq!(stored.bare(), containers(json!([{"name": "a"}, {"name": "c"}, {"name": "d"}])));
    assert_eq!(stored.owners(), json!({"apply-one": named(&["a"]), "apply-two": named(&["c", "d"])}));
}

#[test]
fn changed_field_of_a_list_element_is_a_conflict_with_its_path() {
    let mut stored = Stored::new("pods");
    stored.apply("apply-one", containers(json!([{"name": "a", "image": "0"}])));
    let conflicts = stored.conflicts("apply-two", containers(json!([{"name": "a", "image": "1"}])));
    assert_eq!(conflicts, [("\"apply-one\"".to_owned(), ".spec.containers[name=\"a\"].image".to_owned())]);
    assert_eq!(stored.bare(), containers(json!([{"name": "a", "image": "0"}])));
}

fn env(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

fn owned_env(container: &str, names: &[&str], is_own: bool) -> Value {
    let variable = |name: &&str| (format!("k:{{\"name\":\"{name}\"}}"), json!({".": {}, "f:name": {}}));
    let mut fields = json!({"f:env": Value::Object(names.iter().map(variable).collect())});
    if is_own {
        fields["."] = json!({});
        fields["f:name"] = json!({});
    }
    json!({"f:spec": {"f:containers": {format!("k:{{\"name\":\"{container}\"}}"): fields}}})
}

#[test]
fn element_stays_while_another_applier_has_it_with_the_parts_of_updates() {
    let mut stored = Stored::new("pods");
    stored.apply("apply-one", containers(json!([{"name": "a"}, {"name": "b", "env": env(&["c"])}])));
    stored.apply("apply-two", containers(json!([{"name": "b", "env": env(&["d"])}])));
    let updated = containers(json!([{"name": "a"}, {"name": "b", "env": env(&["c", "d", "e"])}]));
    stored.update("controller", updated);
    stored.apply("apply-one", containers(json!([{"name": "a"}])));
    let expected = containers(json!([{"name": "a"}, {"name": "b", "env": env(&["d", "e"])}]));
    assert_eq!(stored.bare(), expected);
    let expected = json!({
        "apply-one": named(&["a"]),
        "apply-two": owned_env("b", &["d"], true),
        "controller": owned_env("b", &["e"], false),
    });
    assert_eq!(stored.owners(), expected);
}

#[test]
fn element_without_another_applier_is_removed_with_the_parts_of_updates() {
    let mut stored = Stored::new("pods");
    stored.apply("apply-one", containers(json!([{"name": "a"}, {"name": "b", "env": env(&["c"])}])));
    stored.apply("apply-two", containers(json!([{"name": "a", "env": env(&["b"])}])));
    let updated = json!([{"name": "a", "env": env(&["b"])}, {"name": "b", "env": env(&["c", "d"])}]);
    stored.update("controller", containers(updated));
    stored.apply("apply-one", containers(json!([{"name": "a"}])));
    assert_eq!(stored.bare(), containers(json!([{"name": "a", "env": env(&["b"])}])));
    let expected = json!({"apply-one": named(&["a"]), "apply-two": owned_env("a", &["b"], true)});
    assert_eq!(stored.owners(), expected);
}

#[test]
fn set_elements_have_owners_of_their_own() {
    let finalizers = |list: &[&str]| json!({"metadata": {"finalizers": list}});
    let mut stored = Stored::new("configmaps");
    stored.apply("default", finalizers(&["a", "c"]));
    stored.update("controller", finalizers(&["a", "b", "c", "d"]));
    stored.apply("default", finalizers(&["a", "aprime", "c", "cprime"]));
    assert_eq!(stored.bare(), finalizers(&["a", "b", "aprime", "c", "d", "cprime"]));
    stored.apply("default", finalizers(&["c"]));
    assert_eq!(stored.bare(), finalizers(&["b", "c", "d"]));
    let expected = json!({
        "default": {"f:metadata": {"f:finalizers": {"v:\"c\"": {}}}},
        "controller": {"f:metadata": {"f:finalizers": {"v:\"b\"": {}, "v:\"d\"": {}}}},
    });
    assert_eq!(stored.owners(), expected);
}

#[test]
fn struct_is_removed_with_its_last_applied_field_and_stays_with_a_field_of_an_update() {
    let context = |fields: Value| json!({"spec": {"securityContext": fields}});
    let mut stored = Stored::new("pods");
    stored.apply("default", context(json!({"runAsUser": 1})));
    stored.apply("default", json!({}));
    assert_eq!(stored.bare(), json!({}));
    stored.apply("default", context(json!({"runAsUser": 1})));
    stored.update("controller", context(json!({"runAsUser": 1, "runAsGroup": 2})));
    stored.apply("default", json!({}));
    assert_eq!(stored.bare(), context(json!({"runAsGroup": 2})));
}

#[test]
fn atomic_values_are_replaced_as_a_whole() {
    let selector = |selector: Value| json!({"spec": {"selector": selector}});
    let mut stored = Stored::new("services");
    stored.apply("one", selector(json!({"app": "a", "tier": "b"})));
    assert_eq!(stored.owners(), json!({"one": {"f:spec": {"f:selector": {}}}}));
    let conflicts = stored.conflicts("two", selector(json!({"app": "a"})));
    assert_eq!(conflicts, [("\"one\"".to_owned(), ".spec.selector".to_owned())]);
    stored.force("two", selector(json!({"app": "a"})));
    assert_eq!(stored.bare(), selector(json!({"app": "a"})));
    assert_eq!(stored.owners(), json!({"two": {"f:spec": {"f:selector": {}}}}));
}

#[test]
fn creator_owns_what_differs_from_an_empty_object() {
    let mut stored = Stored::new("pods");
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}], "restartPolicy": "Always"},
        "status": {},
    });
    stored.update("kubectl-create", pod);
    let expected = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}},
            "f:restartPolicy": {},
        },
    });
    assert_eq!(stored.owners(), json!({"kubectl-create": expected}));
}

#[test]
fn update_takes_changed_fields_and_removes_owners_of_removed_ones() {
    let mut stored = Stored::new("configmaps");
    stored.update("one", data(json!({"a": "1", "b": "1", "c": "1"})));
    stored.update("two", data(json!({"a": "1", "b": "2"})));
    let expected = json!({
        "one": {"f:data": {".": {}, "f:a": {}}},
        "two": {"f:data": {"f:b": {}}},
    });
    assert_eq!(stored.owners(), expected);
    let before = stored.object.clone();
    stored.update("three", data(json!({"a": "1", "b": "2"})));
    assert_eq!(stored.object, before);
}

#[test]
fn first_apply_makes_an_entry_for_everything_before_it() {
    let mut stored = Stored::new("configmaps");
    stored.object = Some(json!({"metadata": {"name": "m"}, "data": {"a": "1", "b": "1"}}));
    let conflicts = stored.conflicts("kubectl", data(json!({"a": "2"})));
    assert_eq!(conflicts, [(r#""before-first-apply" using v1"#.to_owned(), ".data.a".to_owned())]);
    stored.force("kubectl", data(json!({"a": "2"})));
    let expected = json!({
        "before-first-apply": {"f:data": {".": {}, "f:b": {}}},
        "kubectl": {"f:data": {"f:a": {}}},
    });
    assert_eq!(stored.owners(), expected);
}

#[test]
fn unchanged_apply_keeps_the_time_of_its_entry() {
    let mut stored = Stored::new("configmaps");
    stored.apply("default", data(json!({"a": "1"})));
    let before = stored.object.clone();
    let later = Writer { time: "2027-01-01T00:00:00Z", ..writer("default") };
    stored.try_apply(&later, &data(json!({"a": "1"})), false).unwrap();
    assert_eq!(stored.object, before);
    stored.try_apply(&later, &data(json!({"a": "2"})), false).unwrap();
    assert_eq!(stored.object.unwrap()["metadata"]["managedFields"][0]["time"], "2027-01-01T00:00:00Z");
}

#[test]
fn entries_of_a_subresource_are_other_entries() {
    let mut stored = Stored::new("pods");
    stored.apply("one", containers(json!([{"name": "a"}])));
    let status = Writer { subresource: "status", ..writer("one") };
    stored.try_apply(&status, &json!({"status": {"phase": "Running"}}), false).unwrap();
    let entries = stored.object.clone().unwrap()["metadata"]["managedFields"].clone();
    let shown: Vec<(&Value, &Value)> =
        entries.as_array().unwrap().iter().map(|entry| (&entry["subresource"], &entry["fieldsV1"])).collect();
    let phase = json!({"f:status": {"f:phase": {}}});
    assert_eq!(shown, [(&Value::Null, &named(&["a"])), (&json!("status"), &phase)]);
    let conflicts = stored.conflicts("two", json!({"status": {"phase": "Failed"}}));
    assert_eq!(conflicts, [(r#""one" with subresource "status""#.to_owned(), ".status.phase".to_owned())]);
}

#[test]
fn kubectl_takes_over_what_its_client_side_apply_applied() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "1"}}).to_string();
    let object = |b: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"annotations": {annotation: last}},
            "data": {"a": "1", "b": b},
        })
    };
    let mut stored = Stored::new("configmaps");
    stored.update("kubectl-client-side-apply", object("1"));
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "2", "b": "1"}});
    assert_eq!(stored.conflicts("other", applied.clone()).len(), 1);
    stored.apply("kubectl", applied.clone());
    let text = stored.bare()["metadata"]["annotations"][annotation].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), applied);
    // A value that was changed afterwards is a conflict.
    let mut stored = Stored::new("configmaps");
    stored.update("kubectl-client-side-apply", object("1"));
    stored.update("editor", object("3"));
    let conflicts = stored.conflicts("kubectl", data(json!({"a": "2", "b": "4"})));
    assert_eq!(conflicts, [(r#""editor" using v1"#.to_owned(), ".data.b".to_owned())]);
}

#[test]
fn configuration_with_unknown_fields_is_refused() {
    let mut stored = Stored::new("configmaps");
    let refused = stored.try_apply(&writer("a"), &json!({"spec": 1}), false).unwrap_err();
    assert_eq!(refused, Refused::Malformed(".spec: field not declared in schema".to_owned()));
}

#[test]
fn entries_of_too_many_managers_are_refused() {
    let mut stored = Stored::new("configmaps");
    let values: serde_json::Map<String, Value> =
        (0..40_000).map(|number| (format!("a-long-key-of-many-{number}"), json!("1"))).collect();
    let configuration = data(Value::Object(values));
    stored.apply("one", configuration.clone());
    assert_eq!(stored.try_apply(&writer("two"), &configuration, false), Err(Refused::TooManyEntries));
}
