//! Functions and methods of the language, and those that Kubernetes adds.

use std::sync::Arc;

use model::Amount;
use regex_lite::RegexBuilder;

use super::EvaluationError;
use super::cost::Cost;
use super::expression::Function;
use super::value::Value;
use super::version::Version;

/// The longest pattern, and the memory of a compiled one.
const MAX_PATTERN: usize = 1024;
const MAX_COMPILED_PATTERN: usize = 100 * 1024;
/// Of one byte of a pattern.
const COMPILATION_COST: u64 = 50;
/// Parentheses in a pattern.
const MAX_PATTERN_DEPTH: u32 = 50;

type Result<T> = std::result::Result<T, EvaluationError>;

/// The first of `values` is what a method is called on.
pub(super) fn call(cost: &mut Cost, function: Function, values: &[Value]) -> Result<Value> {
    cost.spend(values.iter().map(Value::size).sum())?;
    let result = match values {
        [Value::Text(of), rest @ ..] => of_text(cost, function, of, rest)?,
        [Value::Quantity(of), rest @ ..] => of_quantity(function, *of, rest),
        [Value::Version(of), rest @ ..] => of_version(function, of, rest),
        _ => None,
    };
    let result = result.or_else(|| of_any(function, values));
    result.ok_or_else(|| EvaluationError::no_overload(function.name(), &values.iter().collect::<Vec<_>>()))
}

/// Functions of several types.
fn of_any(function: Function, values: &[Value]) -> Option<Value> {
    match (function, values) {
        (Function::Size, [Value::List(items)]) => count(items.len()),
        (Function::Size, [Value::Map(map)]) => count(map.entries.len()),
        (Function::Dyn, [any]) | (Function::Int, [any @ Value::Int(_)]) => Some(any.clone()),
        (Function::Text, [Value::Int(number)]) => Some(Value::text(&number.to_string())),
        (Function::Text, [Value::Bool(value)]) => Some(Value::text(&value.to_string())),
        (Function::Includes, [Value::List(items), one]) => {
            Some(Value::Bool(items.iter().any(|item| item.equals(one))))
        }
        // A single value is taken as a list with one item.
        (Function::Includes, [of, one]) => Some(Value::Bool(of.equals(one))),
        _ => None,
    }
}

fn count(length: usize) -> Option<Value> {
    i64::try_from(length).ok().map(Value::Int)
}

fn of_text(cost: &mut Cost, function: Function, of: &Arc<str>, rest: &[Value]) -> Result<Option<Value>> {
    let bool = |value| Ok(Some(Value::Bool(value)));
    match (function, rest) {
        (Function::Contains, [Value::Text(part)]) => bool(of.contains(&**part)),
        (Function::StartsWith, [Value::Text(part)]) => bool(of.starts_with(&**part)),
        (Function::EndsWith, [Value::Text(part)]) => bool(of.ends_with(&**part)),
        (Function::Matches, [Value::Text(pattern)]) => bool(matches(cost, of, pattern)?),
        (Function::Split, [Value::Text(by)]) => Ok(Some(split(of, by))),
        (Function::Size, []) => Ok(count(of.chars().count())),
        (Function::LowerAscii, []) => Ok(Some(Value::text(&of.to_ascii_lowercase()))),
        (Function::UpperAscii, []) => Ok(Some(Value::text(&of.to_ascii_uppercase()))),
        (Function::Trim, []) => Ok(Some(Value::text(of.trim()))),
        (Function::Text, []) => Ok(Some(Value::Text(Arc::clone(of)))),
        (Function::Int, []) => {
            let number =
                of.parse().map_err(|_| EvaluationError::invalid(format!("int({of:?}): not a number")))?;
            Ok(Some(Value::Int(number)))
        }
        (Function::Quantity, []) => {
            let amount = Amount::parse(of).map_err(|error| EvaluationError::invalid(error.to_string()))?;
            Ok(Some(Value::Quantity(amount)))
        }
        (Function::IsQuantity, []) => bool(Amount::parse(of).is_ok()),
        (Function::Semver, options) => {
            let version = version(of, options)
                .ok_or_else(|| EvaluationError::invalid(format!("semver({of:?}): not a version")))?;
            Ok(Some(Value::Version(Arc::new(version))))
        }
        (Function::IsSemver, options) => bool(version(of, options).is_some()),
        _ => Ok(None),
    }
}

fn version(text: &str, options: &[Value]) -> Option<Version> {
    match options {
        [Value::Bool(true)] => Version::parse_relaxed(text),
        [Value::Bool(false)] | [] => Version::parse(text),
        _ => None,
    }
}

fn split(text: &str, by: &str) -> Value {
    let parts: Vec<Value> = match by {
        "" => text.chars().map(|c| Value::text(c.encode_utf8(&mut [0; 4]))).collect(),
        by => text.split(by).map(Value::text).collect(),
    };
    Value::List(parts.into())
}

/// The time is that of compiling the pattern, and that of the text times the pattern.
fn matches(cost: &mut Cost, text: &str, pattern: &str) -> Result<bool> {
    if pattern.len() > MAX_PATTERN {
        return Err(EvaluationError::invalid(format!("a pattern may have {MAX_PATTERN} bytes")));
    }
    let (length, size) = (text.len() as u64 + 1, pattern.len() as u64 + 1);
    cost.spend(COMPILATION_COST * size + length * size / 10)?;
    let pattern = RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED_PATTERN)
        .nest_limit(MAX_PATTERN_DEPTH)
        .build()
        .map_err(|error| EvaluationError::invalid(format!("pattern {pattern:?}: {error}")))?;
    Ok(pattern.is_match(text))
}

fn of_quantity(function: Function, of: Amount, rest: &[Value]) -> Option<Value> {
    let whole = of.milli() % 1000 == 0;
    match (function, rest) {
        (Function::CompareTo, [Value::Quantity(other)]) => Some(ordering(of.cmp(other))),
        (Function::IsGreaterThan, [Value::Quantity(other)]) => Some(Value::Bool(of > *other)),
        (Function::IsLessThan, [Value::Quantity(other)]) => Some(Value::Bool(of < *other)),
        (Function::Sign, []) => Some(ordering(of.cmp(&Amount::ZERO))),
        (Function::IsInteger, []) => Some(Value::Bool(whole)),
        (Function::AsInteger, []) => whole.then(|| Value::Int(of.units())),
        _ => None,
    }
}

fn of_version(function: Function, of: &Version, rest: &[Value]) -> Option<Value> {
    let number = |number: u64| i64::try_from(number).ok().map(Value::Int);
    match (function, rest) {
        (Function::CompareTo, [Value::Version(other)]) => Some(ordering(of.cmp(other))),
        (Function::IsGreaterThan, [Value::Version(other)]) => Some(Value::Bool(*of > **other)),
        (Function::IsLessThan, [Value::Version(other)]) => Some(Value::Bool(*of < **other)),
        (Function::Major, []) => number(of.major),
        (Function::Minor, []) => number(of.minor),
        (Function::Patch, []) => number(of.patch),
        _ => None,
    }
}

fn ordering(order: std::cmp::Ordering) -> Value {
    Value::Int(i64::from(order as i8))
}
