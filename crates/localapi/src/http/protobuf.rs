//! Decodes protobuf bodies, which newer kubectl sends for the kinds that it constructs itself, to the JSON tree that the
//! rest of the server uses. `schema` lists the supported kinds; fields that it lacks are refused, never dropped. Responses
//! are JSON in any case.

mod schema;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::object;
use schema::{Field, Message, Type};

pub(crate) const MEDIA: &str = "application/vnd.kubernetes.protobuf";
/// The first bytes of every body.
const MAGIC: &[u8] = b"k8s\0";

/// A body that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the body is not Kubernetes protobuf: {0}")]
    Malformed(&'static str),
    #[error("{0} is not supported in protobuf: send JSON")]
    Kind(String),
    #[error("field {1} of {0} is not supported in protobuf: send JSON")]
    Field(&'static str, u64),
}

/// The object of a whole body, with its `apiVersion` and `kind`.
pub(crate) fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(DecodeError::Malformed("it does not begin with k8s"))?;
    let envelope = message(&schema::ENVELOPE, envelope)?;
    let text = |pointer: &str| object::text(&envelope, pointer).to_owned();
    let (api_version, kind) = (text("/typeMeta/apiVersion"), text("/typeMeta/kind"));
    let found = schema::of(&api_version, &kind);
    let schema = found.ok_or_else(|| DecodeError::Kind(format!("{api_version} {kind}")))?;
    let raw = STANDARD.decode(text("/raw")).map_err(|_| DecodeError::Malformed("it contains no object"))?;
    let mut object = message(schema, &raw)?;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    Ok(object)
}

fn message(schema: &Message, mut bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let content = content(tag & 7, &mut bytes)?;
        let number = tag >> 3;
        let field = schema.fields.iter().find(|field| u64::from(field.number) == number);
        let field = field.ok_or(DecodeError::Field(schema.name, number))?;
        put(&mut object, field, content)?;
    }
    Ok(Value::Object(object))
}

/// The encoded value of a field.
#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn content<'a>(wire: u64, bytes: &mut &'a [u8]) -> Result<Content<'a>, DecodeError> {
    match wire {
        0 => Ok(Content::Number(varint(bytes)?)),
        2 => {
            let length = usize::try_from(varint(bytes)?).unwrap_or(usize::MAX);
            let (content, rest) =
                bytes.split_at_checked(length).ok_or(DecodeError::Malformed("it is truncated"))?;
            *bytes = rest;
            Ok(Content::Bytes(content))
        }
        _ => Err(DecodeError::Malformed("it has a field of an unsupported wire type")),
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(DecodeError::Malformed("it is truncated"))?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Malformed("it has a varint that is too long"))
}

fn put(object: &mut Map<String, Value>, field: &Field, content: Content<'_>) -> Result<(), DecodeError> {
    let name = field.name.to_owned();
    match field.kind {
        Type::Many(kind) => {
            let item = single(kind, content)?;
            if let Some(items) = object.entry(name).or_insert_with(|| json!([])).as_array_mut() {
                items.push(item);
            }
        }
        Type::Map(values) => {
            let Content::Bytes(mut entry) = content else { return Err(mistyped()) };
            let (mut key, mut value) = (json!(""), json!(""));
            while !entry.is_empty() {
                let tag = varint(&mut entry)?;
                let content = self::content(tag & 7, &mut entry)?;
                match tag >> 3 {
                    1 => key = single(&Type::Text, content)?,
                    2 => value = single(values, content)?,
                    number => return Err(DecodeError::Field("a map", number)),
                }
            }
            let key = key.as_str().unwrap_or_default().to_owned();
            if let Some(map) = object.entry(name).or_insert_with(|| json!({})).as_object_mut() {
                map.insert(key, value);
            }
        }
        // Protobuf encodes unset strings of an object as empty ones.
        Type::Text | Type::Time if matches!(content, Content::Bytes([])) => {}
        Type::Text | Type::Texts | Type::Bytes | Type::Time | Type::Bool | Type::Int | Type::Message(_) => {
            object.insert(name, single(&field.kind, content)?);
        }
    }
    Ok(())
}

