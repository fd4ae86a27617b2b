//! The merge of an applied configuration into an object, without regard to owners.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::element::Element;
use super::schema::Type;

/// The object with all values of the configuration.
pub(super) fn merge(kind: Type, live: &Value, applied: &Value) -> Value {
    merged(kind, Some(live), Some(applied)).unwrap_or_else(|| Value::Object(Map::new()))
}

/// `None` for a map or list that had values and has none any more.
fn merged(kind: Type, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let kind = [live, applied].into_iter().flatten().fold(kind, |kind, value| kind.fitting(value));
    match (live, applied) {
        (Some(live), None) => return Some(live.clone()),
        (None, Some(applied)) => return Some(applied.clone()),
        (None, None) => return None,
        (Some(_), Some(_)) => {}
    }
    let map = |value: Option<&'_ Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    if kind.is_map() {
        let (live_fields, applied_fields) = (map(live), map(applied));
        if live_fields.is_empty() && applied_fields.is_empty() {
            return applied.cloned();
        }
        return Some(Value::Object(merge_maps(kind, live_fields, applied_fields)));
    }
    if matches!(kind, Type::Leaf) {
        return applied.cloned();
    }
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let (live_items, applied_items) = (list(live), list(applied));
    if live_items.is_empty() && applied_items.is_empty() {
        return applied.cloned();
    }
    Some(Value::Array(merge_lists(kind, &live_items, &applied_items)))
}

fn merge_maps(kind: Type, mut live: Map<String, Value>, applied: Map<String, Value>) -> Map<String, Value> {
    for (name, value) in applied {
        let below = kind.field(&name).unwrap_or(Type::Leaf);
        if let Some(value) = merged(below, live.get(&name), Some(&value)) {
            live.insert(name, value);
        }
    }
    live
}

/// The elements of both lists. Those of the configuration have its order; an element that only the object has stays before the element of
/// the configuration that follows it.
fn merge_lists(kind: Type, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let elements = |items: &[Value]| items.iter().map(|item| kind.stored_element(item)).collect::<Vec<_>>();
    let (live_elements, applied_elements) = (elements(live), elements(applied));
    let by_element = unique(&live_elements, live);
    let mut items = Vec::with_capacity(live.len() + applied.len());
    for source in order(&live_elements, &applied_elements) {
        match source {
            Source::Live(index) => items.extend(live.get(index).cloned()),
            Source::Applied(index) => {
                let before = applied_elements.get(index).and_then(|element| by_element.get(element)).copied();
                items.extend(merged(kind.item(), before, applied.get(index)));
            }
        }
    }
    items
}

/// The elements of a list by their keys, without those of which there are several: they are replaced as a whole.
fn unique<'a>(elements: &'a [Element], items: &'a [Value]) -> BTreeMap<&'a Element, &'a Value> {
    let (mut unique, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for (element, item) in elements.iter().zip(items) {
        if seen.insert(element) {
            unique.insert(element, item);
        } else {
            unique.remove(element);
        }
    }
    unique
}

/// Where an element of the merged list comes from: the index in the list of the object, or in that of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Live(usize),
    Applied(usize),
}

