//! Rules for secrets and config maps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::place::Place;
use super::{Findings, Reason};

/// Bytes that the values of one object may have together.
const MAX_DATA: usize = 1024 * 1024;
const KEY_FORM: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
     or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

pub(super) fn check_secret(secret: &Place<'_>, old: Option<&Place<'_>>, found: &mut Findings) {
    let mut size = 0;
    for (key, value) in secret.entries("data") {
        check_key(key, &value.path, found);
        size += decoded_len(&value, found);
    }
    if size > MAX_DATA {
        found.too_long("data", MAX_DATA);
    }
    check_type(secret, found);
    let Some(old) = old else { return };
    let (kind, old_kind) = (secret.text_at("type"), old.text_at("type"));
    if kind != old_kind {
        found.invalid("type", kind, "field is immutable");
    }
    check_immutable(secret, old, &["data"], found);
}

/// Some types promise certain keys.
fn check_type(secret: &Place<'_>, found: &mut Findings) {
    let needed: &[&str] = match secret.text_at("type") {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => &[],
    };
    let data = secret.entries("data");
    let value_of = |key: &str| data.iter().find(|(own, _)| *own == key).map(|(_, value)| value);
    for key in needed {
        let field = format!("data[{key}]");
        let Some(value) = value_of(key) else {
            found.required(field, "");
            continue;
        };
        let bytes = STANDARD.decode(value.text()).unwrap_or_default();
        if key.starts_with(".docker")
            && let Err(error) = serde_json::from_slice::<Value>(&bytes)
        {
            found.add(
                field,
                Reason::Invalid,
                format!("Invalid value: \"<secret contents redacted>\": {error}"),
            );
        }
    }
    let basic = ["username", "password"].map(|key| value_of(key).is_some());
    if secret.text_at("type") == "kubernetes.io/basic-auth" && basic == [false, false] {
        found.required("data[username]", "");
        found.required("data[password]", "");
    }
    let account = secret
        .value
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(SERVICE_ACCOUNT));
    if secret.text_at("type") == "kubernetes.io/service-account-token"
        && account.and_then(Value::as_str).unwrap_or_default().is_empty()
    {
        found.required(format!("metadata.annotations[{SERVICE_ACCOUNT}]"), "");
    }
}

pub(super) fn check_config_map(map: &Place<'_>, old: Option<&Place<'_>>, found: &mut Findings) {
    let mut size = 0;
    let binary = map.entries("binaryData");
    for (key, value) in map.entries("data") {
        check_key(key, &value.path, found);
        if binary.iter().any(|(other, _)| *other == key) {
            found.invalid(&value.path, key, "duplicate of key present in binaryData");
        }
        size += value.text().len();
    }
    for (key, value) in binary {
        check_key(key, &value.path, found);
        size += decoded_len(&value, found);
    }
    if size > MAX_DATA {
        found.too_long("", MAX_DATA);
    }
    if let Some(old) = old {
        check_immutable(map, old, &["data", "binaryData"], found);
    }
}

fn check_key(key: &str, path: &str, found: &mut Findings) {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if key.len() > 253 {
        found.invalid(path, key, "must be no more than 253 bytes");
    }
    if key.is_empty() || !key.chars().all(is_inner) {
        found.invalid(path, key, KEY_FORM);
    }
    match key {
        "." => found.invalid(path, key, "must not be '.'"),
        ".." => found.invalid(path, key, "must not be '..'"),
        _ if key.starts_with("..") => found.invalid(path, key, "must not start with '..'"),
        _ => {}
    }
}

/// The number of bytes that base64 text stands for.
fn decoded_len(value: &Place<'_>, found: &mut Findings) -> usize {
    match STANDARD.decode(value.text()) {
        Ok(bytes) => bytes.len(),
        Err(error) => {
            let message = format!("Invalid value: must be base64: {error}");
            found.add(&value.path, Reason::Invalid, message);
            0
        }
    }
}

fn check_immutable(object: &Place<'_>, old: &Place<'_>, fields: &[&str], found: &mut Findings) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !old.flag("immutable") {
        return;
    }
    if !object.flag("immutable") {
        found.forbidden("immutable", DETAIL);
    }
    for field in fields {
        if object.at(field).value != old.at(field).value {
            found.forbidden(*field, DETAIL);
        }
    }
}
