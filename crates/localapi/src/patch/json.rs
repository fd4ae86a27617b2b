//! JSON patch (RFC 6902): a list of operations, applied atomically.

use serde_json::Value;

use super::PatchError;

/// The limit of the real server.
const MAX_OPERATIONS: usize = 10_000;
/// The total size of all `copy` operations of one patch, in bytes: a small patch could otherwise grow an object without
/// limit.
const MAX_COPIED: usize = 3 * 1024 * 1024;

pub(super) fn apply(current: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Some(operations) = patch.as_array() else {
        return Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            super::json_type(patch)
        )));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = current.clone();
    let mut copied = 0;
    for operation in operations {
        apply_one(&mut document, operation, &mut copied)?;
    }
    Ok(document)
}

fn apply_one(document: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), PatchError> {
    let name = text(operation, "op")?;
    let path = Pointer::parse(text(operation, "path")?)?;
    match name {
        "add" => add(document, &path, value_of(operation)?, name),
        "remove" => remove(document, &path, name).map(drop),
        "replace" => replace(document, &path, value_of(operation)?),
        "test" => test(document, &path, operation.get("value").unwrap_or(&Value::Null)),
        "move" => {
            let from = Pointer::parse(text(operation, "from")?)?;
            if from.is_above(&path) {
                let what = format!("move operation does not apply: {} is inside {}", path.text, from.text);
                return Err(PatchError::DoesNotApply(what));
            }
            let value = remove(document, &from, name)?;
            add(document, &path, value, name)
        }
        "copy" => {
            let from = Pointer::parse(text(operation, "from")?)?;
            let value = from.find(document).ok_or_else(|| missing(name, &from))?.clone();
            *copied += value.to_string().len();
            if *copied > MAX_COPIED {
                return Err(PatchError::TooLarge(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, \
                     exceeding the limit {MAX_COPIED}"
                )));
            }
            add(document, &path, value, name)
        }
        _ => Err(PatchError::DoesNotApply(format!("Unexpected kind: {name}"))),
    }
}

fn text<'a>(operation: &'a Value, field: &str) -> Result<&'a str, PatchError> {
    operation.get(field).and_then(Value::as_str).ok_or_else(|| {
        PatchError::DoesNotApply(format!("operation {operation} has no {field}, which must be a string"))
    })
}

fn value_of(operation: &Value) -> Result<Value, PatchError> {
    operation
        .get("value")
        .cloned()
        .ok_or_else(|| PatchError::DoesNotApply(format!("operation {operation} has no value")))
}

fn add(document: &mut Value, path: &Pointer, value: Value, operation: &str) -> Result<(), PatchError> {
    let Some((parent, last)) = path.split_last() else {
        *document = value;
        return Ok(());
    };
    let target = walk_mut(document, parent).ok_or_else(|| missing(operation, path))?;
    if let Value::Object(map) = target {
        map.insert(last.to_owned(), value);
        return Ok(());
    }
    let Value::Array(list) = target else { return Err(missing(operation, path)) };
    let index = if last == "-" { Some(list.len()) } else { array_index(last) };
    let index = index.filter(|index| *index <= list.len()).ok_or_else(|| bad_index(operation, path))?;
    list.insert(index, value);
    Ok(())
}

fn remove(document: &mut Value, path: &Pointer, operation: &str) -> Result<Value, PatchError> {
    let Some((parent, last)) = path.split_last() else {
        return Ok(document.take());
    };
    let target = walk_mut(document, parent).ok_or_else(|| missing(operation, path))?;
    if let Value::Object(map) = target {
        return map.remove(last).ok_or_else(|| missing(operation, path));
    }
    let Value::Array(list) = target else { return Err(missing(operation, path)) };
    let index = array_index(last).filter(|index| *index < list.len());
    Ok(list.remove(index.ok_or_else(|| bad_index(operation, path))?))
}

fn replace(document: &mut Value, path: &Pointer, value: Value) -> Result<(), PatchError> {
    let target = walk_mut(document, &path.tokens).ok_or_else(|| missing("replace", path))?;
    *target = value;
    Ok(())
}

/// For `test`, a missing path equals null.
fn test(document: &Value, path: &Pointer, expected: &Value) -> Result<(), PatchError> {
    let found = path.find(document).unwrap_or(&Value::Null);
    if same(found, expected) {
        return Ok(());
    }
    Err(PatchError::DoesNotApply(format!("testing value {} failed: test failed", path.text)))
}

/// Equal as JSON: numbers by value, so that 1 and 1.0 are the same.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, left)| right.get(key).is_some_and(|right| same(left, right)))
        }
        _ => left == right,
    }
}

fn missing(operation: &str, path: &Pointer) -> PatchError {
    PatchError::DoesNotApply(format!(
        "{operation} operation does not apply: doc is missing path: \"{}\": missing value",
        path.text
    ))
}

fn bad_index(operation: &str, path: &Pointer) -> PatchError {
    PatchError::DoesNotApply(format!(
        "{operation} operation does not apply: \"{}\": index out of bounds",
        path.text
    ))
}

/// A JSON pointer (RFC 6901), split and unescaped.
struct Pointer<'a> {
    text: &'a str,
    tokens: Vec<String>,
}

impl<'a> Pointer<'a> {
    fn parse(text: &'a str) -> Result<Self, PatchError> {
        if text.is_empty() {
            return Ok(Self { text, tokens: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PatchError::DoesNotApply(format!("path \"{text}\" must begin with a slash")));
        };
        // The order matters: `~01` is `~1`, not a slash.
        let tokens = rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
        Ok(Self { text, tokens })
    }

    fn split_last(&self) -> Option<(&[String], &str)> {
        self.tokens.split_last().map(|(last, parent)| (parent, last.as_str()))
    }

    fn is_above(&self, other: &Self) -> bool {
        other.tokens.len() > self.tokens.len() && other.tokens.starts_with(&self.tokens)
    }

    fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.tokens.iter().try_fold(document, |target, token| {
            if let Value::Array(list) = target { list.get(array_index(token)?) } else { target.get(token) }
        })
    }
}

fn walk_mut<'v>(document: &'v mut Value, tokens: &[String]) -> Option<&'v mut Value> {
    tokens.iter().try_fold(document, |target, token| match target {
        Value::Array(list) => list.get_mut(array_index(token)?),
        Value::Object(map) => map.get_mut(token),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Digits without a leading zero.
fn array_index(token: &str) -> Option<usize> {
    let canonical = token == "0" || !token.starts_with(['0', '+']);
    if canonical { token.parse().ok() } else { None }
}