fn order(live: &[Element], applied: &[Element]) -> Vec<Source> {
    let (in_live, in_applied): (BTreeSet<_>, BTreeSet<_>) = (live.iter().collect(), applied.iter().collect());
    let mut shared: VecDeque<&Element> = applied.iter().filter(|element| in_live.contains(element)).collect();
    let (mut left, mut right, mut taken) = (0, 0, BTreeSet::new());
    let mut order = Vec::with_capacity(live.len() + applied.len());
    loop {
        let (own, theirs) = (live.get(left), applied.get(right));
        match (own, theirs) {
            (None, None) => return order,
            // An element of both lists, but not the next one of the configuration.
            (Some(own), Some(theirs))
                if own != theirs
                    && in_applied.contains(own)
                    && shared.front().is_some_and(|next| *next != own) =>
            {
                left += 1;
                continue;
            }
            (Some(own), _) if !in_applied.contains(own) => {
                order.push(Source::Live(left));
                left += 1;
                continue;
            }
            (Some(own), theirs) if theirs == Some(own) || taken.contains(own) => left += 1,
            (Some(_) | None, _) => {}
        }
        if let Some(theirs) = theirs {
            taken.insert(theirs);
            order.push(Source::Applied(right));
            right += 1;
            if shared.front() == Some(&theirs) {
                shared.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merge_of(plural: &str, live: Value, applied: Value) -> Value {
        merge(Type::of_resource(plural), &live, &applied)
    }

    #[test]
    fn maps_are_merged_and_leaves_replaced() {
        let live = json!({
            "data": {"a": "1", "b": "1"},
            "metadata": {"labels": {"x": "1"}, "resourceVersion": "7"},
            "immutable": false,
        });
        let applied = json!({"data": {"b": "2", "c": "2"}, "metadata": {"labels": null}, "immutable": true});
        let expected = json!({
            "data": {"a": "1", "b": "2", "c": "2"},
            "metadata": {"labels": {"x": "1"}, "resourceVersion": "7"},
            "immutable": true,
        });
        assert_eq!(merge_of("configmaps", live, applied), expected);
        let selector = |key: &str| json!({"spec": {"selector": {key: "1"}}});
        assert_eq!(merge_of("services", selector("a"), selector("b")), selector("b"));
    }

    #[test]
    fn keyed_lists_are_merged_by_key() {
        let pod = |containers: Value| json!({"spec": {"containers": containers}});
        let live = pod(json!([{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}]));
        let applied = pod(json!([{"name": "a", "image": "2"}, {"name": "c"}]));
        let expected = pod(json!([{"name": "a", "image": "2", "args": ["x"]}, {"name": "b"}, {"name": "c"}]));
        assert_eq!(merge_of("pods", live, applied), expected);
        let ports = |ports: Value| json!({"spec": {"ports": ports}});
        // The same port of two protocols are two elements; the default protocol is TCP.
        assert_eq!(
            merge_of(
                "services",
                ports(json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP", "name": "t"}])),
                ports(json!([{"port": 53, "targetPort": 5353}])),
            ),
            ports(json!([
                {"port": 53, "protocol": "UDP"},
                {"port": 53, "protocol": "TCP", "name": "t", "targetPort": 5353},
            ]))
        );
    }

    #[test]
    fn elements_with_the_same_key_are_replaced_by_the_applied_one() {
        let env = |env: Value| json!({"spec": {"containers": [{"name": "c", "env": env}]}});
        let live = env(json!([{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}]));
        assert_eq!(
            merge_of("pods", live.clone(), env(json!([{"name": "C"}]))),
            env(
                json!([{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}, {"name": "C"}])
            )
        );
        assert_eq!(
            merge_of("pods", live, env(json!([{"name": "A", "value": "3"}]))),
            env(json!([{"name": "A", "value": "3"}, {"name": "B"}]))
        );
    }

    /// The tables of structured-merge-diff: list of the object, list of the configuration, merged list.
    #[test]
    fn merged_sets_have_the_order_of_the_real_server() {
        for (live, applied, expected) in [
            ("abc", "", "abc"),
            ("", "abc", "abc"),
            ("abc", "cba", "cba"),
            ("abc", "cb", "acb"),
            ("abc", "ca", "bca"),
            ("abcd", "bd", "abcd"),
            ("ab", "bc", "abc"),
            ("abc", "dce", "abdce"),
            ("abcde", "eca", "bdeca"),
            ("ac", "bc", "abc"),
            ("xaxb", "ab", "xaxb"),
        ] {
            let items = |letters: &str| json!({"metadata": {"finalizers": letters.chars().map(String::from).collect::<Vec<_>>()}});
            let merged = merge_of("configmaps", items(live), items(applied));
            assert_eq!(merged, items(expected), "{live} and {applied}");
        }
    }
}
