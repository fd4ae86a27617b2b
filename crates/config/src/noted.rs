//! Reading a tree that may have keys twice: the last one counts, and every repeated key is noted by its path.
//! Works for any format serde reads; knows no field names.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A tree and the dotted paths of the keys it had more than once.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) tree: Value,
    pub(crate) duplicates: Vec<String>,
}

impl Noted {
    fn plain(tree: impl Into<Value>) -> Self {
        Self { tree: tree.into(), duplicates: Vec::new() }
    }
}

impl<'de> Deserialize<'de> for Noted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Noted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Noted, E> {
        Ok(Noted::plain(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Noted, E> {
        Ok(Noted::plain(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Noted, E> {
        Ok(Noted::plain(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Noted, E> {
        Ok(Noted::plain(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Noted, E> {
        Ok(Noted::plain(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Noted, E> {
        Ok(Noted::default())
    }

    fn visit_none<E: Error>(self) -> Result<Noted, E> {
        Ok(Noted::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Noted, D::Error> {
        Noted::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Noted, A::Error> {
        let (mut list, mut duplicates) = (Vec::new(), Vec::new());
        while let Some(item) = items.next_element::<Noted>()? {
            duplicates.extend(item.duplicates.iter().map(|path| format!("[{}].{path}", list.len())));
            list.push(item.tree);
        }
        Ok(Noted { tree: Value::Array(list), duplicates })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Noted, A::Error> {
        let (mut fields, mut duplicates) = (Map::new(), Vec::new());
        while let Some((key, value)) = entries.next_entry::<String, Noted>()? {
            let below = |path: &String| {
                if path.starts_with('[') { format!("{key}{path}") } else { format!("{key}.{path}") }
            };
            duplicates.extend(value.duplicates.iter().map(below));
            if fields.insert(key.clone(), value.tree).is_some() {
                duplicates.push(key);
            }
        }
        Ok(Noted { tree: Value::Object(fields), duplicates })
    }
}
