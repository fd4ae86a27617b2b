//! The tree of a text, with the position of each value.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::{Map, Value as Json};
use serde_saphyr::{Location, Spanned};

use crate::{Position, Problem};

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

    /// As JSON, with the paths of duplicate keys, of which the last value counts.
    pub(crate) fn into_json(self) -> (Json, Vec<String>) {
        let mut duplicates = Vec::new();
        let json = self.value.into_json("", &mut duplicates);
        (json, duplicates)
    }
}

impl Value {
    fn into_json(self, path: &str, duplicates: &mut Vec<String>) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => value.into(),
            Self::Signed(value) => value.into(),
            Self::Unsigned(value) => value.into(),
            Self::Float(value) => value.into(),
            Self::Text(value) => value.into(),
            Self::List(items) => {
                let item = |(index, node): (usize, Node)| {
                    node.value.into_json(&format!("{path}[{index}]"), duplicates)
                };
                Json::Array(items.into_iter().enumerate().map(item).collect())
            }
            Self::Map(entries) => {
                let mut fields = Map::new();
                for (key, node) in entries {
                    let path = join(path, &key);
                    let value = node.value.into_json(&path, duplicates);
                    if fields.insert(key, value).is_some() {
                        duplicates.push(path);
                    }
                }
                Json::Object(fields)
            }
        }
    }
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
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}
