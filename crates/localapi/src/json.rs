//! JSON text that is nested more deeply than the 128 levels of `serde_json`. The real server accepts 10,000 levels, and keeps them
//! where a field takes any JSON (`managedFields[].fieldsV1`).

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Error, Map, Value};

/// The most levels that are decoded. Trees are dropped, copied and written recursively: more would need a larger stack.
pub(crate) const MAX_DEPTH: usize = 500;
/// After this many levels the remaining text gets a deserializer of its own, because one allows 128.
const LEVELS_OF_ONE_DESERIALIZER: usize = 100;

/// Decodes one JSON value of at most [`MAX_DEPTH`] levels.
pub(crate) fn decode(text: &[u8]) -> Result<Value, Error> {
    // Nearly every text is flat, and this is faster.
    if let Ok(value) = serde_json::from_slice(text) {
        return Ok(value);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Depth(0).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Decodes the value at this depth.
#[derive(Clone, Copy, Debug)]
struct Depth(usize);

impl Depth {
    const fn below(self) -> Self {
        Self(self.0 + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Depth {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.0 > MAX_DEPTH {
            return Err(D::Error::custom(format!("exceeded max depth of {MAX_DEPTH}")));
        }
        if self.0 == 0 || !self.0.is_multiple_of(LEVELS_OF_ONE_DESERIALIZER) {
            return deserializer.deserialize_any(self);
        }
        let text = <&RawValue>::deserialize(deserializer)?.get();
        serde_json::Deserializer::from_str(text).deserialize_any(self).map_err(D::Error::custom)
    }
}

impl<'de> Visitor<'de> for Depth {
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
        while let Some(item) = items.next_element_seed(self.below())? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key()? {
            map.insert(key, entries.next_value_seed(self.below())?);
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
            assert_eq!(decode(text.as_bytes()).unwrap().to_string(), text, "{levels} levels");
        }
        let error = decode(nested(MAX_DEPTH).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("exceeded max depth of 500"), "{error}");
    }

    #[test]
    fn invalid_text_is_refused_at_any_depth() {
        for text in ["", "{", "[1,]", "{\"a\":1} x", &nested(300)[..600], &format!("{},", nested(300))] {
            assert!(decode(text.as_bytes()).is_err(), "{text}");
        }
    }
}
