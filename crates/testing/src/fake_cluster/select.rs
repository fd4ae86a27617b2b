//! Selectors over JSON objects: `spec.nodeName=edge-1,metadata.name!=web` and `app in (a,b),!legacy`.

use ports::cluster::Selection;
use serde_json::Value;

pub(super) fn matches(selection: &Selection, object: &Value) -> bool {
    let namespace = object["metadata"]["namespace"].as_str();
    selection.namespace.as_deref().is_none_or(|wanted| namespace == Some(wanted))
        && selection.fields.as_deref().is_none_or(|fields| matches_fields(fields, object))
        && selection.labels.as_deref().is_none_or(|labels| matches_labels(labels, object))
}

fn matches_fields(selector: &str, object: &Value) -> bool {
    selector.split(',').filter(|term| !term.is_empty()).all(|term| {
        let (path, wanted, equal) = split(term);
        let found = path.split('.').fold(object, |value, field| &value[field]);
        let found = match found {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => found.to_string(),
        };
        (found == wanted) == equal
    })
}

/// Key, value, and whether they are to be equal.
fn split(term: &str) -> (&str, &str, bool) {
    let parts = term.split_once("!=").map(|(key, value)| (key, value, false));
    let parts = parts.or_else(|| term.split_once("==").map(|(key, value)| (key, value, true)));
    let parts = parts.or_else(|| term.split_once('=').map(|(key, value)| (key, value, true)));
    let (key, value, equal) = parts.unwrap_or((term, "", true));
    (key.trim(), value.trim(), equal)
}

fn matches_labels(selector: &str, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    terms(selector).into_iter().all(|term| matches_label(term, labels))
}

fn matches_label(term: &str, labels: &Value) -> bool {
    for (word, wanted) in [(" notin ", false), (" in ", true)] {
        if let Some((key, values)) = term.split_once(word) {
            let values = values.trim().trim_start_matches('(').trim_end_matches(')');
            let found = labels[key.trim()].as_str();
            return values.split(',').any(|value| found == Some(value.trim())) == wanted;
        }
    }
    if term.contains('=') {
        let (key, value, equal) = split(term);
        return (labels[key].as_str() == Some(value)) == equal;
    }
    match term.strip_prefix('!') {
        Some(key) => labels.get(key.trim()).is_none(),
        None => labels.get(term).is_some(),
    }
}

/// Commas within brackets do not part terms.
fn terms(selector: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let parted = selector.split(|letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parted.map(str::trim).filter(|term| !term.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_labels_are_compared() {
        let pod = json!({"metadata": {"name": "web", "namespace": "a", "labels": {"app": "x"}},
            "spec": {"nodeName": "edge-1"}});
        let fits = |fields: &str, labels: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            matches(&Selection { namespace: None, fields: some(fields), labels: some(labels) }, &pod)
        };
        for (fields, labels, expected) in [
            ("", "", true),
            ("spec.nodeName=edge-1", "", true),
            ("spec.nodeName==edge-1,metadata.name!=web", "", false),
            ("spec.nodeName!=edge-2", "", true),
            ("status.phase=", "", true),
            ("", "app=x", true),
            ("", "app!=x", false),
            ("", "tier!=db,app in (y, x)", true),
            ("", "app notin (y,x)", false),
            ("", "app,!tier", true),
            ("", "!app", false),
            ("", "tier", false),
        ] {
            assert_eq!(fits(fields, labels), expected, "{fields:?} {labels:?}");
        }
        let elsewhere = Selection { namespace: Some("b".to_owned()), ..Selection::default() };
        assert!(!matches(&elsewhere, &pod));
    }
}
