//! The protobuf form of a pod (`k8s.io.api.core.v1.Pod`), made from its JSON by a table of field numbers.
//!
//! The kubelet speaks JSON with the API server, so that it has no generated messages for pods; a table is smaller, and only the Pods API
//! needs it. Fields come in the order of their numbers, as the Go kubelet writes them; a field without a value is left out.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use model::k8s::Pod;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value};

/// A line for each message: `<message> <field>=<number>:<type>…`. `*` marks a list, `^` a message whose fields are in JSON among those of
/// its parent. Names and numbers are those of the Kubernetes API (`core/v1/generated.proto` of 1.36).
const FIELDS: &str = include_str!("pod_fields.txt");
const POD: &str = "Pod";

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(FIELDS));

/// Why a pod cannot be encoded. Without the value, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EncodeError {
    #[error("the value of field {0} has another type than in the Kubernetes API")]
    Type(&'static str),
    #[error("the pod has no JSON form: {0}")]
    Json(String),
}

/// The encoded pod.
pub(super) fn encode_pod(pod: &Pod) -> Result<Vec<u8>, EncodeError> {
    let value = serde_json::to_value(pod).map_err(|error| EncodeError::Json(error.to_string()))?;
    let mut out = Vec::new();
    if let Value::Object(fields) = &value {
        TABLE.encode(POD, fields, &mut out)?;
    }
    Ok(out)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Text,
    Int,
    Bool,
    Time,
    Quantity,
    IntOrText,
    Json,
    Map,
    Quantities,
    Message(&'static str),
    /// Its fields are among those of the parent.
    Inline(&'static str),
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    number: u32,
    kind: Type,
    is_list: bool,
}

/// The fields of each message.
#[derive(Debug)]
struct Table(BTreeMap<&'static str, Vec<Field>>);

impl Table {
    /// What cannot be parsed is left out; a test shows that there is no such thing.
    fn parse(text: &'static str) -> Self {
        let message = |line: &'static str| {
            let (name, fields) = line.split_once(' ')?;
            Some((name, fields.split(' ').filter_map(Field::parse).collect()))
        };
        Self(text.lines().filter_map(message).collect())
    }

    /// As deep as the table is.
    fn encode(
        &self,
        message: &str,
        object: &Map<String, Value>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        for field in self.0.get(message).into_iter().flatten() {
            if let Type::Inline(inner) = field.kind {
                let mut encoded = Vec::new();
                self.encode(inner, object, &mut encoded)?;
                put_bytes(field.number, &encoded, out);
                continue;
            }
            match (object.get(field.name), field.is_list) {
                (None | Some(Value::Null), _) => {}
                (Some(Value::Array(items)), true) => {
                    items.iter().try_for_each(|item| self.put(field, item, out))?;
                }
                (Some(_), true) => return Err(EncodeError::Type(field.name)),
                (Some(value), false) => self.put(field, value, out)?,
            }
        }
        Ok(())
    }

    fn put(&self, field: &Field, value: &Value, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let refused = EncodeError::Type(field.name);
        match (field.kind, value) {
            (Type::Text, Value::String(text)) => put_bytes(field.number, text.as_bytes(), out),
            (Type::Int, Value::Number(number)) => {
                put_int(field.number, number.as_i64().ok_or(refused)?, out);
            }
            (Type::Bool, Value::Bool(flag)) => put_int(field.number, i64::from(*flag), out),
            (Type::Time, Value::String(text)) => {
                put_bytes(field.number, &time(text).ok_or(refused)?, out);
            }
            (Type::Quantity, Value::String(text)) => put_bytes(field.number, &wrapped(text.as_bytes()), out),
            (Type::IntOrText, value) => put_bytes(field.number, &int_or_text(value).ok_or(refused)?, out),
            (Type::Json, value) => put_bytes(field.number, &wrapped(value.to_string().as_bytes()), out),
            (Type::Map | Type::Quantities, Value::Object(entries)) => {
                for (key, value) in entries {
                    let value = value.as_str().ok_or(EncodeError::Type(field.name))?;
                    put_bytes(field.number, &entry(key, value, field.kind), out);
                }
            }
            (Type::Message(message), Value::Object(object)) => {
                let mut encoded = Vec::new();
                self.encode(message, object, &mut encoded)?;
                put_bytes(field.number, &encoded, out);
            }
            _ => return Err(refused),
        }
        Ok(())
    }
}

impl Field {
    fn parse(text: &'static str) -> Option<Self> {
        let (name, rest) = text.split_once('=')?;
        let (number, kind) = rest.split_once(':')?;
        let (kind, is_list) = kind.strip_suffix('*').map_or((kind, false), |kind| (kind, true));
        let kind = match kind {
            "text" => Type::Text,
            "int" => Type::Int,
            "bool" => Type::Bool,
            "time" => Type::Time,
            "quantity" => Type::Quantity,
            "int-or-text" => Type::IntOrText,
            "json" => Type::Json,
            "map" => Type::Map,
            "quantities" => Type::Quantities,
            message => message.strip_prefix('^').map_or(Type::Message(message), Type::Inline),
        };
        Some(Self { name, number: number.parse().ok()?, kind, is_list })
    }
}

fn put_int(number: u32, value: i64, out: &mut Vec<u8>) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value.cast_unsigned(), out);
}

fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A message with one field.
fn wrapped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(1, bytes, &mut out);
    out
}

/// An entry of a map.
fn entry(key: &str, value: &str, kind: Type) -> Vec<u8> {
    let mut out = wrapped(key.as_bytes());
    if kind == Type::Quantities {
        put_bytes(2, &wrapped(value.as_bytes()), &mut out);
    } else {
        put_bytes(2, value.as_bytes(), &mut out);
    }
    out
}

/// `Time`: seconds and nanoseconds.
fn time(text: &str) -> Option<Vec<u8>> {
    let at: Timestamp = text.parse().ok()?;
    let mut out = Vec::new();
    put_int(1, at.as_second(), &mut out);
    put_int(2, i64::from(at.subsec_nanosecond()), &mut out);
    Some(out)
}

/// `IntOrString`: which of the two, and both.
fn int_or_text(value: &Value) -> Option<Vec<u8>> {
    let (kind, number, text) = match (value.as_i64(), value.as_str()) {
        (Some(number), _) => (0, number, ""),
        (None, Some(text)) => (1, 0, text),
        (None, None) => return None,
    };
    let mut out = Vec::new();
    put_int(1, kind, &mut out);
    put_int(2, number, &mut out);
    put_bytes(3, text.as_bytes(), &mut out);
    Some(out)
}

#[cfg(test)]
mod tests;
