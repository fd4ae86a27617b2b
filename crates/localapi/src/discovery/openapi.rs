//! A minimal OpenAPI document: every kind is listed and accepts any field, so that client-side validation finds the kind and
//! leaves its fields to the server.

use ::http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::http::{Body, response};
use crate::resources::{self, RESOURCES, Resource};
use crate::status::ApiError;

/// Clients request `…v2@v1.0+protobuf`, which Go cannot parse as a media type; the response has a dot instead of `@`.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

pub(super) fn handle(rest: &[&str], accept: &str) -> Result<Response<Body>, ApiError> {
    match rest {
        ["v2"] if accept.contains("proto-openapi") => {
            Ok(response::bytes(StatusCode::OK, PROTOBUF, protobuf::document()))
        }
        ["v2"] => Ok(response::json(StatusCode::OK, &version_2())),
        ["v3"] => Ok(response::json(StatusCode::OK, &index())),
        ["v3", "api", version] => version_3("", version),
        ["v3", "apis", group, version] => version_3(group, version),
        _ => Err(ApiError::no_such_path()),
    }
}

/// `io.k8s.api.core.v1.Pod`, as in the real documents.
fn definition_name(resource: &Resource) -> String {
    let group = resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("io.k8s.api.{group}.{}.{}", resource.version, resource.kind)
}

fn schema(resource: &Resource) -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-group-version-kind": [
            {"group": resource.group, "version": resource.version, "kind": resource.kind},
        ],
    })
}

fn version_2() -> Value {
    let definitions: Map<String, Value> =
        RESOURCES.iter().map(|resource| (definition_name(resource), schema(resource))).collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": {},
        "definitions": definitions,
    })
}

fn index() -> Value {
    let mut paths = Map::new();
    paths.insert("api/v1".to_owned(), json!({"serverRelativeURL": "/openapi/v3/api/v1"}));
    for (group, version) in resources::groups() {
        let path = format!("apis/{group}/{version}");
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn version_3(group: &str, version: &str) -> Result<Response<Body>, ApiError> {
    let of_group = || RESOURCES.iter().filter(|r| r.group == group && r.version == version);
    if of_group().next().is_none() {
        return Err(ApiError::no_such_path());
    }
    let schemas: Map<String, Value> =
        of_group().map(|resource| (definition_name(resource), schema(resource))).collect();
    let paths: Map<String, Value> = of_group().map(|resource| path_3(group, version, resource)).collect();
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    });
    Ok(response::json(StatusCode::OK, &document))
}

/// The path of one object, with the parameters that kubectl requires for server-side validation.
fn path_3(group: &str, version: &str, resource: &Resource) -> (String, Value) {
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"]
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .to_vec();
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let operation = |action: &str| {
        json!({
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        })
    };
    let verbs = json!({"post": operation("post"), "patch": operation("patch"), "put": operation("put")});
    (format!("{root}{scope}/{}/{{name}}", resource.name), verbs)
}

/// OpenAPI v2 as protobuf, the only form that old clients read. It has so few fields that they are encoded here and not by
/// generated code.
mod protobuf {
    use crate::resources::{RESOURCES, Resource};

    /// `openapi.v2.Document`: swagger = 1, info = 2, definitions = 9.
    pub(super) fn document() -> Vec<u8> {
        let mut document = field(1, b"2.0");
        document.extend(field(2, &[field(1, b"Kubernetes"), field(2, b"v1.36.0")].concat()));
        document.extend(field(8, &[]));
        let definitions: Vec<u8> =
            RESOURCES.iter().flat_map(|resource| field(1, &named_schema(resource))).collect();
        document.extend(field(9, &definitions));
        document
    }

    /// `NamedSchema`: name = 1, value = 2.
    fn named_schema(resource: &Resource) -> Vec<u8> {
        let name = super::definition_name(resource);
        [field(1, name.as_bytes()), field(2, &schema(resource))].concat()
    }

    /// `Schema`: type = 22, vendor extensions = 31. `TypeItem`: value = 1. `NamedAny`: name = 1, value = 2. `Any`: yaml = 2.
    fn schema(resource: &Resource) -> Vec<u8> {
        let yaml = format!(
            "- group: \"{}\"\n  version: {}\n  kind: {}\n",
            resource.group, resource.version, resource.kind
        );
        let kinds =
            [field(1, b"x-kubernetes-group-version-kind"), field(2, &field(2, yaml.as_bytes()))].concat();
        let open =
            [field(1, b"x-kubernetes-preserve-unknown-fields"), field(2, &field(2, b"true\n"))].concat();
        [field(22, &field(1, b"object")), field(31, &kinds), field(31, &open)].concat()
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
        use super::*;

        #[test]
        fn protobuf_varints_and_fields_are_encoded() {
            assert_eq!(varint(1), [1]);
            assert_eq!(varint(300), [0xac, 0x02]);
            assert_eq!(field(2, b"testing"), [&[0x12, 7], b"testing".as_slice()].concat());
        }
    }
}
