//! Merge of a list with its patch, and the order of the result.
//!
//! The order: elements of the patch keep the order of the patch, elements that only the object has keep theirs, and the
//! order of the object decides between the two. So a new element precedes the elements that the patch omits.

use serde_json::Value;

use super::{DIRECTIVE, PatchError, Tree, go_map, go_text, merge_map, unknown_directive, without_directives};
use crate::patch::schema::{ListMerge, Shape};

type Strategy = (ListMerge, Shape);

pub(super) fn merge(
    before: Vec<Value>,
    change: Vec<Value>,
    strategy: Strategy,
) -> Result<Vec<Value>, PatchError> {
    let (how, shape) = strategy;
    let key = match how {
        ListMerge::Replace => return Ok(change.into_iter().filter_map(without_directives).collect()),
        ListMerge::Set => return Ok(merge_scalars(before, change)),
        ListMerge::ByKey(key) => key,
    };
    let before_order = before.clone();
    let (kept, wanted) = match take_directives(before, change, key)? {
        Directed::Replaced(list) => return Ok(list),
        Directed::Merged { kept, wanted } => (kept, wanted),
    };
    let wanted_order = wanted.clone();
    let merged = merge_elements(kept, wanted, key, shape)?;
    Ok(in_order(merged, &wanted_order, &before_order, Some(key)))
}

/// As [`merge`], in the order of a `$setElementOrder`.
pub(super) fn merge_in_order(
    before: Vec<Value>,
    change: Vec<Value>,
    order: &[Value],
    strategy: Strategy,
) -> Result<Vec<Value>, PatchError> {
    let key = match strategy.0 {
        ListMerge::ByKey(key) => Some(key),
        ListMerge::Replace | ListMerge::Set => None,
    };
    check_order(&change, order, key)?;
    let before_order = before.clone();
    let merged = merge(before, change, strategy)?;
    Ok(in_order(merged, order, &before_order, key))
}

fn merge_scalars(before: Vec<Value>, change: Vec<Value>) -> Vec<Value> {
    let (before_order, change_order) = (before.clone(), change.clone());
    let mut merged: Vec<Value> = Vec::new();
    for element in before.into_iter().chain(change) {
        if !merged.contains(&element) {
            merged.push(element);
        }
    }
    in_order(merged, &change_order, &before_order, None)
}

enum Directed {
    /// An element had the directive `replace`: the patch is the whole list.
    Replaced(Vec<Value>),
    Merged {
        kept: Vec<Value>,
        wanted: Vec<Value>,
    },
}

/// Applies and removes the elements of the patch that are directives.
fn take_directives(
    mut before: Vec<Value>,
    change: Vec<Value>,
    key: &'static str,
) -> Result<Directed, PatchError> {
    let mut wanted = Vec::new();
    let mut replace = false;
    for element in change {
        let Some(directive) = element.get(DIRECTIVE) else {
            wanted.push(element);
            continue;
        };
        let map = element.as_object().cloned().unwrap_or_default();
        match directive.as_str() {
            Some("delete") => {
                let id = map.get(key).ok_or_else(|| no_merge_key(&map, key))?;
                before.retain(|old| old.get(key) != Some(id));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let what = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Unmergeable(what.to_owned()));
            }
            _ => return Err(unknown_directive(directive, &map)),
        }
    }
    if replace {
        return Ok(Directed::Replaced(wanted.into_iter().filter_map(without_directives).collect()));
    }
    Ok(Directed::Merged { kept: before, wanted })
}

fn merge_elements(
    mut merged: Vec<Value>,
    wanted: Vec<Value>,
    key: &'static str,
    shape: Shape,
) -> Result<Vec<Value>, PatchError> {
    for element in wanted {
        let Value::Object(change) = element else {
            return Err(PatchError::Unmergeable(format!(
                "map: {} does not contain declared merge key: {key}",
                go_text(&element)
            )));
        };
        let id = change.get(key).ok_or_else(|| no_merge_key(&change, key))?;
        match merged.iter_mut().find(|old| old.get(key) == Some(id)) {
            None => merged.extend(without_directives(Value::Object(change))),
            Some(old) => {
                let before = old.as_object().cloned().unwrap_or_default();
                *old = Value::Object(merge_map(before, change, shape)?);
            }
        }
    }
    Ok(merged)
}

/// The identity of an element: its merge key, or the element itself.
fn id<'a>(element: &'a Value, key: Option<&str>) -> &'a Value {
    key.and_then(|key| element.get(key)).unwrap_or(element)
}

fn position(element: &Value, order: &[Value], key: Option<&str>) -> Option<usize> {
    order.iter().position(|other| id(other, key) == id(element, key))
}

fn in_order(merged: Vec<Value>, wanted: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|element| position(element, wanted, key).is_some());
    named.sort_by_key(|element| position(element, wanted, key));
    others.sort_by_key(|element| position(element, before, key));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for element in named {
        if let Some(index) = position(&element, before, key) {
            while let Some(other) =
                others.next_if(|other| position(other, before, key).is_some_and(|at| at < index))
            {
                result.push(other);
            }
        }
        result.push(element);
    }
    result.extend(others);
    result
}

/// Checks that the elements of the patch are in the order of its `$setElementOrder`.
fn check_order(change: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if order.is_empty() {
        return Ok(());
    }
    let deleted = |element: &Value| element.get(DIRECTIVE).is_some_and(|directive| directive == "delete");
    let mut from = 0;
    for element in change.iter().filter(|element| !deleted(element)) {
        let at = order[from..].iter().position(|other| id(other, key) == id(element, key));
        let Some(at) = at else {
            return Err(PatchError::Unmergeable(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                go_list(change),
                go_list(order)
            )));
        };
        from += at + 1;
    }
    Ok(())
}

fn go_list(list: &[Value]) -> String {
    go_text(&Value::Array(list.to_vec()))
}

fn no_merge_key(map: &Tree, key: &str) -> PatchError {
    PatchError::Unmergeable(format!("map: {} does not contain declared merge key: {key}", go_map(map)))
}
