//! Parses the text of a flag's value to the JSON value of its configuration field. Pure; every error has the allowed values.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::Kind;
use crate::duration::GoDuration;

/// The value of a flag of that kind.
///
/// # Errors
/// The problem and the allowed values.
pub(crate) fn read(kind: Kind, text: &str) -> Result<Value, String> {
    let must_be = || format!("must be {}", kind.expected());
    match kind {
        Kind::Bool => go_bool(text).map(Value::from).ok_or_else(must_be),
        Kind::Text => Ok(Value::from(text)),
        Kind::Int32 => integer(text).and_then(|n| i32::try_from(n).ok()).map(Value::from).ok_or_else(must_be),
        Kind::Int64 => integer(text).map(Value::from).ok_or_else(must_be),
        Kind::Level => text.parse::<u32>().map(Value::from).map_err(|_| must_be()),
        Kind::Duration => {
            text.parse::<GoDuration>().map(|d| Value::from(d.to_string())).map_err(|_| must_be())
        }
        Kind::Ip => {
            text.trim().parse::<IpAddr>().map(|ip| Value::from(ip.to_string())).map_err(|_| must_be())
        }
        Kind::List => Ok(Value::Array(split(text, ',').map(Value::from).collect())),
        Kind::Map => pairs(text, '=').map(object).map_err(|pair| wrong_part(&pair, kind)),
        Kind::Thresholds => pairs(text, '<').map(object).map_err(|pair| wrong_part(&pair, kind)),
        Kind::Headers => headers(text).map_err(|pair| wrong_part(&pair, kind)),
        Kind::Gates => gates(text).map_err(|pair| wrong_part(&pair, kind)),
        Kind::Taints => {
            split(text, ',').map(|part| taint(part).ok_or_else(|| wrong_part(part, kind))).collect()
        }
        Kind::ReservedMemory => {
            split(text, ';').map(|part| reserved_memory(part).ok_or_else(|| wrong_part(part, kind))).collect()
        }
        Kind::VModule => {
            split(text, ',').map(|part| vmodule(part).ok_or_else(|| wrong_part(part, kind))).collect()
        }
        Kind::Quantity => model::Amount::parse(text).map(|_| Value::from(text)).map_err(|_| must_be()),
        Kind::Version if text == "raw" => Ok(Value::from(text)),
        Kind::Version => go_bool(text).map(Value::from).ok_or_else(must_be),
    }
}

fn wrong_part(part: &str, kind: Kind) -> String {
    format!("{part:?} is invalid: must be {}", kind.expected())
}

fn split(text: &str, at: char) -> impl Iterator<Item = &str> {
    text.split(at).map(str::trim).filter(|part| !part.is_empty())
}

fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Decimal, `0x`, `0o`, `0b`, or octal with a leading zero, as Go reads numbers of flags.
fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some(start) if start.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

/// `key<sep>value` pairs; the error is a pair without the separator.
fn pairs(text: &str, separator: char) -> Result<Vec<(String, String)>, String> {
    split(text, ',')
        .map(|pair| match pair.split_once(separator) {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(pair.to_owned()),
        })
        .collect()
}

fn object(pairs: Vec<(String, String)>) -> Value {
    Value::Object(pairs.into_iter().map(|(key, value)| (key, Value::from(value))).collect())
}

fn headers(text: &str) -> Result<Value, String> {
    let mut fields: Map<String, Value> = Map::new();
    for (name, value) in pairs(text, ':')? {
        if let Value::Array(values) = fields.entry(name).or_insert_with(|| json!([])) {
            values.push(Value::from(value));
        }
    }
    Ok(Value::Object(fields))
}

fn gates(text: &str) -> Result<Value, String> {
    pairs(text, '=')?
        .into_iter()
        .map(|(name, value)| match go_bool(&value) {
            Some(on) => Ok((name, Value::from(on))),
            None => Err(format!("{name}={value}")),
        })
        .collect::<Result<Map<_, _>, _>>()
        .map(Value::Object)
}

fn taint(text: &str) -> Option<Value> {
    let (rest, effect) = text.rsplit_once(':')?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
    (known && !key.is_empty() && !key.contains(':') && !value.contains(':'))
        .then(|| json!({"key": key, "value": value, "effect": effect}))
}

fn reserved_memory(text: &str) -> Option<Value> {
    let (node, limits) = text.split_once(':')?;
    let node: i32 = node.trim().parse().ok().filter(|node| *node >= 0)?;
    let limits = pairs(limits, '=').ok().filter(|limits| !limits.is_empty())?;
    let all_fit = limits.iter().all(|(name, amount)| {
        (name == "memory" || name.starts_with("hugepages-")) && model::Amount::parse(amount).is_ok()
    });
    all_fit.then(|| json!({"numaNode": node, "limits": object(limits)}))
}

fn vmodule(text: &str) -> Option<Value> {
    let (pattern, level) = text.split_once('=')?;
    let level: u32 = level.trim().parse().ok()?;
    (!pattern.trim().is_empty()).then(|| json!({"filePattern": pattern.trim(), "verbosity": level}))
}
