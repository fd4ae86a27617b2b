//! Quantities in the form in which the real server writes them.

use model::Amount;
use model::quantity::{binary_text, decimal_text};
use serde_json::Value;

/// `1000m` is written as `1`, `1024Mi` as `1Gi`, `0.5` as `500m`. Other strings, and quantities
/// with more digits than [`Amount`] holds, stay unchanged.
pub(super) fn canonical(value: &mut Value) {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return,
    };
    if let Some(canonical) = canonical_text(text.trim()) {
        *value = Value::String(canonical);
    }
}

fn canonical_text(text: &str) -> Option<String> {
    let amount = Amount::parse(text).ok()?;
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let is_exponent = suffix.len() > 1 && suffix.starts_with(['e', 'E']);
    let is_too_fine = suffix == "n" || suffix == "u" || fraction_digits(text) > 3;
    if is_exponent || is_too_fine {
        return None;
    }
    let whole = Amount::from_units(amount.units());
    if whole != amount {
        // Beyond 64 bits the number stays as it was written.
        return (amount.milli().abs() < i64::MAX).then(|| format!("{}m", amount.milli()));
    }
    let units = i128::from(amount.units());
    // Below 1024 the real server falls back to decimal suffixes.
    let is_binary = suffix.ends_with('i') && units.abs() >= 1024;
    Some(if is_binary { binary_text(units) } else { decimal_text(units) })
}

fn fraction_digits(text: &str) -> usize {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    fraction.chars().take_while(char::is_ascii_digit).count()
}
