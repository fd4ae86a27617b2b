//! Results and errors of each kind of patch.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PatchKind, apply};

/// The patched object, or the status and message of the error.
fn outcome(kind: PatchKind, resource: &str, current: &Value, patch: &Value) -> String {
    match apply(kind, resource, current, patch) {
        Ok(value) => value.to_string(),
        Err(error) => format!("{} {error}", error.status()),
    }
}

fn check(kind: PatchKind, resource: &str, rows: &[(&str, &str, &str)]) {
    for (current, patch, expected) in rows {
        let current = serde_json::from_str(current).expect("current is JSON");
        let change = serde_json::from_str(patch).expect("patch is JSON");
        assert_eq!(outcome(kind, resource, &current, &change), *expected, "patch {patch} of {current}");
    }
}

#[test]
fn json_patch_operations_are_applied_in_order() {
    check(
        PatchKind::Json,
        "pods",
        &[
            (r#"{"a":1}"#, r#"[{"op":"add","path":"/b","value":2}]"#, r#"{"a":1,"b":2}"#),
            (r#"{"a":1}"#, r#"[{"op":"add","path":"/a","value":null}]"#, r#"{"a":null}"#),
            (r#"{"a":[1,3]}"#, r#"[{"op":"add","path":"/a/1","value":2}]"#, r#"{"a":[1,2,3]}"#),
            (r#"{"a":[1]}"#, r#"[{"op":"add","path":"/a/-","value":2}]"#, r#"{"a":[1,2]}"#),
            (r#"{"a":[1]}"#, r#"[{"op":"add","path":"/a/1","value":2}]"#, r#"{"a":[1,2]}"#),
            (r#"{"a":1}"#, r#"[{"op":"add","path":"","value":{"b":1}}]"#, r#"{"b":1}"#),
            (r#"{"a":[1,2]}"#, r#"[{"op":"remove","path":"/a/0"}]"#, r#"{"a":[2]}"#),
            (r#"{"a":1,"b":2}"#, r#"[{"op":"remove","path":"/a"}]"#, r#"{"b":2}"#),
            (r#"{"a":{"b":1}}"#, r#"[{"op":"replace","path":"/a/b","value":[]}]"#, r#"{"a":{"b":[]}}"#),
            (r#"{"a":1}"#, r#"[{"op":"move","from":"/a","path":"/b"}]"#, r#"{"b":1}"#),
            (
                r#"{"a":{"b":1}}"#,
                r#"[{"op":"copy","from":"/a","path":"/c"}]"#,
                r#"{"a":{"b":1},"c":{"b":1}}"#,
            ),
            (r#"{"a":1}"#, r#"[{"op":"test","path":"/a","value":1.0}]"#, r#"{"a":1}"#),
            (r#"{"a":1}"#, r#"[{"op":"test","path":"/b","value":null}]"#, r#"{"a":1}"#),
            (
                r#"{"a/b":{"m~n":1}}"#,
                r#"[{"op":"replace","path":"/a~1b/m~0n","value":2}]"#,
                r#"{"a/b":{"m~n":2}}"#,
            ),
            (r#"{"~1":1}"#, r#"[{"op":"remove","path":"/~01"}]"#, "{}"),
            (r#"{}"#, "[]", "{}"),
        ],
    );
}

#[test]
fn json_patch_that_does_not_apply_is_refused_with_422() {
    check(
        PatchKind::Json,
        "pods",
        &[
            (
                r#"{"a":1}"#,
                r#"[{"op":"test","path":"/a","value":2}]"#,
                "422 testing value /a failed: test failed",
            ),
            (
                "{}",
                r#"[{"op":"remove","path":"/a/b"}]"#,
                "422 remove operation does not apply: doc is missing path: \"/a/b\": missing value",
            ),
            (
                "{}",
                r#"[{"op":"replace","path":"/a","value":1}]"#,
                "422 replace operation does not apply: doc is missing path: \"/a\": missing value",
            ),
            (
                r#"{"a":[1]}"#,
                r#"[{"op":"add","path":"/a/01","value":1}]"#,
                "422 add operation does not apply: \"/a/01\": index out of bounds",
            ),
            (
                r#"{"a":[1]}"#,
                r#"[{"op":"remove","path":"/a/1"}]"#,
                "422 remove operation does not apply: \"/a/1\": index out of bounds",
            ),
            (
                r#"{"a":{}}"#,
                r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
                "422 move operation does not apply: /a/b is inside /a",
            ),
            ("{}", r#"[{"op":"drop","path":"/a"}]"#, "422 Unexpected kind: drop"),
            ("{}", r#"[{"op":"add","path":"a","value":1}]"#, "422 path \"a\" must begin with a slash"),
            ("{}", r#"[{"op":"add","path":"/a"}]"#, r#"422 operation {"op":"add","path":"/a"} has no value"#),
            (
                "{}",
                r#"{"a":1}"#,
                "400 error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch",
            ),
        ],
    );
}

#[test]
fn json_patch_limits_operations_and_copies() {
    let many = Value::Array(vec![json!({"op": "test", "path": "/a", "value": null}); 10_001]);
    let refusal = "413 The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(outcome(PatchKind::Json, "pods", &json!({}), &many), refusal);

    let doubling = Value::Array(vec![json!({"op": "copy", "from": "", "path": "/x"}); 100]);
    let refused = outcome(PatchKind::Json, "pods", &json!({"a": "x".repeat(1000)}), &doubling);
    assert!(refused.starts_with("413 Unable to complete the copy"), "{refused}");
}

#[test]
fn merge_patch_follows_the_examples_of_rfc_7386() {
    check(
        PatchKind::Merge,
        "anything",
        &[
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
            (
                "{}",
                "[1]",
                "400 error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
        ],
    );
}

#[test]
fn strategic_merge_merges_the_lists_of_a_pod_by_their_keys() {
    check(
        PatchKind::Strategic,
        "pods",
        &[
            (
                r#"{"spec":{"containers":[{"image":"i:1","name":"a"},{"name":"b"}]}}"#,
                r#"{"spec":{"containers":[{"image":"i:2","name":"a"}]}}"#,
                r#"{"spec":{"containers":[{"image":"i:2","name":"a"},{"name":"b"}]}}"#,
            ),
            // A new element comes first, because the patch contains no existing element.
            (
                r#"{"spec":{"containers":[{"name":"a"}]}}"#,
                r#"{"spec":{"containers":[{"name":"new"}]}}"#,
                r#"{"spec":{"containers":[{"name":"new"},{"name":"a"}]}}"#,
            ),
            (
                r#"{"spec":{"containers":[{"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"name":"a"}]}}"#,
                r#"{"spec":{"containers":[{"env":[{"name":"B","value":"3"}],"name":"a"}]}}"#,
                r#"{"spec":{"containers":[{"env":[{"name":"A","value":"1"},{"name":"B","value":"3"}],"name":"a"}]}}"#,
            ),
            (
                r#"{"spec":{"tolerations":[{"key":"a"}]}}"#,
                r#"{"spec":{"tolerations":[{"key":"b"}]}}"#,
                r#"{"spec":{"tolerations":[{"key":"b"}]}}"#,
            ),
            (
                r#"{"status":{"conditions":[{"status":"False","type":"Ready"},{"type":"Other"}]}}"#,
                r#"{"status":{"conditions":[{"status":"True","type":"Ready"}]}}"#,
                r#"{"status":{"conditions":[{"status":"True","type":"Ready"},{"type":"Other"}]}}"#,
            ),
            (
                r#"{"status":{"containerStatuses":[{"name":"a"},{"name":"b"}]}}"#,
                r#"{"status":{"containerStatuses":[{"name":"b"}]}}"#,
                r#"{"status":{"containerStatuses":[{"name":"b"}]}}"#,
            ),
            (
                r#"{"metadata":{"finalizers":["a","b"]}}"#,
                r#"{"metadata":{"finalizers":["b","c"]}}"#,
                r#"{"metadata":{"finalizers":["a","b","c"]}}"#,
            ),
            (
                r#"{"metadata":{"labels":{"a":"1","b":"2"}}}"#,
                r#"{"metadata":{"labels":{"a":null,"c":"3"}}}"#,
                r#"{"metadata":{"labels":{"b":"2","c":"3"}}}"#,
            ),
            ("{}", r#"{"metadata":{"labels":{"a":null,"b":"2"}}}"#, r#"{"metadata":{"labels":{"b":"2"}}}"#),
        ],
    );
}

#[test]
fn strategic_merge_of_other_core_types() {
    let node = r#"{"status":{"addresses":[{"address":"1","type":"InternalIP"}],"images":[{"names":["a"]}]}}"#;
    check(
        PatchKind::Strategic,
        "nodes/status",
        &[
            (
                node,
                r#"{"status":{"addresses":[{"address":"2","type":"InternalIP"}],"images":[]}}"#,
                r#"{"status":{"addresses":[{"address":"2","type":"InternalIP"}],"images":[]}}"#,
            ),
            (
                r#"{"spec":{"taints":[{"effect":"NoSchedule","key":"a"}]}}"#,
                r#"{"spec":{"taints":[{"effect":"NoSchedule","key":"b"}]}}"#,
                r#"{"spec":{"taints":[{"effect":"NoSchedule","key":"b"}]}}"#,
            ),
            (
                r#"{"spec":{"podCIDRs":["10.0.0.0/24"]}}"#,
                r#"{"spec":{"podCIDRs":["fd00::/64"]}}"#,
                r#"{"spec":{"podCIDRs":["fd00::/64","10.0.0.0/24"]}}"#,
            ),
        ],
    );
    check(
        PatchKind::Strategic,
        "services",
        &[(
            r#"{"spec":{"ports":[{"name":"x","port":80}]}}"#,
            r#"{"spec":{"ports":[{"port":80,"targetPort":8080}]}}"#,
            r#"{"spec":{"ports":[{"name":"x","port":80,"targetPort":8080}]}}"#,
        )],
    );
    check(
        PatchKind::Strategic,
        "csinodes",
        &[(
            r#"{"spec":{"drivers":[{"name":"a"}]}}"#,
            r#"{"spec":{"drivers":[{"$patch":"delete","name":"a"}]}}"#,
            r#"{"spec":{"drivers":[]}}"#,
        )],
    );
}

#[test]
fn strategic_merge_applies_directives() {
    check(
        PatchKind::Strategic,
        "pods",
        &[
            (
                r#"{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}"#,
                r#"{"spec":{"containers":[{"$patch":"delete","name":"a"}]}}"#,
                r#"{"spec":{"containers":[{"name":"b"}]}}"#,
            ),
            (
                r#"{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}"#,
                r#"{"spec":{"containers":[{"name":"c"},{"$patch":"replace"}]}}"#,
                r#"{"spec":{"containers":[{"name":"c"}]}}"#,
            ),
            (
                r#"{"metadata":{"labels":{"a":"1"}}}"#,
                r#"{"metadata":{"labels":{"$patch":"replace","b":"2"}}}"#,
                r#"{"metadata":{"labels":{"b":"2"}}}"#,
            ),
            (
                r#"{"metadata":{"labels":{"a":"1"}}}"#,
                r#"{"metadata":{"labels":{"$patch":"delete"}}}"#,
                r#"{"metadata":{"labels":{}}}"#,
            ),
            (
                r#"{"metadata":{"finalizers":["a","b"]}}"#,
                r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}"#,
                r#"{"metadata":{"finalizers":["b"]}}"#,
            ),
            (
                r#"{"spec":{"volumes":[{"emptyDir":{},"name":"v"}]}}"#,
                r#"{"spec":{"volumes":[{"$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"},"name":"v"}]}}"#,
                r#"{"spec":{"volumes":[{"hostPath":{"path":"/x"},"name":"v"}]}}"#,
            ),
            (
                r#"{"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}}"#,
                r#"{"spec":{"$setElementOrder/containers":[{"name":"c"},{"name":"a"}],"containers":[{"image":"i","name":"c"}]}}"#,
                r#"{"spec":{"containers":[{"name":"b"},{"image":"i","name":"c"},{"name":"a"}]}}"#,
            ),
            (
                r#"{"metadata":{"finalizers":["a","b"]}}"#,
                r#"{"metadata":{"$setElementOrder/finalizers":["b","a"]}}"#,
                r#"{"metadata":{"finalizers":["b","a"]}}"#,
            ),
            // Directives without a counterpart in the object are dropped.
            ("{}", r#"{"metadata":{"labels":{"$patch":"replace","a":"1"}}}"#, r#"{"metadata":{}}"#),
            (
                "{}",
                r#"{"spec":{"containers":[{"$patch":"delete","name":"a"},{"name":"b"}],"$setElementOrder/containers":[{"name":"b"}]}}"#,
                r#"{"spec":{"containers":[{"name":"b"}]}}"#,
            ),
        ],
    );
}

#[test]
fn strategic_merge_refuses_malformed_patches() {
    let pod = r#"{"spec":{"containers":[{"name":"a"}]}}"#;
    check(
        PatchKind::Strategic,
        "pods",
        &[
            (
                pod,
                r#"{"spec":{"containers":[{"image":"i"}]}}"#,
                "500 map: map[image:i] does not contain declared merge key: name",
            ),
            (
                pod,
                r#"{"spec":{"containers":[{"$patch":"delete"}]}}"#,
                "500 map: map[$patch:delete] does not contain declared merge key: name",
            ),
            (pod, r#"{"spec":{"$patch":"swap"}}"#, "500 unknown patch type: swap in map: map[$patch:swap]"),
            (pod, r#"{"spec":{"$retainKeys":["a"],"b":1}}"#, "400 invalid patch format of retainKeys"),
            (
                pod,
                r#"{"spec":{"containers":[{"$patch":"merge","name":"a"}]}}"#,
                "500 merging lists cannot yet be specified in the patch",
            ),
            (
                pod,
                r#"{"spec":{"$patch":"merge"}}"#,
                "500 unknown patch type: merge in map: map[$patch:merge]",
            ),
            (pod, r#"{"spec":{"$retainKeys":1}}"#, "400 invalid patch format of retainKeys"),
            (
                r#"{"metadata":{"finalizers":["a"]}}"#,
                r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":1}}"#,
                "400 invalid patch format of primitive list",
            ),
            (
                pod,
                r#"{"spec":{"$setElementOrder/containers":1}}"#,
                "500 expected a []interface {}, but received a int64",
            ),
            (
                pod,
                r#"{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a"},{"name":"b"}]}}"#,
                "500 The order in patch list:\n[map[name:a] map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:b] map[name:a]]\n",
            ),
        ],
    );
    let refusal = outcome(PatchKind::Strategic, "widgets", &json!({}), &json!({}));
    assert!(refusal.starts_with("415 the body of the request was in an unknown format"), "{refusal}");
}

#[test]
fn media_type_selects_the_kind_of_patch() {
    let kind = |text| PatchKind::from_media_type(text);
    assert_eq!(kind("application/json-patch+json"), Some(PatchKind::Json));
    assert_eq!(kind("application/merge-patch+json; charset=utf-8"), Some(PatchKind::Merge));
    assert_eq!(kind("application/strategic-merge-patch+json"), Some(PatchKind::Strategic));
    assert_eq!(kind("application/json"), None);
}

/// JSON without nulls, which a merge patch cannot write.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..9i64).prop_map(Value::from)];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[a-d]", tree(), 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

/// The merge patch that leads from one object to another, as RFC 7386 describes it.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = to.iter().filter(|(key, value)| from.get(*key) != Some(*value));
    let changed = changed
        .map(|(key, value)| (key.clone(), from.get(key).map_or(value.clone(), |old| difference(old, value))));
    Value::Object(gone.chain(changed).collect())
}

fn containers() -> impl Strategy<Value = Value> {
    let names = proptest::sample::subsequence(vec!["a", "b", "c", "d"], 0..=4).prop_shuffle();
    (names, 0..9i64).prop_map(|(names, image)| {
        let all: Vec<Value> = names.into_iter().map(|name| json!({"name": name, "image": image})).collect();
        json!({"spec": {"containers": all}, "metadata": {"finalizers": ["x"]}})
    })
}

proptest! {
    #[test]
    fn merging_a_difference_gives_the_target(from in object(), to in object()) {
        let patch = difference(&from, &to);
        prop_assert_eq!(apply(PatchKind::Merge, "pods", &from, &patch), Ok(to));
    }

    #[test]
    fn merging_twice_is_merging_once(from in object(), patch in object()) {
        let once = apply(PatchKind::Merge, "pods", &from, &patch).expect("a map merges");
        prop_assert_eq!(apply(PatchKind::Merge, "pods", &once, &patch), Ok(once));
    }

    #[test]
    fn strategic_merge_is_idempotent(from in containers(), patch in containers()) {
        let once = apply(PatchKind::Strategic, "pods", &from, &patch).expect("the keys exist");
        prop_assert_eq!(apply(PatchKind::Strategic, "pods", &once, &patch), Ok(once));
    }

    #[test]
    fn strategic_merge_loses_no_element(from in containers(), patch in containers()) {
        let merged = apply(PatchKind::Strategic, "pods", &from, &patch).expect("the keys exist");
        let names = |object: &Value| -> std::collections::BTreeSet<String> {
            let list = object["spec"]["containers"].as_array().into_iter().flatten();
            list.map(|container| container["name"].to_string()).collect()
        };
        let expected: std::collections::BTreeSet<_> = names(&from).union(&names(&patch)).cloned().collect();
        prop_assert_eq!(names(&merged), expected);
        prop_assert_eq!(merged["spec"]["containers"].as_array().map_or(0, Vec::len), names(&merged).len());
    }

    #[test]
    fn no_operation_panics(path in "(/(0|1|-|~|~0|~1|a|01|99999999999999999999)){0,3}",
                           from in "(/(0|a|-)){0,2}",
                           op in "add|remove|replace|move|copy|test|x",
                           current in tree()) {
        let patch = json!([{"op": op, "path": path, "from": from, "value": 1}]);
        let _ = apply(PatchKind::Json, "pods", &current, &patch);
    }
}
