//! Which roles and bindings are refused, and with which messages: the cases of `pkg/apis/rbac/validation/validation_test.go`.

use serde_json::{Value, json};

use super::super::{FieldError, check, decode};
use crate::defaults;

/// Each error on a line.
fn refusals(resource: &str, object: &Value, old: Option<&Value>) -> String {
    let mut object = object.clone();
    defaults::apply(resource, &mut object);
    let errors = check(resource, &object, old);
    errors.iter().map(FieldError::to_string).collect::<Vec<_>>().join("\n")
}

fn metadata(resource: &str) -> Value {
    if resource.starts_with("cluster") {
        json!({"name": "x"})
    } else {
        json!({"name": "x", "namespace": "n"})
    }
}

fn role(resource: &str, rules: Value) -> String {
    refusals(resource, &json!({"metadata": metadata(resource), "rules": rules}), None)
}

fn binding(resource: &str, role: Value, subjects: Value) -> String {
    refusals(resource, &json!({"metadata": metadata(resource), "roleRef": role, "subjects": subjects}), None)
}

#[test]
fn rules_need_verbs_and_either_resources_or_urls() {
    for (resource, rule, expected) in [
        ("roles", json!({"verbs": ["get"], "apiGroups": ["v1"], "resources": ["pods"]}), ""),
        (
            "roles",
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}),
            "",
        ),
        ("clusterroles", json!({"verbs": ["get"], "nonResourceURLs": ["/*"]}), ""),
        (
            "roles",
            json!({"verbs": ["get"], "nonResourceURLs": ["/*"]}),
            "rules[0].nonResourceURLs: Invalid value: [\"/*\"]: namespaced rules cannot apply to non-resource URLs",
        ),
        (
            "clusterroles",
            json!({"verbs": [], "nonResourceURLs": ["/*"]}),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
        (
            "clusterroles",
            json!({"verbs": ["get"], "nonResourceURLs": ["/*"], "resourceNames": ["a"]}),
            "rules[0].nonResourceURLs: Invalid value: [\"/*\"]: rules cannot apply to both regular resources and non-resource URLs",
        ),
        (
            "roles",
            json!({"verbs": ["get"], "resources": ["pods"]}),
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        ),
        (
            "roles",
            json!({"verbs": ["get"], "apiGroups": ["v1"]}),
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ),
    ] {
        assert_eq!(role(resource, json!([rule])), expected, "{resource} {rule}");
    }
    assert_eq!(role("roles", Value::Null), "");
    let many = vec![json!({"verbs": ["get"]}); 1001];
    assert_eq!(role("roles", json!(many)), "rules: Too many: 1001: must have at most 1000 items");
}

#[test]
fn names_of_roles_and_bindings_may_have_colons() {
    for resource in ["roles", "clusterroles", "rolebindings", "clusterrolebindings"] {
        let named = |name: &str| {
            let mut object = json!({"metadata": metadata(resource)});
            if resource.ends_with("bindings") {
                object["roleRef"] = json!({"kind": "ClusterRole", "name": "system:A_b"});
            }
            object["metadata"]["name"] = json!(name);
            refusals(resource, &object, None)
        };
        assert_eq!(named("system:A_b"), "", "{resource}");
        let refused = named("a/b");
        assert_eq!(refused, "metadata.name: Invalid value: \"a/b\": may not contain '/'", "{resource}");
    }
}

