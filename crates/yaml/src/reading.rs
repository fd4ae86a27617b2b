//! Deserializes a tree into any type with serde; errors have the field and the position.

use std::borrow::Cow;
use std::cell::RefCell;

use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

use crate::tree::{Node, Value, join};
use crate::{Position, Problem};

/// More values of a wrong type are not reported.
const MAX_PROBLEMS: usize = 20;

/// Options of deserialization, and the unknown fields that were ignored.
#[derive(Debug)]
pub struct Reading {
    unknown: RefCell<Vec<Problem>>,
    takes_scalars_as_text: bool,
}

impl Reading {
    /// Strings must be strings: a plain `1` is an error for a string field.
    #[must_use]
    pub const fn strict() -> Self {
        Self { unknown: RefCell::new(Vec::new()), takes_scalars_as_text: false }
    }

    /// Numbers and booleans are accepted for string fields, for files whose fields were always strings.
    #[must_use]
    pub const fn lenient() -> Self {
        Self { unknown: RefCell::new(Vec::new()), takes_scalars_as_text: true }
    }

    /// Deserializes the tree. Unknown fields are ignored, and recorded.
    ///
    /// # Errors
    /// The first value of the wrong type.
    pub fn read<T: DeserializeOwned>(&self, node: &Node) -> Result<T, Problem> {
        T::deserialize(At { node, path: String::new(), reading: self })
    }

    /// Deserializes the tree, leaving out the values of a wrong type, which are returned; `None` if it cannot be read without one of them.
    #[must_use]
    pub fn read_all<T: DeserializeOwned>(&self, node: &Node) -> (Option<T>, Vec<Problem>) {
        let (mut node, mut problems) = (Cow::Borrowed(node), Vec::new());
        loop {
            self.unknown.borrow_mut().clear();
            let problem = match self.read(&node) {
                Ok(value) => return (Some(value), problems),
                Err(problem) => problem,
            };
            // A value without a part that it needs is no problem of its own.
            if problems.iter().any(|known: &Problem| known.path.starts_with(&problem.path)) {
                return (None, problems);
            }
            let path = problem.path.clone();
            problems.push(problem);
            if problems.len() == MAX_PROBLEMS || !node.to_mut().remove(&path) {
                return (None, problems);
            }
        }
    }

    /// The unknown fields.
    #[must_use]
    pub fn into_unknown(self) -> Vec<Problem> {
        self.unknown.into_inner()
    }
}

impl de::Error for Problem {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self { position: None, path: String::new(), message: message.to_string() }
    }
}

/// A node of the tree as a serde deserializer.
struct At<'a> {
    node: &'a Node,
    path: String,
    reading: &'a Reading,
}

impl At<'_> {
    /// Adds field and position to an error that does not have them yet.
    fn place(position: Option<Position>, path: String, error: Problem) -> Problem {
        if error.path.is_empty() { Problem { position, path, ..error } } else { error }
    }
}

impl<'de, 'a: 'de> Deserializer<'de> for At<'a> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
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

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if let Value::Null = self.node.value { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    /// Null is an empty string, as for map keys without a value.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let takes_scalars = self.reading.takes_scalars_as_text;
        match &self.node.value {
            Value::Null => visitor.visit_str(""),
            Value::Bool(value) if takes_scalars => visitor.visit_string(value.to_string()),
            Value::Signed(value) if takes_scalars => visitor.visit_string(value.to_string()),
            Value::Unsigned(value) if takes_scalars => visitor.visit_string(value.to_string()),
            Value::Float(value) if takes_scalars => visitor.visit_string(value.to_string()),
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
    ) -> Result<V::Value, Problem> {
        let (position, path) = (self.node.position, self.path.clone());
        visitor.visit_newtype_struct(self).map_err(|error| Self::place(position, path, error))
    }

    /// Only unknown fields are read this way.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let message = "unknown field, ignored".to_owned();
        let Self { node, path, reading } = self;
        reading.unknown.borrow_mut().push(Problem { position: node.position, path, message });
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
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        let Some((index, node)) = self.rest.next() else {
            return Ok(None);
        };
        let path = format!("{}[{index}]", self.at.path);
        seed.deserialize(At { node, path, reading: self.at.reading }).map(Some)
    }
}

struct Entries<'s, 'a> {
    at: &'s At<'a>,
    rest: std::slice::Iter<'a, (String, Node)>,
    current: Option<&'a (String, Node)>,
}

impl<'de, 'a: 'de> de::MapAccess<'de> for Entries<'_, 'a> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        self.current = self.rest.next();
        let Some((key, _)) = self.current else {
            return Ok(None);
        };
        let key: de::value::StrDeserializer<'_, Problem> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let Some((key, node)) = self.current.take() else {
            return Err(de::Error::custom("a value was requested before its key"));
        };
        let path = join(&self.at.path, key);
        seed.deserialize(At { node, path, reading: self.at.reading })
    }
}
