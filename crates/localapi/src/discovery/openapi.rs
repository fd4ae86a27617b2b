//! The OpenAPI documents: the kinds, their fields, and the parameters that clients look for. Without descriptions. Kinds that are refused have
//! no fields, so that a client leaves them to the server.

mod protobuf;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ::http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::http::{Body, response};
use crate::resources::{GroupVersion, Kinds, Resource};
use crate::schema::{Schema, Shape, Type};
use crate::status::ApiError;

/// Clients request `…v2@v1.0+protobuf`, which Go cannot parse as a media type; the response has a dot instead of `@`.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// Where a document has its types, in each version.
const IN_VERSION_2: &str = "#/definitions/";
const IN_VERSION_3: &str = "#/components/schemas/";

pub(super) fn handle(kinds: Kinds, rest: &[&str], accept: &str) -> Result<Response<Body>, ApiError> {
    match rest {
        ["v2"] if accept.contains("proto-openapi") => {
            Ok(response::bytes(StatusCode::OK, PROTOBUF, protobuf::document(&version_2(kinds))))
        }
        ["v2"] => Ok(response::json(StatusCode::OK, &version_2(kinds))),
        ["v3"] => Ok(response::json(StatusCode::OK, &index(kinds))),
        ["v3", "api", version] => Ok(response::json(StatusCode::OK, &version_3(kinds, "", version)?)),
        ["v3", "apis", group, version] => {
            Ok(response::json(StatusCode::OK, &version_3(kinds, group, version)?))
        }
        _ => Err(ApiError::no_such_path()),
    }
}

/// The name of a type in the documents.
fn full_name(section: &str, name: &str) -> String {
    match section.split('.').next() {
        Some("apis" | "runtime" | "util" | "api") => format!("io.k8s.apimachinery.pkg.{section}.{name}"),
        _ => format!("io.k8s.api.{section}.{name}"),
    }
}

/// The name of a kind: `io.k8s.api.core.v1.Pod`, as in the real documents.
fn definition_name(resource: &Resource) -> String {
    let group = resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    full_name(&format!("{group}.{}", resource.version), resource.kind)
}

/// The types of these kinds and all that they need, by name.
fn definitions<'a>(kinds: impl Iterator<Item = &'a Resource>, prefix: &str) -> Map<String, Value> {
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    for resource in kinds {
        let mut schema = match Schema::of(resource).filter(|_| resource.advice.is_none()) {
            Some(of) => of_type(of, prefix, &mut found),
            None => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        };
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
        found.insert(definition_name(resource), schema);
    }
    found.into_iter().collect()
}

/// The schema of a type; those that it names are added to `found`.
fn of_type(of: &Type, prefix: &str, found: &mut BTreeMap<String, Value>) -> Value {
    let mut properties = Map::new();
    for field in &of.fields {
        properties.insert(field.name.to_owned(), of_shape(&field.shape, prefix, found));
    }
    let required: Vec<&str> =
        of.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn of_shape(shape: &Shape, prefix: &str, found: &mut BTreeMap<String, Value>) -> Value {
    match shape {
        Shape::Struct(section, name) => {
            let full = full_name(section, name);
            if !found.contains_key(&full)
                && let Some(of) = Schema::find(section, name)
            {
                // Before its fields, because a type may name itself.
                found.insert(full.clone(), Value::Null);
                let schema = of_type(of, prefix, found);
                found.insert(full.clone(), schema);
            }
            json!({"$ref": format!("{prefix}{full}")})
        }
        Shape::List(item) => json!({"type": "array", "items": of_shape(item, prefix, found)}),
        Shape::Map(item) => json!({"type": "object", "additionalProperties": of_shape(item, prefix, found)}),
        Shape::Any => json!({"type": "object"}),
        Shape::Scalar(scalar) => of_scalar(scalar, prefix),
    }
}

fn of_scalar(scalar: &str, prefix: &str) -> Value {
    match scalar {
        "bool" => json!({"type": "boolean"}),
        "number" => json!({"type": "number", "format": "double"}),
        "int32" | "int64" => json!({"type": "integer", "format": scalar}),
        "bytes" => json!({"type": "string", "format": "byte"}),
        "Time" | "MicroTime" => json!({"type": "string", "format": "date-time"}),
        "IntOrString" if prefix == IN_VERSION_3 => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        "IntOrString" => json!({"type": "string", "format": "int-or-string"}),
        _ => json!({"type": "string"}),
    }
}

fn version_2(kinds: Kinds) -> Value {
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": {},
        "definitions": definitions(kinds.all(), IN_VERSION_2),
    })
}

fn index(kinds: Kinds) -> Value {
    let mut paths = Map::new();
    paths.insert("api/v1".to_owned(), json!({"serverRelativeURL": "/openapi/v3/api/v1"}));
    for GroupVersion { group, version } in kinds.group_versions() {
        let path = format!("apis/{group}/{version}");
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn version_3(kinds: Kinds, group: &str, version: &str) -> Result<Value, ApiError> {
    let of_group = || kinds.all().filter(|r| r.group == group && r.version == version);
    if of_group().next().is_none() {
        return Err(ApiError::no_such_path());
    }
    let paths: Map<String, Value> = of_group().map(|resource| path_3(group, version, resource)).collect();
    Ok(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": definitions(of_group(), IN_VERSION_3)},
    }))
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
    let mut verbs = json!({"get": operation("get")});
    if resource.measured_as.is_none() {
        for verb in ["post", "patch", "put"] {
            verbs[verb] = operation(verb);
        }
    }
    (format!("{root}{scope}/{}/{{name}}", resource.name), verbs)
}
