//! Decodes protobuf bodies, which newer kubectl and many controllers send, to the JSON tree that the rest of the server uses. The fields are
//! those of `schema`; one that it lacks is refused, never dropped. Responses are JSON in any case.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::json;
use crate::object;
use crate::schema::{Field, Schema, Shape, Type};

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
    // `runtime.Unknown`: the kind, the encoded object, and how it is encoded; `TypeMeta`: version and kind.
    let [kind_of, raw, ..] = texts::<5>("Unknown", envelope)?;
    let [api_version, kind] = texts::<2>("TypeMeta", kind_of)?;
    let (api_version, kind) = (utf8(api_version)?, utf8(kind)?);
    let of = Schema::of_object(api_version, kind);
    let of = of.ok_or_else(|| DecodeError::Kind(format!("{api_version} {kind}")))?;
    let mut object = message(of, raw)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

/// The encoded value of a field.
#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Takes the next field: its number and content.
fn next<'a>(bytes: &mut &'a [u8]) -> Result<Option<(u64, Content<'a>)>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let tag = varint(bytes)?;
    Ok(Some((tag >> 3, content(tag & 7, bytes)?)))
}

/// The fields 1 to `N` of a message that has only bytes; empty where it has none.
fn texts<'a, const N: usize>(name: &'static str, mut bytes: &'a [u8]) -> Result<[&'a [u8]; N], DecodeError> {
    let mut found: [&[u8]; N] = [&[]; N];
    while let Some((number, content)) = next(&mut bytes)? {
        let Content::Bytes(content) = content else { return Err(mistyped()) };
        let place = usize::try_from(number).ok().and_then(|number| found.get_mut(number.checked_sub(1)?));
        *place.ok_or(DecodeError::Field(name, number))? = content;
    }
    Ok(found)
}

fn utf8(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Malformed("it has a string that is not UTF-8"))
}

fn message(of: &Type, bytes: &[u8]) -> Result<Map<String, Value>, DecodeError> {
    let mut object = Map::new();
    fill(&mut object, of, None, bytes)?;
    Ok(object)
}

/// Adds the fields of a message; `outer` is the number of one that JSON does not have, whose fields are those of the object around it.
fn fill(
    object: &mut Map<String, Value>,
    of: &Type,
    outer: Option<u8>,
    mut bytes: &[u8],
) -> Result<(), DecodeError> {
    while let Some((number, content)) = next(&mut bytes)? {
        let field = of.fields.iter().find(|field| u64::from(field.number) == number && field.outer == outer);
        match (field, content) {
            (Some(field), content) if number > 0 => put(object, field, content)?,
            (_, Content::Bytes(inner)) if outer.is_none() => {
                let within = |field: &&Field| field.outer.is_some_and(|outer| u64::from(outer) == number);
                let field = of.fields.iter().find(within).ok_or(DecodeError::Field(of.name, number))?;
                fill(object, of, field.outer, inner)?;
            }
            _ => return Err(DecodeError::Field(of.name, number)),
        }
    }
    Ok(())
}

fn put(object: &mut Map<String, Value>, field: &Field, content: Content<'_>) -> Result<(), DecodeError> {
    let name = field.name.to_owned();
    match &field.shape {
        Shape::List(item) => {
            let item = single(item, content)?;
            if let Some(items) = object.entry(name).or_insert_with(|| json!([])).as_array_mut() {
                items.push(item);
            }
        }
        Shape::Map(values) => {
            let (key, value) = entry(values, content)?;
            if let Some(map) = object.entry(name).or_insert_with(|| json!({})).as_object_mut() {
                map.insert(key, value);
            }
        }
        // Protobuf encodes unset values of an object as empty ones.
        Shape::Scalar(_) if is_empty(content) && !field.optional && !field.required => {}
        Shape::Scalar("Time" | "MicroTime") if is_empty(content) => {}
        shape @ (Shape::Scalar(_) | Shape::Struct(..) | Shape::Any) => {
            object.insert(name, single(shape, content)?);
        }
    }
    Ok(())
}

const fn is_empty(content: Content<'_>) -> bool {
    matches!(content, Content::Number(0) | Content::Bytes([]))
}

/// An entry of a map: key = 1, value = 2.
fn entry(values: &Shape, content: Content<'_>) -> Result<(String, Value), DecodeError> {
    let Content::Bytes(mut bytes) = content else { return Err(mistyped()) };
    let (mut key, mut value) = ("", json!(""));
    while let Some((number, content)) = next(&mut bytes)? {
        match (number, content) {
            (1, Content::Bytes(text)) => key = utf8(text)?,
            (2, content) => {
                value = match (values, content) {
                    // A list as the value of a map is a message with only that list.
                    (Shape::List(item), Content::Bytes(list)) => listed(item, list)?,
                    (values, content) => single(values, content)?,
                };
            }
            (number, _) => return Err(DecodeError::Field("a map", number)),
        }
    }
    Ok((key.to_owned(), value))
}

fn listed(item: &Shape, mut bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut items = Vec::new();
    while let Some((_, content)) = next(&mut bytes)? {
        items.push(single(item, content)?);
    }
    Ok(Value::Array(items))
}

fn single(shape: &Shape, content: Content<'_>) -> Result<Value, DecodeError> {
    match (shape, content) {
        (Shape::Struct(section, name), Content::Bytes(bytes)) => {
            let of = Schema::find(section, name).ok_or_else(|| DecodeError::Kind((*name).to_owned()))?;
            message(of, bytes).map(Value::Object)
        }
        // A raw value of any kind is a message with its JSON.
        (Shape::Any, Content::Bytes(bytes)) => {
            let [raw] = texts::<1>("a raw value", bytes)?;
            json::decode(raw).map_err(|_| DecodeError::Malformed("it has a raw value that is not JSON"))
        }
        (Shape::Scalar(kind), content) => scalar(kind, content),
        _ => Err(mistyped()),
    }
}

