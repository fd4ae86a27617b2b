//! YAML and JSON text as a tree that remembers where each value stood.
//!
//! Reading in two steps (text to tree, tree to pod) is what lets every error name its line and its field, lets unknown
//! fields be reported instead of lost, and keeps a plain `1` from passing as text where the API wants a string.

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde_saphyr::DuplicateKeyPolicy;
use serde_saphyr::{Location, Options, Spanned};

use super::Position;

/// All documents of a text.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) documents: Vec<Node>,
    /// A key that was given more than once: the last value counts, as the Go kubelet has it, but it is worth a word.
    pub(super) duplicate: Option<TreeError>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    position: Option<Position>,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// What is wrong with one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeError {
    pub(super) position: Option<Position>,
    /// The field, like `spec.containers[0].image`; empty for the document as a whole.
    path: String,
    message: String,
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

impl std::error::Error for TreeError {}

impl de::Error for TreeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { position: None, path: String::new(), message: message.to_string() }
    }
}

/// Reads all documents of a YAML text; JSON is YAML too. Empty documents are skipped.
pub(super) fn read(text: &str) -> Result<Tree, TreeError> {
    match serde_saphyr::from_multiple_with_options(text, options(DuplicateKeyPolicy::Error)) {
        Ok(documents) => Ok(Tree { documents, duplicate: None }),
        Err(strict) => {
            let lenient = options(DuplicateKeyPolicy::LastWins);
            let documents =
                serde_saphyr::from_multiple_with_options(text, lenient).map_err(|e| yaml_error(&e))?;
            Ok(Tree { documents, duplicate: Some(yaml_error(&strict)) })
        }
    }
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn yaml_error(error: &serde_saphyr::Error) -> TreeError {
    let position = error.location().and_then(position);
    let text = error.to_string();
    // The place is kept beside the message, not said twice.
    let place = position.map(|at| format!(" at line {}, column {}", at.line, at.column));
    let message = place.and_then(|place| text.strip_suffix(&place).map(str::to_owned)).unwrap_or(text);
    TreeError { position, path: String::new(), message }
}

fn position(location: Location) -> Option<Position> {
    let found = Position { line: location.line(), column: location.column() };
    (found.line > 0).then_some(found)
}

impl Node {
    pub(super) fn error(&self, message: String) -> TreeError {
        TreeError { position: self.position, path: String::new(), message }
    }

    fn field(&self, name: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key == name).map(|(_, node)| node),
            Value::Null
            | Value::Bool(_)
            | Value::Signed(_)
            | Value::Unsigned(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_) => None,
        }
    }

    pub(super) fn text_field(&self, name: &str) -> Option<&str> {
        match self.field(name).map(|node| &node.value) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list_field(&self, name: &str) -> &[Self] {
        match self.field(name).map(|node| &node.value) {
            Some(Value::List(items)) => items,
            _ => &[],
        }
    }

    /// Reads the tree into any type. Fields that the type does not know are added to `unknown`.
    pub(super) const fn deserializer<'a>(&'a self, unknown: &'a RefCell<Vec<TreeError>>) -> At<'a> {
        At { node: self, path: String::new(), unknown }
    }
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

/// A place in the tree, as serde wants to see it.
pub(super) struct At<'a> {
    node: &'a Node,
    path: String,
    unknown: &'a RefCell<Vec<TreeError>>,
}

impl At<'_> {
    /// Names the field and the place of an error that does not have them yet: the innermost wins.
    fn place(position: Option<Position>, path: String, error: TreeError) -> TreeError {
        if error.path.is_empty() { TreeError { position, path, ..error } } else { error }
    }
}

impl<'de, 'a: 'de> Deserializer<'de> for At<'a> {
    type Error = TreeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeError> {
        let (position, path) = (self.node.position, self.path.clone());
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Signed(value) => visitor.visit_i64(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_str(value),
            Value::List(items) => visitor.visit_seq(Items { at: &self, rest: items.iter().enumerate() }),
            Value::Map(entries) => {
                visitor.visit_map(Entries { at: &self, rest: entries.iter(), current: None })
            }
        };
        result.map_err(|error| Self::place(position, path, error))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeError> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            Value::Bool(_)
            | Value::Signed(_)
            | Value::Unsigned(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_) => visitor.visit_some(self),
        }
    }

    /// Nothing is the same as no text, as for the keys of a map that were left without a value.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeError> {
        match self.node.value {
            Value::Null => visitor.visit_str(""),
            Value::Bool(_)
            | Value::Signed(_)
            | Value::Unsigned(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, TreeError> {
        let (position, path) = (self.node.position, self.path.clone());
        visitor.visit_newtype_struct(self).map_err(|error| Self::place(position, path, error))
    }

    /// Only a field that the type does not know is read this way.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TreeError> {
        let message = "unknown field, ignored".to_owned();
        let Self { node, path, unknown } = self;
        unknown.borrow_mut().push(TreeError { position: node.position, path, message });
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

struct Items<'s, 'a> {
    at: &'s At<'a>,
    rest: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
}

impl<'de, 'a: 'de> de::SeqAccess<'de> for Items<'_, 'a> {
    type Error = TreeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, TreeError> {
        let Some((index, node)) = self.rest.next() else {
            return Ok(None);
        };
        let path = format!("{}[{index}]", self.at.path);
        seed.deserialize(At { node, path, unknown: self.at.unknown }).map(Some)
    }
}

struct Entries<'s, 'a> {
    at: &'s At<'a>,
    rest: std::slice::Iter<'a, (String, Node)>,
    current: Option<&'a (String, Node)>,
}

impl<'de, 'a: 'de> de::MapAccess<'de> for Entries<'_, 'a> {
    type Error = TreeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, TreeError> {
        self.current = self.rest.next();
        let Some((key, _)) = self.current else {
            return Ok(None);
        };
        let key: de::value::StrDeserializer<'_, TreeError> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, TreeError> {
        let Some((key, node)) = self.current.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        let path = match self.at.path.as_str() {
            "" => key.clone(),
            parent => format!("{parent}.{key}"),
        };
        seed.deserialize(At { node, path, unknown: self.at.unknown })
    }
}
