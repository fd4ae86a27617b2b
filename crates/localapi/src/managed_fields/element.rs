//! One step of a path in an object, as `fieldsV1` writes it: `f:name`, `k:{"name":"a"}`, `v:"a"`, `i:0`.
//!
//! Owns the order of steps, their text in `fieldsV1`, and their text in messages.

use std::fmt;

use serde_json::{Map, Value};

/// A step that a newer server wrote is ignored; see [`Element::parse`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    /// A field of a map.
    Field(String),
    /// The element of a list that has these fields, which are sorted by name.
    Key(Vec<(String, Scalar)>),
    /// The element of a set.
    Value(Scalar),
    /// The element of a list without keys. This server writes none.
    Index(i64),
}

/// A value in a key or a set, in the order in which the real server sorts values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scalar {
    Number(i64),
    Text(String),
    Flag(bool),
    /// The JSON text of any other value.
    Other(String),
}

/// A text that is not a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path element of managed fields")]
pub(super) struct InvalidElement(String);

impl Element {
    /// Parses the key of a `fieldsV1` map. `None` for a kind of step that is not known.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, InvalidElement> {
        let invalid = || InvalidElement(text.to_owned());
        let (kind, rest) = text.split_at_checked(2).ok_or_else(invalid)?;
        let json = || serde_json::from_str::<Value>(rest).map_err(|_| invalid());
        match kind {
            "f:" => Ok(Some(Self::Field(rest.to_owned()))),
            "v:" => Ok(Some(Self::Value(Scalar::of(&json()?)))),
            "k:" => match json()? {
                Value::Object(fields) => Ok(Some(Self::key(fields))),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    Err(invalid())
                }
            },
            "i:" => rest.parse().map(|index| Some(Self::Index(index))).map_err(|_| invalid()),
            _ if kind.ends_with(':') => Ok(None),
            _ => Err(invalid()),
        }
    }

    fn key(fields: Map<String, Value>) -> Self {
        let mut key: Vec<(String, Scalar)> =
            fields.into_iter().map(|(name, value)| (name, Scalar::of(&value))).collect();
        key.sort();
        Self::Key(key)
    }

    /// The text in `fieldsV1`.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{}:{}", quoted(name), value.json())).collect();
                format!("k:{{{}}}", fields.join(","))
            }
            Self::Value(value) => format!("v:{}", value.json()),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// As in a path of an error message: `.spec`, `[name="a"]`, `[="a"]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Scalar {
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            Value::Bool(flag) => Self::Flag(*flag),
            Value::Number(number) => match number.as_i64() {
                Some(number) => Self::Number(number),
                None => Self::Other(number.to_string()),
            },
            Value::Null | Value::Array(_) | Value::Object(_) => Self::Other(value.to_string()),
        }
    }

    fn json(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => quoted(text),
            Self::Flag(flag) => flag.to_string(),
            Self::Other(text) => text.clone(),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{}", Value::from(text.as_str())),
            Self::Number(_) | Self::Flag(_) | Self::Other(_) => f.write_str(&self.json()),
        }
    }
}

/// A JSON string as Go writes it: characters with a meaning in HTML are escaped.
fn quoted(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    if !quoted.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return quoted;
    }
    let escapes = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    escapes.iter().fold(quoted, |text, (character, escape)| text.replace(*character, escape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_elements_keep_their_text() {
        for text in [
            "f:metadata",
            "f:",
            "f:app.kubernetes.io/name",
            "f:a:b",
            r#"k:{"name":"a"}"#,
            r#"k:{"containerPort":80,"protocol":"TCP"}"#,
            r#"k:{"a":true,"b":null,"c":1.5}"#,
            r#"v:"a\"b""#,
            "v:1",
            "v:-7",
            "v:true",
            r#"v:"\u003ca\u003e""#,
            "i:0",
            "i:-1",
        ] {
            let element = Element::parse(text).unwrap().unwrap();
            assert_eq!(element.text(), text);
        }
        let reordered = Element::parse(r#"k: {"protocol": "TCP", "containerPort": 80}"#).unwrap().unwrap();
        assert_eq!(reordered.text(), r#"k:{"containerPort":80,"protocol":"TCP"}"#);
    }

    #[test]
    fn unknown_kinds_of_path_elements_are_ignored_and_malformed_ones_refused() {
        assert_eq!(Element::parse("x:new").unwrap(), None);
        for text in ["", "f", "é", "name", "k:", "k:[]", "k:1", "k:{} {}", "v:", "v:a", "i:", "i:one"] {
            assert!(Element::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn path_elements_are_sorted_by_kind_and_numbers_by_value() {
        let sorted = [
            "f:a",
            "f:b",
            r#"k:{"a":1}"#,
            r#"k:{"a":1,"b":1}"#,
            r#"k:{"a":2}"#,
            r#"k:{"a":10}"#,
            r#"k:{"a":"1"}"#,
            r#"k:{"b":0}"#,
            "v:2",
            "v:10",
            r#"v:"a""#,
            r#"v:"b""#,
            "v:false",
            "v:true",
            "v:null",
            "i:1",
            "i:10",
        ];
        let mut elements: Vec<Element> =
            sorted.iter().rev().map(|text| Element::parse(text).unwrap().unwrap()).collect();
        elements.sort();
        let texts: Vec<String> = elements.iter().map(Element::text).collect();
        assert_eq!(texts, sorted);
    }

    #[test]
    fn path_elements_are_shown_as_in_messages_of_the_real_server() {
        for (text, shown) in [
            ("f:spec", ".spec"),
            (r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#),
            (r#"v:"x""#, r#"[="x"]"#),
            ("i:3", "[3]"),
        ] {
            assert_eq!(Element::parse(text).unwrap().unwrap().to_string(), shown);
        }
    }
}
