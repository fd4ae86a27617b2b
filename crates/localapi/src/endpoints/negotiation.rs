//! Content negotiation by the Accept header, and the conversion of objects to the result: the object, a table, or only its
//! metadata. Responses are JSON or YAML; a client that prefers protobuf lists JSON as its second choice.

use std::borrow::Cow;

use ::http::{HeaderValue, Response, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::encoding::OMITEMPTY_MAPS;
use crate::events;
use crate::http::{Body, response};
use crate::json;
use crate::resources::Resource;
use crate::status::ApiError;
use crate::table;

/// The form of objects in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Object,
    /// `meta.k8s.io` Table in this version (`v1`, `v1beta1`).
    Table(String),
    /// PartialObjectMetadata in this version.
    Metadata(String),
}

/// How a response is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

impl Media {
    /// The first supported entry of the header. Weights are ignored, because clients send entries in order of preference.
    pub(crate) fn negotiate(accept: &str) -> Result<(Self, Format), ApiError> {
        if accept.trim().is_empty() {
            return Ok((Self::Object, Format::Json));
        }
        accept.split(',').find_map(entry).ok_or_else(ApiError::not_acceptable)
    }
}

fn entry(entry: &str) -> Option<(Media, Format)> {
    let mut parts = entry.split(';').map(str::trim);
    let format = match parts.next()? {
        "application/json" | "application/*" | "*/*" => Format::Json,
        response::YAML => Format::Yaml,
        _ => return None,
    };
    let (mut kind, mut version, mut group) = (None, "v1", "meta.k8s.io");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => kind = Some(value),
            Some(("v", value)) => version = value,
            Some(("g", value)) => group = value,
            Some(_) | None => {}
        }
    }
    let known = group == "meta.k8s.io" && ["v1", "v1beta1"].contains(&version);
    let media = match kind {
        None => Media::Object,
        Some("Table") if known => Media::Table(version.to_owned()),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") if known => {
            Media::Metadata(version.to_owned())
        }
        Some(_) => return None,
    };
    Some((media, format))
}

/// The response in this format; one that is no JSON document stays as it is.
pub(super) async fn formatted(response: Response<Body>, format: Format) -> Result<Response<Body>, ApiError> {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|of| of == response::JSON);
    if format == Format::Json || !is_json {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let text = body.collect().await.map_err(|error| ApiError::internal(error.to_string()))?.to_bytes();
    let value = json::decode(&text).map_err(|error| ApiError::internal(error.to_string()))?;
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(response::YAML));
    let body = Full::new(Bytes::from(yaml::write(&value).map_err(ApiError::internal)?));
    Ok(Response::from_parts(parts, body.map_err(|never| match never {}).boxed_unsync()))
}

/// What the rows of a table contain of their object (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, ApiError> {
        match text {
            Some("None") => Ok(Self::Nothing),
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("Object") => Ok(Self::Object),
            Some(other) => {
                let message = format!("includeObject: {other:?} is not one of None, Metadata, Object");
                Err(ApiError::bad_request(message))
            }
        }
    }
}

/// Whether [`converted`] changes an object.
pub(crate) fn converts(resource: &Resource, unknown_fields: bool) -> bool {
    resource.group == events::GROUP || unknown_fields
}

/// The object in the version of `resource`. `unknown_fields` adds fields that no client knows.
pub(crate) fn converted<'a>(resource: &Resource, object: &'a Value, unknown_fields: bool) -> Cow<'a, Value> {
    let mut converted = if resource.group == events::GROUP {
        Cow::Owned(events::to_events_group(object))
    } else {
        Cow::Borrowed(object)
    };
    if unknown_fields {
        add_unknown_fields(converted.to_mut());
    }
    converted
}

/// Whether users or nodes choose the keys of this map: an added key would be another label, resource or setting.
fn has_free_keys(field: &str) -> bool {
    OMITEMPTY_MAPS.contains(&field) || field == "selector"
}

/// Adds unknown fields to every struct of the tree.
fn add_unknown_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if !has_free_keys(name) {
                    add_unknown_fields(field);
                }
            }
            fields.insert("unknownNull".to_owned(), Value::Null);
            fields.insert("unknownStruct".to_owned(), json!({"inner": {}, "list": [], "text": "new"}));
        }
        Value::Array(items) => items.iter_mut().for_each(add_unknown_fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The object as `PartialObjectMetadata`.
pub(crate) fn metadata_only(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": object["metadata"],
    })
}

/// A list of such objects. As in the real server, each has its kind.
pub(crate) fn metadata_list(items: Vec<Value>, metadata: Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
        "items": items,
    })
}

/// The objects as a `Table`.
pub(crate) fn as_table(
    resource: &Resource,
    objects: &[Value],
    version: &str,
    include: Include,
    now: Timestamp,
) -> Value {
    with_objects(table::render(resource.name, objects, now), objects, version, include)
}

/// A table whose rows contain their objects.
pub(crate) fn with_objects(mut table: Value, objects: &[Value], version: &str, include: Include) -> Value {
    table["apiVersion"] = json!(format!("meta.k8s.io/{version}"));
    if let Some(rows) = table["rows"].as_array_mut() {
        for (row, object) in rows.iter_mut().zip(objects) {
            row["object"] = match include {
                Include::Nothing => Value::Null,
                Include::Metadata => metadata_only(object, version),
                Include::Object => object.clone(),
            };
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_supported_accept_entry_is_selected() {
        for (accept, expected) in [
            ("", Media::Object),
            ("*/*", Media::Object),
            ("application/vnd.kubernetes.protobuf,application/json", Media::Object),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Media::Table("v1".to_owned())),
            ("application/json;as=Table;v=v9;g=meta.k8s.io, application/json", Media::Object),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Media::Metadata("v1".to_owned()),
            ),
        ] {
            assert_eq!(Media::negotiate(accept).unwrap(), (expected, Format::Json), "{accept}");
        }
        let yaml = Media::negotiate("application/xml, application/yaml, application/json").unwrap();
        assert_eq!(yaml, (Media::Object, Format::Yaml));
    }

    #[test]
    fn client_that_does_not_accept_json_is_refused() {
        let refused = Media::negotiate("application/vnd.kubernetes.protobuf").unwrap_err();
        assert_eq!(refused.code, ::http::StatusCode::NOT_ACCEPTABLE);
    }
}
