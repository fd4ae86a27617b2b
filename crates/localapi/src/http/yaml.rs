//! Writes JSON values as YAML: blocks with the fields by name, lists at the indentation of their field.

use serde_json::{Map, Value};

pub(crate) const MEDIA: &str = "application/yaml";
/// Plain words that YAML 1.1 takes for another type.
const WORDS: &[&str] = &["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

/// The text of a document.
pub(crate) fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => write_fields(&mut out, fields, 0),
        Value::Array(items) if !items.is_empty() => write_items(&mut out, items, 0),
        scalar => {
            out.push_str(&flow(scalar));
            out.push('\n');
        }
    }
    out
}

/// Writes each field on a line of its own; the text before the first one is on its line already.
fn write_fields(out: &mut String, fields: &Map<String, Value>, indent: usize) {
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(&text(name));
        out.push(':');
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                out.push('\n');
                out.push_str(&" ".repeat(indent + 2));
                write_fields(out, fields, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                write_items(out, items, indent);
            }
            scalar => write_line(out, scalar),
        }
    }
}

fn write_items(out: &mut String, items: &[Value], indent: usize) {
    for item in items {
        out.push_str(&" ".repeat(indent));
        out.push('-');
        match item {
            Value::Object(fields) if !fields.is_empty() => {
                out.push(' ');
                write_fields(out, fields, indent + 2);
            }
            // A list in a list is on one line.
            other => write_line(out, other),
        }
    }
}

fn write_line(out: &mut String, value: &Value) {
    out.push(' ');
    out.push_str(&flow(value));
    out.push('\n');
}

/// A value on one line. JSON is YAML.
fn flow(value: &Value) -> String {
    match value {
        Value::String(value) => text(value),
        other => other.to_string(),
    }
}

/// A text without quotes, if it can be no other type and has no character with a meaning.
fn text(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        return text.to_owned();
    }
    let mut quoted = String::new();
    for c in Value::from(text).to_string().chars() {
        // Lines end at these in YAML, and not in JSON.
        match c.is_control() || ['\u{2028}', '\u{2029}', '\u{feff}'].contains(&c) {
            true => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => quoted.push(c),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_blocks_and_lists_are_at_the_indentation_of_their_field() {
        let value = json!({
            "kind": "Pod",
            "metadata": {"labels": {"a/b": "1"}, "name": "p", "uid": null},
            "spec": {"containers": [{"args": ["a b", "-c"], "name": "c", "ports": [{"port": 80}]}], "volumes": []},
        });
        let expected = "kind: Pod\nmetadata:\n  labels:\n    a/b: \"1\"\n  name: p\n  uid: null\nspec:\n  containers:\n  - args:\n    - \"a b\"\n    - \"-c\"\n    name: c\n    ports:\n    - port: 80\n  volumes: []\n";
        assert_eq!(write(&value), expected);
    }

    #[test]
    fn written_values_are_read_again() {
        for value in [
            json!({"a": [[1, "2"], {}, [], {"b": [[]]}], "": "", "yes": "no", "2026-11-29T11:43:41Z": "2026-11-29"}),
            json!({"text": "a\n\"b\" \\ \u{7}\u{7f}\u{85}\u{2028}é: # -", "number": -1.5, "flag": true, "nothing": null}),
            json!({"key: value": ["- a", "{b}", "~", "0x1", "1e3", "null", ".inf"]}),
            json!(["a", {"b": 1}]),
            json!({}),
            json!("text"),
        ] {
            let text = write(&value);
            assert_eq!(::yaml::read_json(&text).unwrap(), (value, Vec::new()), "{text}");
        }
    }
}