fn single(kind: &Type, content: Content<'_>) -> Result<Value, DecodeError> {
    match (kind, content) {
        (Type::Text, Content::Bytes(text)) => {
            let text = std::str::from_utf8(text)
                .map_err(|_| DecodeError::Malformed("it has a string that is not UTF-8"))?;
            Ok(json!(text))
        }
        (Type::Bytes, Content::Bytes(bytes)) => Ok(json!(STANDARD.encode(bytes))),
        (Type::Bool, Content::Number(number)) => Ok(json!(number != 0)),
        (Type::Int, Content::Number(number)) => Ok(json!(number.cast_signed())),
        (Type::Time, Content::Bytes(time)) => {
            let time = message(&schema::TIME, time)?;
            let second = time["seconds"].as_i64().unwrap_or_default();
            let at = Timestamp::from_second(second)
                .map_err(|_| DecodeError::Malformed("it has an invalid time"))?;
            Ok(json!(object::time(at)))
        }
        (Type::Message(schema), Content::Bytes(bytes)) => message(schema, bytes),
        (Type::Texts, Content::Bytes(bytes)) => {
            let list = message(&schema::TEXTS, bytes)?.get_mut("items").map(Value::take);
            Ok(list.unwrap_or_else(|| json!([])))
        }
        _ => Err(mistyped()),
    }
}

fn mistyped() -> DecodeError {
    DecodeError::Malformed("it has a field with the wrong wire type")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A field with bytes.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        assert!(length < 128 && number < 16, "one byte each");
        [&[number << 3 | 2, length], content].concat()
    }

    fn number(number: u8, value: u8) -> Vec<u8> {
        vec![number << 3, value]
    }

    fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let kind = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        let rest = [bytes(2, object), bytes(3, b""), bytes(4, b"")].concat();
        [MAGIC, &bytes(1, &kind), &rest].concat()
    }

    #[test]
    fn object_is_decoded_to_json() {
        let label = bytes(11, &[bytes(1, b"app"), bytes(2, b"web")].concat());
        let metadata = [bytes(1, b"s"), bytes(2, b""), bytes(8, b""), label].concat();
        let data = |key: &[u8], value: &[u8]| bytes(2, &[bytes(1, key), bytes(2, value)].concat());
        let object =
            [bytes(1, &metadata), data(b"a", b"1"), data(b"b", b""), bytes(3, b"Opaque"), number(5, 0)];
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "labels": {"app": "web"}},
            "data": {"a": "MQ==", "b": ""},
            "type": "Opaque",
            "immutable": false,
        });
        assert_eq!(decode(&body("v1", "Secret", &object.concat())), Ok(expected));
    }

    #[test]
    fn numbers_times_and_lists_are_decoded() {
        // 1 800 000 000 seconds.
        let time = [8, 0x80, 0xa4, 0xa7, 0xda, 6];
        let metadata = [bytes(8, &time), bytes(14, b"one"), bytes(14, b"two")].concat();
        let decoded = decode(&body("v1", "Namespace", &bytes(1, &metadata))).unwrap();
        let expected = json!({"creationTimestamp": "2027-01-15T08:00:00Z", "finalizers": ["one", "two"]});
        assert_eq!(decoded["metadata"], expected);
        let token = bytes(2, &[bytes(1, b"me"), vec![4 << 3, 0x90, 0x1c]].concat());
        let decoded = decode(&body("authentication.k8s.io/v1", "TokenRequest", &token)).unwrap();
        assert_eq!(decoded["spec"], json!({"audiences": ["me"], "expirationSeconds": 3600}));
        let extra = [bytes(1, b"id"), bytes(2, &[bytes(1, b"a"), bytes(1, b"b")].concat())].concat();
        let spec = bytes(2, &[bytes(1, b"pem"), bytes(6, &extra)].concat());
        let request = body("certificates.k8s.io/v1", "CertificateSigningRequest", &spec);
        let expected = json!({"request": "cGVt", "extra": {"id": ["a", "b"]}});
        assert_eq!(decode(&request).unwrap()["spec"], expected);
    }

    #[test]
    fn unknown_kinds_and_fields_are_refused_by_name() {
        let kind = decode(&body("v1", "Pod", b"")).unwrap_err();
        assert_eq!(kind.to_string(), "v1 Pod is not supported in protobuf: send JSON");
        let field = decode(&body("v1", "ConfigMap", &bytes(9, b"new"))).unwrap_err();
        assert_eq!(field, DecodeError::Field("ConfigMap", 9));
        for bad in [b"{}".as_slice(), b"k8s\0\x0a\x7f", b"k8s\0\x0d1234"] {
            assert!(matches!(decode(bad), Err(DecodeError::Malformed(_))), "{bad:?}");
        }
        let mistyped = decode(&body("v1", "ConfigMap", &number(1, 1))).unwrap_err();
        assert_eq!(mistyped, super::mistyped());
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_never_panic(content in prop::collection::vec(any::<u8>(), 0..100)) {
            for kind in ["Namespace", "Secret", "ServiceAccount"] {
                let _ = decode(&body("v1", kind, &content));
            }
            let _ = decode(&[MAGIC, &content].concat());
        }
    }
}
