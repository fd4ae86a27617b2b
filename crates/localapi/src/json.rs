//! JSON text that is nested more deeply than the 128 levels of `serde_json`, and the fields that an object has twice. The real server accepts
//! 10,000 levels, and keeps them where a field takes any JSON (`managedFields[].fieldsV1`).

use std::cell::RefCell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Error, Map, Value};

/// The most levels that are decoded. Trees are dropped, copied and written recursively: more would need a larger stack.
pub(crate) const MAX_DEPTH: usize = 500;
/// Names of duplicate fields in one message.
const MAX_DUPLICATES: usize = 50;
/// After this many levels the remaining text gets a deserializer of its own, because one allows 128.
const LEVELS_OF_ONE_DESERIALIZER: usize = 100;

/// Whether a tree has no more levels than [`decode`] takes.
pub(crate) fn is_shallow(tree: &Value) -> bool {
    fn fits(tree: &Value, left: usize) -> bool {
        match (tree, left.checked_sub(1)) {
            (Value::Array(items), Some(left)) => items.iter().all(|item| fits(item, left)),
            (Value::Object(fields), Some(left)) => fields.values().all(|field| fits(field, left)),
            (Value::Array(_) | Value::Object(_), None) => false,
            (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => true,
        }
    }
    fits(tree, MAX_DEPTH)
}

/// Decodes one JSON value of at most [`MAX_DEPTH`] levels.
pub(crate) fn decode(text: &[u8]) -> Result<Value, Error> {
    // Nearly every text is flat, and this is faster.
    if let Ok(value) = serde_json::from_slice(text) {
        return Ok(value);
    }
    decode_with_duplicates(text).map(|(value, _)| value)
}

/// As [`decode`], with the fields that an object has more than once (the last value counts): `spec.containers[0].image`, at most
/// [`MAX_DUPLICATES`].
pub(crate) fn decode_with_duplicates(text: &[u8]) -> Result<(Value, Vec<String>), Error> {
    let duplicates = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let root = Place { depth: 0, path: None, duplicates: &duplicates };
    let value = root.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, duplicates.into_inner()))
}

/// One step of the way to a value, and the way to the value around it.
#[derive(Debug)]
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            Step::Field(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Item(index) => write!(f, "[{index}]"),
        }
    }
}

/// Decodes the value at this place.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    depth: usize,
    path: Option<&'a Path<'a>>,
    duplicates: &'a RefCell<Vec<String>>,
}

impl<'a> Place<'a> {
    const fn below(self, path: &'a Path<'a>) -> Self {
        Self { depth: self.depth + 1, path: Some(path), duplicates: self.duplicates }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.depth > MAX_DEPTH {
            return Err(D::Error::custom(format!("exceeded max depth of {MAX_DEPTH}")));
        }
        if self.depth == 0 || !self.depth.is_multiple_of(LEVELS_OF_ONE_DESERIALIZER) {
            return deserializer.deserialize_any(self);
        }
        let text = <&RawValue>::deserialize(deserializer)?.get();
        serde_json::Deserializer::from_str(text).deserialize_any(self).map_err(D::Error::custom)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = Path { parent: self.path, step: Step::Item(list.len()) };
            match items.next_element_seed(self.below(&path))? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = Path { parent: self.path, step: Step::Field(&key) };
            if map.contains_key(&key) && self.duplicates.borrow().len() < MAX_DUPLICATES {
                self.duplicates.borrow_mut().push(path.to_string());
            }
            let value = entries.next_value_seed(self.below(&path))?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}[1,\"a\",null,true,-2,0.5]{}", "{\"f:a\":".repeat(levels), "}".repeat(levels))
    }

    #[test]
    fn deep_text_round_trips_up_to_the_limit() {
        for levels in [0, 1, 99, 100, 101, 127, 128, 200, 300, MAX_DEPTH - 1] {
            let text = nested(levels);
            let tree = decode(text.as_bytes()).unwrap();
            assert_eq!(tree.to_string(), text, "{levels} levels");
            assert!(is_shallow(&tree), "{levels} levels");
        }
        let deeper = serde_json::json!({"f:a": decode(nested(MAX_DEPTH - 1).as_bytes()).unwrap()});
        assert!(!is_shallow(&deeper));
        let error = decode(nested(MAX_DEPTH).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("exceeded max depth of 500"), "{error}");
    }

    #[test]
    fn duplicate_fields_are_named_and_the_last_value_counts() {
        let text = br#"{"data": {"a": "1", "a": "2"}, "list": [{}, {"b": 1, "b": 2}], "data": {"b": "1"}}"#;
        let (value, duplicates) = decode_with_duplicates(text).unwrap();
        assert_eq!(value.to_string(), r#"{"data":{"b":"1"},"list":[{},{"b":2}]}"#);
        assert_eq!(duplicates, ["data.a", "list[1].b", "data"]);
        let (_, of_list) = decode_with_duplicates(br#"[{"value": 1, "value": 2}]"#).unwrap();
        assert_eq!(of_list, ["[0].value"]);
        let many = format!("{{{}\"a\":1}}", "\"a\":1,".repeat(2 * MAX_DUPLICATES));
        assert_eq!(decode_with_duplicates(many.as_bytes()).unwrap().1.len(), MAX_DUPLICATES);
    }

    #[test]
    fn invalid_text_is_refused_at_any_depth() {
        for text in ["", "{", "[1,]", "{\"a\":1} x", &nested(300)[..600], &format!("{},", nested(300))] {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
    }
}
