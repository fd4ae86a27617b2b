//! JSON objects of strings as Go's encoder writes them, for what the Go kubelet writes to disk or passes to drivers.

use std::collections::BTreeMap;

/// Sorted, without spaces, and with what HTML treats specially escaped.
pub(super) fn go_json<K: AsRef<str>, V: AsRef<str>>(values: &BTreeMap<K, V>) -> String {
    let values = values.iter().map(|(key, value)| (key.as_ref(), value.as_ref()));
    let mut text = serde_json::Value::from_iter(values).to_string();
    for (plain, escaped) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        text = text.replace(plain, escaped);
    }
    text
}
