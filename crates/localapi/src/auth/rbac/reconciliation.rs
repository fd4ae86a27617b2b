//! How an existing role or binding gets what it lacks of an expected one. What it has in addition stays. Pure.

use serde_json::{Map, Value, json};

use super::rule::{Permission, Rule, compact};
use crate::object::{self, items};

const AUTO_UPDATE: &str = "/metadata/annotations/rbac.authorization.kubernetes.io~1autoupdate";

/// What happens to an existing object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    Keep,
    Update(Value),
    /// The role of a binding never changes, so the binding is deleted and created.
    Recreate,
}

impl Change {
    fn from(existing: &Value, new: Value) -> Self {
        if new == *existing { Self::Keep } else { Self::Update(new) }
    }
}

/// Whether the administrator has excluded the object.
fn is_protected(existing: &Value) -> bool {
    object::text(existing, AUTO_UPDATE) == "false"
}

/// Adds labels, annotations, permissions and selectors that a ClusterRole lacks.
pub(crate) fn role(existing: &Value, expected: &Value) -> Change {
    if is_protected(existing) {
        return Change::Keep;
    }
    let mut new = existing.clone();
    add_metadata(&mut new, expected);
    let held: Vec<Rule<'_>> = items(existing, "/rules").iter().map(Rule).collect();
    let missing: Vec<Permission<'_>> = items(expected, "/rules")
        .iter()
        .flat_map(|rule| Rule(rule).permissions())
        .filter(|permission| !held.iter().any(|rule| rule.covers(permission)))
        .collect();
    append(&mut new, "rules", compact(&missing));
    let path = "/aggregationRule/clusterRoleSelectors";
    let own = items(existing, path);
    let selectors: Vec<Value> =
        items(expected, path).iter().filter(|selector| !own.contains(selector)).cloned().collect();
    if expected.get("aggregationRule").is_none() {
        if let Some(fields) = new.as_object_mut() {
            fields.remove("aggregationRule");
        }
    } else if !selectors.is_empty() {
        let all = [own, &selectors].concat();
        object::map_at(&mut new, "aggregationRule").insert("clusterRoleSelectors".to_owned(), json!(all));
    }
    Change::from(existing, new)
}

/// Adds labels, annotations and subjects that a ClusterRoleBinding lacks.
pub(crate) fn binding(existing: &Value, expected: &Value) -> Change {
    if is_protected(existing) {
        return Change::Keep;
    }
    if existing["roleRef"] != expected["roleRef"] {
        return Change::Recreate;
    }
    let mut new = existing.clone();
    add_metadata(&mut new, expected);
    let own = items(existing, "/subjects");
    let missing = items(expected, "/subjects").iter().filter(|subject| !own.contains(subject));
    append(&mut new, "subjects", missing.cloned().collect());
    Change::from(existing, new)
}

/// Adds labels and annotations; those that exist keep their values.
fn add_metadata(new: &mut Value, expected: &Value) {
    for field in ["labels", "annotations"] {
        let wanted = expected["metadata"][field].as_object().cloned().unwrap_or_default();
        let metadata = object::metadata(new);
        let own = metadata.entry(field).or_insert_with(|| json!(Map::new()));
        let Some(own) = own.as_object_mut() else { continue };
        for (key, value) in wanted {
            own.entry(key).or_insert(value);
        }
    }
}

fn append(object: &mut Value, field: &str, more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(list) => list.extend(more),
        None => object[field] = Value::Array(more),
    }
}
