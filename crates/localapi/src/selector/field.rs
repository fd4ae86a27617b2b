//! Field selectors: `spec.nodeName=a,status.phase!=Running`, over the selectable fields of each resource.

use std::borrow::Cow;

use serde_json::Value;

use super::SelectorError;

/// All terms must match. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Parses a `fieldSelector` parameter. A backslash escapes `\`, `,` and `=`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_unescaped(text).into_iter().filter(|part| !part.is_empty()) {
            let Some((field, operator, value)) = split_term(part) else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            terms.push(Term { field: field.to_owned(), equal: operator != "!=", value: unescape(value)? });
        }
        Ok(Self { terms })
    }

    /// Refuses fields that are not selectable for `resource` (the plural name).
    pub fn check(&self, resource: &str) -> Result<(), SelectorError> {
        let Some(term) = self.terms.iter().find(|term| !supported(resource, &term.field)) else {
            return Ok(());
        };
        Err(SelectorError(match own_fields(resource) {
            Some(_) => format!("field label not supported: {}", term.field),
            None => format!(
                "\"{}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                term.field
            ),
        }))
    }

    /// Whether an object matches; an unset field is empty.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (field_value(object, &term.field) == term.value) == term.equal)
    }

    /// The value that the selector requires of `field`, if any.
    #[must_use]
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

/// The selectable fields of a resource, next to name and namespace. `None` if it has no others.
fn own_fields(resource: &str) -> Option<&'static [&'static str]> {
    match resource {
        "pods" => Some(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]),
        "nodes" => Some(&["spec.unschedulable"]),
        "services" => Some(&["spec.clusterIP", "spec.type"]),
        "events" => Some(&[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]),
        "secrets" => Some(&["type"]),
        "certificatesigningrequests" | "clustertrustbundles" => Some(&["spec.signerName"]),
        "podcertificaterequests" => {
            Some(&["spec.signerName", "spec.podName", "spec.serviceAccountName", "spec.nodeName"])
        }
        "namespaces" => Some(&["status.phase"]),
        "resourceslices" => Some(&["spec.driver", "spec.nodeName"]),
        _ => None,
    }
}

fn supported(resource: &str, field: &str) -> bool {
    match field {
        "metadata.name" => true,
        "metadata.namespace" => {
            let cluster_scoped = [
                "nodes",
                "namespaces",
                "certificatesigningrequests",
                "clustertrustbundles",
                "resourceslices",
            ];
            !cluster_scoped.contains(&resource)
        }
        _ => own_fields(resource).is_some_and(|fields| fields.contains(&field)),
    }
}

fn field_value<'a>(object: &'a Value, field: &str) -> Cow<'a, str> {
    let at = |path: &str| path.split('.').try_fold(object, |value, name| value.get(name));
    let text = |path: &str| at(path).and_then(Value::as_str).unwrap_or_default();
    match field {
        "source" if text("source.component").is_empty() => text("reportingComponent").into(),
        "source" => text("source.component").into(),
        "spec.unschedulable" | "spec.hostNetwork" => {
            let set = at(field).and_then(Value::as_bool).unwrap_or_default();
            if set { "true".into() } else { "false".into() }
        }
        "status.podIPs" => {
            let all = at(field).and_then(Value::as_array).into_iter().flatten();
            let ips: Vec<&str> = all.filter_map(|entry| entry.get("ip").and_then(Value::as_str)).collect();
            ips.join(",").into()
        }
        _ => text(field).into(),
    }
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

/// Splits at the first operator.
fn split_term(term: &str) -> Option<(&str, &str, &str)> {
    term.char_indices().find_map(|(at, _)| {
        let rest = &term[at..];
        let operator = ["!=", "==", "="].into_iter().find(|operator| rest.starts_with(operator))?;
        Some((&term[..at], operator, &rest[operator.len()..]))
    })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence: String = ['\\'].into_iter().chain(other).collect();
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            _ => plain.push(c),
        }
    }
    Ok(plain)
}
