//! ClusterRoles that collect the rules of others, which they select by labels. Pure.

use serde_json::Value;

use super::rule::Rule;
use crate::object::{self, items, text};
use crate::selector::LabelSelector;
use crate::store::Objects;
use crate::validation::MAX_RULES;

/// The most strings in the collected rules of one role.
const MAX_STRINGS: usize = 100_000;

/// The rules that a ClusterRole collects, each once, in the order of its selectors and of the names of the other roles;
/// `None` if it does not collect any. What exceeds the limit of one role is left out.
pub(crate) fn rules(role: &Value, objects: &Objects) -> Option<Vec<Value>> {
    role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let (mut collected, mut size) = (Vec::new(), 0);
    for selector in items(role, "/aggregationRule/clusterRoleSelectors") {
        let Some(selector) = parse(selector) else { continue };
        let others = objects
            .of("clusterroles", None)
            .filter(|(key, other)| key.name != object::name(role) && selector.matches(other));
        for rule in others.flat_map(|(_, other)| items(other, "/rules")) {
            if collected.contains(rule) {
                continue;
            }
            size += Rule(rule).len();
            if collected.len() == MAX_RULES || size > MAX_STRINGS {
                tracing::warn!(name = object::name(role), "aggregated ClusterRole has too many rules");
                return Some(collected);
            }
            collected.push(rule.clone());
        }
    }
    Some(collected)
}

/// A selector of an object, which is written as that of a query. `None` if it is invalid.
fn parse(selector: &Value) -> Option<LabelSelector> {
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut parts: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    for expression in items(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        let values: Vec<&str> = items(expression, "/values").iter().filter_map(Value::as_str).collect();
        let values = values.join(",");
        parts.push(match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    LabelSelector::parse(&parts.join(",")).ok()
}
