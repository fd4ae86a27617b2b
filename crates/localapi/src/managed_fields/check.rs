//! The check of an applied configuration: every field is declared, every list element has its own keys.

use std::collections::BTreeSet;

use serde_json::Value;

use super::schema::Type;

/// The first problem, with its path.
pub(super) fn check(kind: Type, applied: &Value) -> Result<(), String> {
    check_value(kind, applied).map_err(|Problem { path, what }| format!("{path}: {what}"))
}

#[derive(Debug)]
struct Problem {
    /// From the checked value.
    path: String,
    what: String,
}

impl Problem {
    fn here(what: impl Into<String>) -> Self {
        Self { path: String::new(), what: what.into() }
    }

    fn below(self, step: &str) -> Self {
        Self { path: format!("{step}{}", self.path), ..self }
    }
}

fn check_value(kind: Type, value: &Value) -> Result<(), Problem> {
    match (kind, value) {
        (Type::Leaf | Type::Deduced, _) | (_, Value::Null) => Ok(()),
        (Type::Struct(_) | Type::Map(_), Value::Object(fields)) => {
            fields.iter().try_for_each(|(name, value)| {
                let checked = match kind.field(name) {
                    Some(kind) => check_value(kind, value),
                    None => Err(Problem::here("field not declared in schema")),
                };
                checked.map_err(|problem| problem.below(&format!(".{name}")))
            })
        }
        (Type::Struct(_) | Type::Map(_), other) => Err(Problem::here(format!("expected map, got {other}"))),
        (Type::Set | Type::Keyed(..), Value::Array(items)) => check_items(kind, items),
        (Type::Set | Type::Keyed(..), other) => Err(Problem::here(format!("expected list, got {other}"))),
    }
}

fn check_items(kind: Type, items: &[Value]) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let element = kind.element(item).map_err(|why| Problem::here(format!("element {index}: {why}")))?;
        let name = element.to_string();
        check_value(kind.item(), item).map_err(|problem| problem.below(&name))?;
        if !seen.insert(element) {
            return Err(Problem::here(format!("duplicate entries for key {name}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn undeclared_fields_wrong_forms_and_duplicates_are_reported_with_their_path() {
        let containers = |containers: Value| json!({"spec": {"containers": containers}});
        for (object, expected) in [
            (json!({"spec": {"colour": "red"}}), ".spec.colour: field not declared in schema"),
            (containers(json!({})), ".spec.containers: expected list, got {}"),
            (containers(json!(["c"])), ".spec.containers: element 0: the elements of this list are maps"),
            (
                containers(json!([{"name": "c"}, {"name": "c"}])),
                ".spec.containers: duplicate entries for key [name=\"c\"]",
            ),
            (
                containers(json!([{"name": "c", "resources": 1}])),
                ".spec.containers[name=\"c\"].resources: expected map, got 1",
            ),
            (json!({"metadata": []}), ".metadata: expected map, got []"),
        ] {
            assert_eq!(check(Type::of_resource("pods"), &object).unwrap_err(), expected);
        }
    }

    #[test]
    fn declared_fields_and_unknown_kinds_are_accepted() {
        let pod = json!({
            "apiVersion": "v1",
            "metadata": {"labels": {"any": "1"}, "finalizers": null},
            "spec": {"containers": [{"name": "a", "ports": [
                {"containerPort": 53},
                {"containerPort": 53, "protocol": "UDP"},
            ]}], "affinity": {"nodeAffinity": null}},
        });
        assert_eq!(check(Type::of_resource("pods"), &pod), Ok(()));
        assert_eq!(check(Type::of_resource("widgets"), &json!({"spec": {"a": [1, 1]}})), Ok(()));
    }
}
