//! OpenAPI v2 as protobuf, the only form that old clients read: the fields of `openapi.v2.Document` and `Schema` that the documents have. They
//! are so few that they are encoded here and not by generated code.

use serde_json::{Map, Value};

/// `openapi.v2.Document`: swagger = 1, info = 2, paths = 8, definitions = 9.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut encoded = field(1, b"2.0");
    encoded.extend(field(2, &[field(1, b"Kubernetes"), field(2, b"v1.36.0")].concat()));
    encoded.extend(field(8, &[]));
    encoded.extend(field(9, &named_schemas(document.get("definitions"))));
    encoded
}

/// `Definitions` and `Properties`: additional_properties = 1. `NamedSchema`: name = 1, value = 2.
fn named_schemas(schemas: Option<&Value>) -> Vec<u8> {
    let named = |(name, value): (&String, &Value)| {
        field(1, &[field(1, name.as_bytes()), field(2, &schema(value))].concat())
    };
    schemas.and_then(Value::as_object).into_iter().flatten().flat_map(named).collect()
}

/// `Schema`: ref = 1, format = 2, required = 19, additional_properties = 21, type = 22, items = 23, properties = 25, vendor_extension = 31.
/// `TypeItem`: value = 1. `ItemsItem` and `AdditionalPropertiesItem`: schema = 1.
fn schema(value: &Value) -> Vec<u8> {
    let mut encoded = Vec::new();
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    for (number, name) in [(1, "$ref"), (2, "format")] {
        encoded.extend(text(name).into_iter().flat_map(|text| field(number, text.as_bytes())));
    }
    for required in value.get("required").and_then(Value::as_array).into_iter().flatten() {
        encoded.extend(field(19, required.as_str().unwrap_or_default().as_bytes()));
    }
    if let Some(of) = value.get("additionalProperties") {
        encoded.extend(field(21, &field(1, &schema(of))));
    }
    if let Some(kind) = text("type") {
        encoded.extend(field(22, &field(1, kind.as_bytes())));
    }
    if let Some(of) = value.get("items") {
        encoded.extend(field(23, &field(1, &schema(of))));
    }
    if value.get("properties").is_some() {
        encoded.extend(field(25, &named_schemas(value.get("properties"))));
    }
    for (name, extension) in
        value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-"))
    {
        encoded.extend(field(
            31,
            &[field(1, name.as_bytes()), field(2, &field(2, yaml(extension).as_bytes()))].concat(),
        ));
    }
    encoded
}

/// The value of an extension as `Any` has it: YAML, of which a list of flat maps and a scalar are needed.
fn yaml(value: &Value) -> String {
    let line = |map: &Map<String, Value>| {
        let fields = map.iter().map(|(name, value)| format!("{name}: {value}"));
        format!("- {}\n", fields.collect::<Vec<_>>().join("\n  "))
    };
    match value.as_array() {
        Some(items) => items.iter().filter_map(Value::as_object).map(line).collect(),
        None => format!("{value}\n"),
    }
}

/// One field of bytes: its number and wire type 2, the length, the bytes.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut field = varint(number << 3 | 2);
    field.extend(varint(bytes.len() as u64));
    field.extend_from_slice(bytes);
    field
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn protobuf_varints_and_fields_are_encoded() {
        assert_eq!(varint(1), [1]);
        assert_eq!(varint(300), [0xac, 0x02]);
        assert_eq!(field(2, b"testing"), [&[0x12, 7], b"testing".as_slice()].concat());
    }

    #[test]
    fn schema_has_its_parts_under_their_numbers() {
        assert_eq!(
            schema(&json!({"type": "string"})),
            [0xb2, 1, 8, 10, 6, b's', b't', b'r', b'i', b'n', b'g']
        );
        let kinds = json!([{"group": "", "version": "v1", "kind": "Pod"}]);
        assert_eq!(yaml(&kinds), "- group: \"\"\n  kind: \"Pod\"\n  version: \"v1\"\n");
        assert_eq!(yaml(&json!(true)), "true\n");
    }
}
