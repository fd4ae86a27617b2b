//! Replaces values that differ in every run: IDs, times, addresses, generated names.

use serde_json::Value;

/// Prefix of runc's start errors since version 1.2.
const RUNC_PHASE: &str = "unable to start container process: error during container init: ";

/// Replaces them in a text.
pub(super) fn text(text: &str) -> String {
    let text = text.replace(RUNC_PHASE, "unable to start container process: ");
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-:.+_".contains(c);
    let mut result = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(first) = rest.chars().next() {
        let end = if is_word(first) {
            rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (piece, after) = rest.split_at(end);
        result.push_str(&word(piece));
        rest = after;
    }
    result
}

/// Replaces them in all strings and keys below a value.
pub(super) fn value(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (text(name), self::value(field))).collect()
        }
        Value::Array(items) => items.iter().map(self::value).collect(),
        Value::String(content) => Value::String(text(content)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn word(word: &str) -> String {
    // An address with a port of the caller's: `10.0.0.1:37306->10.0.0.2:53`.
    if let Some(caller) = word.strip_suffix('-').filter(|caller| address(caller).is_some()) {
        let host = caller.split(':').next().unwrap_or_default();
        return if caller.contains(':') { "<ip>:<port>-".to_owned() } else { format!("{host}-") };
    }
    let trimmed = word.trim_end_matches(['.', ':', '-']);
    let tail = &word[trimmed.len()..];
    let shown = if let Some(hex) = trimmed.strip_prefix("sha256:").filter(|hex| is_hex(hex, 64)) {
        let _ = hex;
        "<digest>".to_owned()
    } else if is_hex(trimmed, 64) {
        "<id>".to_owned()
    } else if is_hex(trimmed, 32) {
        // Of a static pod: where its manifest lies is part of it, and that of the recorded one is not known.
        "<uid>".to_owned()
    } else if is_time(trimmed) {
        if trimmed.starts_with("1970-") { "<1970>".to_owned() } else { "<time>".to_owned() }
    } else if let Some(address) = address(trimmed) {
        address
    } else if trimmed.starts_with("kube-api-access-") {
        "kube-api-access-<any>".to_owned()
    } else {
        uids(trimmed)
    };
    shown + tail
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `2026-11-22T22:59:11Z`, with or without a fraction and an offset.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && bytes[..4].iter().all(u8::is_ascii_digit)
}

/// `10.88.4.66` or `10.88.4.66:8080`; the loopback address stays.
fn address(text: &str) -> Option<String> {
    let (host, port) = text.split_once(':').map_or((text, ""), |(host, port)| (host, port));
    let parsed: std::net::Ipv4Addr = host.parse().ok()?;
    if parsed.is_loopback() || parsed.is_unspecified() {
        return None;
    }
    Some(if port.is_empty() { "<ip>".to_owned() } else { format!("<ip>:{port}") })
}

/// Replaces UIDs anywhere in a name: `pod57d38e05-63b0-478c-a1aa-df88258d5a24`.
fn uids(text: &str) -> String {
    const LENGTH: usize = 36;
    let is_uid = |part: &str| {
        part.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let mut result = String::new();
    let mut rest = text;
    while rest.len() >= LENGTH && rest.is_ascii() {
        if is_uid(&rest[..LENGTH]) {
            result.push_str("<uid>");
            rest = &rest[LENGTH..];
        } else {
            result.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    result + rest
}

/// Each leaf with its path; elements of lists by name, type or address rather than by index.
pub(super) fn leaves(at: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let dot = if at.is_empty() { "" } else { "." };
                leaves(&format!("{at}{dot}{name}"), field, found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                let name = ["name", "type", "key", "container_path", "mountPath", "page_size"]
                    .iter()
                    .find_map(|field| item.get(field)?.as_str());
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                leaves(&format!("{at}[{name}]"), item, found);
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => found.push((at.to_owned(), value.to_string())),
    }
}
