//! Fields of JSON trees of any content.

use serde_json::{Value, json};

use super::Tree;

/// Sets the default of a string or number that is absent, null, empty or zero; the API does not distinguish these.
pub(super) fn set(tree: &mut Tree, field: &str, default: impl Into<Value>) {
    let unset = match tree.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => false,
    };
    if unset {
        tree.insert(field.to_owned(), default.into());
    }
}

/// Sets the default of a field for which zero, false or empty is a valid value.
pub(super) fn set_absent(tree: &mut Tree, field: &str, default: impl Into<Value>) {
    if tree.get(field).is_none_or(Value::is_null) {
        tree.insert(field.to_owned(), default.into());
    }
}

/// The map in a field, created if it is absent. `None` if the field has another type.
pub(super) fn section<'a>(tree: &'a mut Tree, field: &str) -> Option<&'a mut Tree> {
    set_absent(tree, field, json!({}));
    child(tree, field)
}

/// The map in a field, if the field is one.
pub(super) fn child<'a>(tree: &'a mut Tree, field: &str) -> Option<&'a mut Tree> {
    tree.get_mut(field).and_then(Value::as_object_mut)
}

/// The maps of a list.
pub(super) fn items<'a>(tree: &'a mut Tree, field: &str) -> impl Iterator<Item = &'a mut Tree> {
    tree.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The string in a field, or an empty one.
pub(super) fn text<'a>(tree: &'a Tree, field: &str) -> &'a str {
    tree.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn flag(tree: &Tree, field: &str) -> bool {
    tree.get(field).and_then(Value::as_bool).unwrap_or_default()
}
