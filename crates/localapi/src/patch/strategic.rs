//! Strategic merge patch: a merge patch that also merges lists, by the keys in [`super::schema`], and has directives.
//!
//! Directives are map keys: `$patch`, `$retainKeys`, `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>`.

mod list;

use serde_json::{Map, Value};

use super::PatchError;
use super::schema::Shape;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVES: &str = "$deleteFromPrimitiveList/";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";

pub(super) type Tree = Map<String, Value>;

pub(super) fn merge_map(mut original: Tree, mut patch: Tree, shape: Shape) -> Result<Tree, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Tree::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    order_lists(&mut original, &mut patch, shape)?;
    for (key, change) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM_PRIMITIVES) {
            delete_scalars(&mut original, field, &change)?;
        } else if change.is_null() {
            original.remove(&key);
        } else {
            let merged = match original.remove(&key) {
                None => without_directives(change),
                Some(before) => merge_value(before, change, &key, shape)?,
            };
            if let Some(merged) = merged {
                original.insert(key, merged);
            }
        }
    }
    Ok(original)
}

fn merge_value(before: Value, change: Value, field: &str, shape: Shape) -> Result<Option<Value>, PatchError> {
    match (before, change) {
        (Value::Object(before), Value::Object(change)) => {
            Ok(Some(Value::Object(merge_map(before, change, shape.map(field))?)))
        }
        (Value::Array(before), Value::Array(change)) => {
            Ok(Some(Value::Array(list::merge(before, change, shape.list(field))?)))
        }
        (_, change) => Ok(without_directives(change)),
    }
}

/// `$retainKeys` lists the fields that a map keeps; clients use it to replace one member of a union by another.
fn retain_keys(original: &mut Tree, patch: &mut Tree) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || PatchError::Malformed("invalid patch format of retainKeys".to_owned());
    let keys = keys.as_array().ok_or_else(malformed)?;
    let keys = keys.iter().map(|key| key.as_str().ok_or_else(malformed)).collect::<Result<Vec<_>, _>>()?;
    let kept = |key: &String, value: &Value| {
        value.is_null()
            || key.starts_with(DELETE_FROM_PRIMITIVES)
            || key.starts_with(SET_ELEMENT_ORDER)
            || keys.contains(&key.as_str())
    };
    if !patch.iter().all(|(key, value)| kept(key, value)) {
        return Err(malformed());
    }
    original.retain(|key, _| keys.contains(&key.as_str()));
    Ok(())
}

/// Merges every list for which the patch has a `$setElementOrder`, and removes it from the patch.
fn order_lists(original: &mut Tree, patch: &mut Tree, shape: Shape) -> Result<(), PatchError> {
    let directives: Vec<String> =
        patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = array(patch.remove(&directive))?.unwrap_or_default();
        let field = directive.trim_start_matches(SET_ELEMENT_ORDER);
        let strategy = shape.list(field);
        let before = array(original.get(field).cloned())?;
        // A null list deletes the field: the ordinary merge does that.
        if patch.get(field).is_some_and(Value::is_null) {
            continue;
        }
        let change = array(patch.remove(field))?;
        if before.is_none() && change.is_none() {
            continue;
        }
        let ordered =
            list::merge_in_order(before.unwrap_or_default(), change.unwrap_or_default(), &order, strategy)?;
        original.insert(field.to_owned(), Value::Array(ordered));
    }
    Ok(())
}

fn array(value: Option<Value>) -> Result<Option<Vec<Value>>, PatchError> {
    match value {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(PatchError::Unmergeable(format!(
            "expected a []interface {{}}, but received a {}",
            go_type(&other)
        ))),
    }
}

fn delete_scalars(original: &mut Tree, field: &str, unwanted: &Value) -> Result<(), PatchError> {
    let unwanted = unwanted
        .as_array()
        .ok_or_else(|| PatchError::Malformed("invalid patch format of primitive list".to_owned()))?;
    if let Some(list) = original.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(|element| !unwanted.contains(element));
    }
    Ok(())
}

/// A value without a counterpart in the original is copied without its nulls and directives. `None` for a map that is itself
/// a directive.
pub(super) fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, value)| !value.is_null() && !is_directive(key));
            Some(kept.filter_map(|(key, value)| Some((key, without_directives(value)?))).collect())
        }
        Value::Array(list) => Some(list.into_iter().filter_map(without_directives).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value),
    }
}

fn is_directive(key: &str) -> bool {
    key == RETAIN_KEYS || key.starts_with(DELETE_FROM_PRIMITIVES) || key.starts_with(SET_ELEMENT_ORDER)
}

pub(super) fn unknown_directive(directive: &Value, map: &Tree) -> PatchError {
    PatchError::Unmergeable(format!("unknown patch type: {} in map: {}", go_text(directive), go_map(map)))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go formats it with `%v`, which the messages of the real server contain.
pub(super) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let elements: Vec<String> = list.iter().map(go_text).collect();
            format!("[{}]", elements.join(" "))
        }
        Value::Object(map) => go_map(map),
    }
}

pub(super) fn go_map(map: &Tree) -> String {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort();
    let fields: Vec<String> = keys.iter().map(|key| format!("{key}:{}", go_text(&map[*key]))).collect();
    format!("map[{}]", fields.join(" "))
}