#[test]
fn references_and_subjects_of_bindings_are_validated() {
    let valid = || json!({"kind": "ClusterRole", "name": "r"});
    let subjects = json!([
        {"kind": "ServiceAccount", "name": "a", "namespace": "n"},
        {"kind": "User", "name": "valid@username"},
        {"kind": "Group", "name": "valid@groupname"},
    ]);
    for resource in ["rolebindings", "clusterrolebindings"] {
        assert_eq!(binding(resource, valid(), subjects.clone()), "", "{resource}");
        let group = json!({"apiGroup": "rbac.GroupName", "kind": "ClusterRole", "name": "r"});
        let expected = "roleRef.apiGroup: Unsupported value: \"rbac.GroupName\": supported values: \"rbac.authorization.k8s.io\"";
        assert_eq!(binding(resource, group, Value::Null), expected);
        let no_name = json!({"kind": "ClusterRole"});
        assert_eq!(binding(resource, no_name, Value::Null), "roleRef.name: Required value");
    }
    for (subject, expected) in [
        (
            json!({"name": "s"}),
            "subjects[0].kind: Unsupported value: \"\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
        ),
        (json!({"kind": "ServiceAccount", "namespace": "foo"}), "subjects[0].name: Required value"),
        (json!({"kind": "ServiceAccount", "name": "good"}), "subjects[0].namespace: Required value"),
        (
            json!({"kind": "User", "name": ""}),
            "subjects[0].name: Required value\nsubjects[0].name: Invalid value: \"\": user name cannot be empty",
        ),
        (
            json!({"kind": "Group", "name": "g", "apiGroup": "other"}),
            "subjects[0].apiGroup: Unsupported value: \"other\": supported values: \"rbac.authorization.k8s.io\"",
        ),
        (
            json!({"kind": "ServiceAccount", "name": "a", "namespace": "n", "apiGroup": "other"}),
            "subjects[0].apiGroup: Unsupported value: \"other\": supported values: \"\"",
        ),
    ] {
        assert_eq!(binding("clusterrolebindings", valid(), json!([subject])), expected, "{subject}");
    }
    let bad = json!([{"kind": "ServiceAccount", "namespace": "foo", "name": "subject:bad"}]);
    let refused = binding("rolebindings", valid(), bad);
    assert!(
        refused.starts_with("subjects[0].name: Invalid value: \"subject:bad\": a lowercase"),
        "{refused}"
    );
    let local = json!([{"kind": "ServiceAccount", "name": "good"}]);
    assert_eq!(binding("rolebindings", valid(), local), "");
}

#[test]
fn kind_of_the_referenced_role_depends_on_the_binding() {
    let of = |kind: &str| json!({"kind": kind, "name": "r"});
    assert_eq!(binding("rolebindings", of("Role"), Value::Null), "");
    for (resource, kind, supported) in [
        ("rolebindings", "Type", "\"Role\", \"ClusterRole\""),
        ("rolebindings", "", "\"Role\", \"ClusterRole\""),
        ("clusterrolebindings", "Role", "\"ClusterRole\""),
    ] {
        let expected = format!("roleRef.kind: Unsupported value: \"{kind}\": supported values: {supported}");
        assert_eq!(binding(resource, of(kind), Value::Null), expected, "{resource} {kind}");
    }
}

#[test]
fn role_of_a_binding_never_changes() {
    let of = |name: &str| {
        let mut object =
            json!({"metadata": metadata("rolebindings"), "roleRef": {"kind": "Role", "name": name}});
        defaults::apply("rolebindings", &mut object);
        object
    };
    assert_eq!(refusals("rolebindings", &of("valid"), Some(&of("valid"))), "");
    let expected = r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"changed"}: cannot change roleRef"#;
    assert_eq!(refusals("rolebindings", &of("changed"), Some(&of("valid"))), expected);
}

#[test]
fn aggregation_needs_valid_selectors() {
    let of = |selectors: Value| {
        let aggregation = json!({"clusterRoleSelectors": selectors});
        refusals("clusterroles", &json!({"metadata": {"name": "x"}, "aggregationRule": aggregation}), None)
    };
    assert_eq!(of(json!([{"matchLabels": {"a.example/b": "true"}}, {}])), "");
    assert_eq!(
        of(json!([])),
        "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
    );
    let label = of(json!([{"matchLabels": {"a,b": "true"}}]));
    assert!(label.starts_with("aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid"), "{label}");
    let expression = |operator: &str, values: Value| {
        of(json!([{"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}]))
    };
    assert_eq!(expression("In", json!(["b"])), "");
    assert_eq!(expression("Exists", json!([])), "");
    assert!(expression("In", json!([])).contains("values: Required value: must be specified when"));
    assert!(expression("Exists", json!(["b"])).contains("values: Forbidden: may not be specified when"));
    assert!(expression("Like", json!([])).ends_with("not a valid selector operator"));
}

#[test]
fn fields_of_other_types_are_refused() {
    let role =
        |rule: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [rule]});
    assert_eq!(decode("roles", &role(json!({"verbs": ["get"]}))), Ok(()));
    // An empty list of names means all names, so a list of anything else must not count as an empty one.
    for rule in [json!({"resourceNames": [1]}), json!({"resourceNames": "a"}), json!({"verbs": {"a": 1}})] {
        let error = decode("roles", &role(rule.clone())).unwrap_err();
        assert!(error.starts_with("Role in version \"v1\" cannot be handled as a Role"), "{rule}: {error}");
    }
    assert!(decode("rolebindings", &json!({"subjects": [{"name": 1}]})).is_err());
    assert!(decode("clusterrolebindings", &json!({"roleRef": []})).is_err());
}
