//! The tree of a text, with the position of each value.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::{Map, Value as Json};
use serde_saphyr::{Location, Spanned};

use crate::{Duplicate, Position, Problem};

/// One value with its children.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) position: Option<Position>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the text; keys may be duplicate.
    Map(Vec<(String, Node)>),
}

pub(crate) fn position(location: Location) -> Option<Position> {
    let found = Position { line: location.line(), column: location.column() };
    (found.line > 0).then_some(found)
}

impl Node {
    /// An error about this value.
    #[must_use]
    pub fn problem(&self, message: String) -> Problem {
        Problem { position: self.position, path: String::new(), message }
    }

    fn field(&self, name: &str) -> Option<&Value> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(key, _)| key == name).map(|(_, node)| &node.value)
    }

    /// A string field.
    #[must_use]
    pub fn text_field(&self, name: &str) -> Option<&str> {
        if let Value::Text(text) = self.field(name)? { Some(text) } else { None }
    }

    /// The items of a list field.
    #[must_use]
    pub fn list_field(&self, name: &str) -> &[Self] {
        if let Some(Value::List(items)) = self.field(name) { items } else { &[] }
    }

    /// As JSON, with the position of each value and the duplicate keys, of which the last value counts.
    pub(crate) fn into_json(
        self,
        path: &str,
        positions: &mut BTreeMap<String, Position>,
        duplicates: &mut Vec<Duplicate>,
    ) -> Json {
        if let Some(position) = self.position {
            positions.insert(path.to_owned(), position);
        }
        match self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => value.into(),
            Value::Signed(value) => value.into(),
            Value::Unsigned(value) => value.into(),
            Value::Float(value) => value.into(),
            Value::Text(value) => value.into(),
            Value::List(items) => {
                let item = |(index, node): (usize, Self)| {
                    node.into_json(&format!("{path}[{index}]"), positions, duplicates)
                };
                Json::Array(items.into_iter().enumerate().map(item).collect())
            }
            Value::Map(entries) => {
                let mut fields = Map::new();
                for (key, node) in entries {
                    let (path, position) = (join(path, &key), node.position);
                    let value = node.into_json(&path, positions, duplicates);
                    if fields.insert(key.clone(), value).is_some() {
                        duplicates.push(Duplicate { path, key, position });
                    }
                }
                Json::Object(fields)
            }
        }
    }

    /// The position of the value at that path, such as `spec.containers[0].image`, or of the nearest value that contains it.
    #[must_use]
    pub fn position_of(&self, path: &str) -> Option<Position> {
        let mut at = self;
        for step in steps(path) {
            let below = match &at.value {
                Value::Map(entries) => entries.iter().rfind(|(key, _)| *key == step).map(|(_, node)| node),
                Value::List(items) => step.parse().ok().and_then(|index: usize| items.get(index)),
                Value::Null
                | Value::Bool(_)
                | Value::Signed(_)
                | Value::Unsigned(_)
                | Value::Float(_)
                | Value::Text(_) => None,
            };
            let Some(below) = below else { break };
            at = below;
        }
        at.position
    }

    /// The tree without the value at that path. Returns whether there was one.
    pub(crate) fn remove(&mut self, path: &str) -> bool {
        let steps: Vec<&str> = steps(path).collect();
        let Some((last, parents)) = steps.split_last() else { return false };
        let mut at = self;
        for step in parents {
            let below = match &mut at.value {
                Value::Map(entries) => entries.iter_mut().find(|(key, _)| key == step).map(|(_, node)| node),
                Value::List(items) => step.parse().ok().and_then(|index: usize| items.get_mut(index)),
                Value::Null
                | Value::Bool(_)
                | Value::Signed(_)
                | Value::Unsigned(_)
                | Value::Float(_)
                | Value::Text(_) => None,
            };
            let Some(below) = below else { return false };
            at = below;
        }
        match &mut at.value {
            Value::Map(entries) => {
                let before = entries.len();
                entries.retain(|(key, _)| key != last);
                entries.len() < before
            }
            // The other items keep their index.
            Value::List(items) => {
                let item = last.parse().ok().and_then(|index: usize| items.get_mut(index));
                item.is_some_and(|item| {
                    let empty = Value::Map(Vec::new());
                    !matches!(&std::mem::replace(&mut item.value, empty), Value::Map(entries) if entries.is_empty())
                })
            }
            Value::Null
            | Value::Bool(_)
            | Value::Signed(_)
            | Value::Unsigned(_)
            | Value::Float(_)
            | Value::Text(_) => false,
        }
    }
}

/// The names and indices of a path.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|step| step.strip_suffix(']').unwrap_or(step)).filter(|step| !step.is_empty())
}

/// The path of a field below another.
pub(crate) fn join(parent: &str, field: &str) -> String {
    if parent.is_empty() { field.to_owned() } else { format!("{parent}.{field}") }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { position: position(spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Signed(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, mut node)) = map.next_entry::<Spanned<String>, Node>()? {
            // Where the field begins, for a value that begins on a line below.
            let at_key = position(key.referenced);
            if at_key.is_some_and(|at| node.position.is_none_or(|below| below.line > at.line)) {
                node.position = at_key;
            }
            entries.push((key.value, node));
        }
        Ok(Value::Map(entries))
    }
}