fn scalar(kind: &str, content: Content<'_>) -> Result<Value, DecodeError> {
    match (kind, content) {
        ("string", Content::Bytes(text)) => Ok(json!(utf8(text)?)),
        ("bytes", Content::Bytes(bytes)) => Ok(json!(STANDARD.encode(bytes))),
        ("bool", Content::Number(number)) => Ok(json!(number != 0)),
        ("int32" | "int64", Content::Number(number)) => Ok(json!(number.cast_signed())),
        ("Quantity", Content::Bytes(bytes)) => {
            let [text] = texts::<1>("Quantity", bytes)?;
            Ok(json!(utf8(text)?))
        }
        ("IntOrString", Content::Bytes(bytes)) => int_or_string(bytes),
        ("Time", Content::Bytes(bytes)) => Ok(json!(object::time(timestamp(bytes)?))),
        ("MicroTime", Content::Bytes(bytes)) => {
            Ok(json!(timestamp(bytes)?.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()))
        }
        _ => Err(mistyped()),
    }
}

/// `IntOrString`: type = 1 (0 for the number), number = 2, text = 3.
fn int_or_string(mut bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut is_text, mut number, mut text) = (false, 0, "");
    while let Some(field) = next(&mut bytes)? {
        match field {
            (1, Content::Number(kind)) => is_text = kind != 0,
            (2, Content::Number(value)) => number = value.cast_signed(),
            (3, Content::Bytes(value)) => text = utf8(value)?,
            (number, _) => return Err(DecodeError::Field("IntOrString", number)),
        }
    }
    Ok(if is_text { json!(text) } else { json!(number) })
}

/// `Time`: seconds = 1, nanoseconds = 2.
fn timestamp(mut bytes: &[u8]) -> Result<Timestamp, DecodeError> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    while let Some(field) = next(&mut bytes)? {
        match field {
            (1, Content::Number(value)) => seconds = value.cast_signed(),
            (2, Content::Number(value)) => nanoseconds = i32::try_from(value).unwrap_or(0),
            (number, _) => return Err(DecodeError::Field("Time", number)),
        }
    }
    Timestamp::new(seconds, nanoseconds).map_err(|_| DecodeError::Malformed("it has an invalid time"))
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
    fn pod_with_inlined_messages_quantities_and_ports_is_decoded() {
        // The source of a volume and the handler of a probe are messages of their own, which JSON does not have.
        let volume = [bytes(1, b"v"), bytes(2, &bytes(6, &bytes(1, b"s")))].concat();
        let limit = [bytes(1, b"cpu"), bytes(2, &bytes(1, b"500m"))].concat();
        let port = [number(1, 0), number(2, 80), bytes(3, b"")].concat();
        let probe = [bytes(1, &bytes(2, &[bytes(1, b"/"), bytes(2, &port)].concat())), number(2, 0)].concat();
        let container = [bytes(1, b"main"), bytes(8, &bytes(1, &limit)), bytes(10, &probe)].concat();
        // Zero of a pointer is a value, false of a plain field is none.
        let spec = [bytes(1, &volume), bytes(2, &container), number(4, 0), number(11, 0)].concat();
        let decoded = decode(&body("v1", "Pod", &bytes(2, &spec))).unwrap();
        let expected = json!({
            "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
            "containers": [{
                "name": "main",
                "resources": {"limits": {"cpu": "500m"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
            }],
            "terminationGracePeriodSeconds": 0,
        });
        assert_eq!(decoded["spec"], expected);
    }

    #[test]
    fn roles_and_bindings_are_decoded() {
        // The core group is an empty string, which must not get lost.
        let rule = [bytes(1, b"get"), bytes(1, b"list"), bytes(2, b""), bytes(3, b"pods")].concat();
        let object = [bytes(1, &bytes(1, b"r")), bytes(2, &rule)].concat();
        let decoded = decode(&body("rbac.authorization.k8s.io/v1", "Role", &object)).unwrap();
        let expected = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(decoded["rules"], expected);
        let subject = [bytes(1, b"User"), bytes(2, b"g"), bytes(3, b"a"), bytes(4, b"")].concat();
        let role = [bytes(1, b"g"), bytes(2, b"Role"), bytes(3, b"r")].concat();
        let object = [bytes(1, &bytes(1, b"b")), bytes(2, &subject), bytes(3, &role)].concat();
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            let decoded = decode(&body("rbac.authorization.k8s.io/v1", kind, &object)).unwrap();
            assert_eq!(decoded["subjects"], json!([{"kind": "User", "apiGroup": "g", "name": "a"}]));
            assert_eq!(decoded["roleRef"], json!({"apiGroup": "g", "kind": "Role", "name": "r"}));
        }
        let label = bytes(1, &[bytes(1, b"a"), bytes(2, b"b")].concat());
        let object = bytes(3, &bytes(1, &label));
        let decoded = decode(&body("rbac.authorization.k8s.io/v1", "ClusterRole", &object)).unwrap();
        let expected = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
        assert_eq!(decoded["aggregationRule"], expected);
    }

    #[test]
    fn unknown_kinds_and_fields_are_refused_by_name() {
        let kind = decode(&body("v1", "Widget", b"")).unwrap_err();
        assert_eq!(kind.to_string(), "v1 Widget is not supported in protobuf: send JSON");
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
            for kind in ["Namespace", "Secret", "ServiceAccount", "Pod", "PersistentVolume", "Event"] {
                let _ = decode(&body("v1", kind, &content));
            }
            let _ = decode(&[MAGIC, &content].concat());
        }
    }
}
