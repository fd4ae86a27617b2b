//! Rules for Secrets and ConfigMaps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::field::FieldValue;
use super::{ErrorList, Reason};

/// The total size of the values of one object, in bytes.
const MAX_DATA: usize = 1024 * 1024;
const KEY_FORM: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
     or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

pub(super) fn check_secret(secret: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    let mut size = 0;
    for (key, value) in secret.entries("data") {
        check_key(key, &value.path, errors);
        size += decoded_len(&value, errors);
    }
    if size > MAX_DATA {
        errors.too_long("data", MAX_DATA);
    }
    check_type(secret, errors);
    let Some(old) = old else { return };
    let (kind, old_kind) = (secret.text_at("type"), old.text_at("type"));
    if kind != old_kind {
        errors.invalid("type", kind, "field is immutable");
    }
    check_immutable(secret, old, &["data"], errors);
}

/// Some types of Secrets require keys.
fn check_type(secret: &FieldValue<'_>, errors: &mut ErrorList) {
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
            errors.required(field, "");
            continue;
        };
        let bytes = STANDARD.decode(value.text()).unwrap_or_default();
        if key.starts_with(".docker")
            && let Err(error) = serde_json::from_slice::<Value>(&bytes)
        {
            errors.add(
                field,
                Reason::Invalid,
                format!("Invalid value: \"<secret contents redacted>\": {error}"),
            );
        }
    }
    let basic = ["username", "password"].map(|key| value_of(key).is_some());
    if secret.text_at("type") == "kubernetes.io/basic-auth" && basic == [false, false] {
        errors.required("data[username]", "");
        errors.required("data[password]", "");
    }
    let account = secret
        .value
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(SERVICE_ACCOUNT));
    if secret.text_at("type") == "kubernetes.io/service-account-token"
        && account.and_then(Value::as_str).unwrap_or_default().is_empty()
    {
        errors.required(format!("metadata.annotations[{SERVICE_ACCOUNT}]"), "");
    }
}

pub(super) fn check_config_map(map: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    let mut size = 0;
    let binary = map.entries("binaryData");
    for (key, value) in map.entries("data") {
        check_key(key, &value.path, errors);
        if binary.iter().any(|(other, _)| *other == key) {
            errors.invalid(&value.path, key, "duplicate of key present in binaryData");
        }
        size += value.text().len();
    }
    for (key, value) in binary {
        check_key(key, &value.path, errors);
        size += decoded_len(&value, errors);
    }
    if size > MAX_DATA {
        errors.too_long("", MAX_DATA);
    }
    if let Some(old) = old {
        check_immutable(map, old, &["data", "binaryData"], errors);
    }
}

fn check_key(key: &str, path: &str, errors: &mut ErrorList) {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if key.len() > 253 {
        errors.invalid(path, key, "must be no more than 253 bytes");
    }
    if key.is_empty() || !key.chars().all(is_inner) {
        errors.invalid(path, key, KEY_FORM);
    }
    match key {
        "." => errors.invalid(path, key, "must not be '.'"),
        ".." => errors.invalid(path, key, "must not be '..'"),
        _ if key.starts_with("..") => errors.invalid(path, key, "must not start with '..'"),
        _ => {}
    }
}

/// The decoded length of a base64 string.
fn decoded_len(value: &FieldValue<'_>, errors: &mut ErrorList) -> usize {
    match STANDARD.decode(value.text()) {
        Ok(bytes) => bytes.len(),
        Err(error) => {
            let message = format!("Invalid value: must be base64: {error}");
            errors.add(&value.path, Reason::Invalid, message);
            0
        }
    }
}

fn check_immutable(object: &FieldValue<'_>, old: &FieldValue<'_>, fields: &[&str], errors: &mut ErrorList) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !old.flag("immutable") {
        return;
    }
    if !object.flag("immutable") {
        errors.forbidden("immutable", DETAIL);
    }
    for field in fields {
        if object.at(field).value != old.at(field).value {
            errors.forbidden(*field, DETAIL);
        }
    }
}
