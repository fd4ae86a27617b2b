//! One authenticated request for a resource, and what all verbs read from it.

use std::sync::Arc;

use ::http::Method;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::field_validation::Duplicates;
use super::negotiation::{self, Format, Media};
use crate::api::Api;
use crate::auth::User;
use crate::auth::attributes::Attributes;
use crate::http::protobuf::{self, DecodeError};
use crate::http::{Query, RequestInfo, response};
use crate::json;
use crate::patch::{json_type, media_type};
use crate::resources::Resource;
use crate::selector::FieldSelector;
use crate::status::ApiError;
use crate::store::Key;

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) api: Arc<Api>,
    pub(crate) user: User,
    /// Path and query, as the client sent them.
    pub(crate) uri: String,
    pub(crate) query: Query,
    pub(crate) info: RequestInfo,
    pub(crate) media: Media,
    pub(crate) format: Format,
    /// What the client is to be warned of.
    pub(crate) warnings: Mutex<Vec<String>>,
    pub(crate) method: Method,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn resource(&self) -> &'static Resource {
        self.info.resource
    }

    /// The object's name, or the empty string.
    pub(crate) fn name(&self) -> &str {
        self.info.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.info.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> Key {
        self.info.key()
    }

    pub(crate) fn watches(&self) -> bool {
        self.query.flag("watch")
    }

    /// Whether objects are sent as they are stored.
    pub(crate) fn writes_text(&self) -> bool {
        self.media == Media::Object
            && !negotiation::converts(self.resource(), self.api.behaviour.unknown_fields)
    }

    /// The body as JSON, decoded from its content type.
    pub(crate) fn json(&self) -> Result<Value, ApiError> {
        self.decode().map(|(value, _)| value)
    }

    /// The body as JSON, and its keys that come twice.
    fn decode(&self) -> Result<(Value, Duplicates), ApiError> {
        let unrecognized =
            |error: String| ApiError::bad_request(format!("the object provided is unrecognized: {error}"));
        match media_type(&self.content_type) {
            response::JSON => {
                let decoded = json::decode_with_duplicates(&self.body);
                let (value, paths) = decoded.map_err(|error| unrecognized(error.to_string()))?;
                Ok((value, Duplicates::of_json(&paths)))
            }
            response::YAML => decode_yaml(&self.body).map_err(unrecognized),
            protobuf::MEDIA => {
                let decoded = protobuf::decode(&self.body).map_err(|error| match error {
                    DecodeError::Malformed(_) => ApiError::bad_request(error.to_string()),
                    DecodeError::Kind(_) | DecodeError::Field(..) => {
                        ApiError::unsupported_media_type(error.to_string())
                    }
                });
                Ok((decoded?, Duplicates::default()))
            }
            other => Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: {}, {}, {}; it was {other}",
                response::JSON,
                response::YAML,
                protobuf::MEDIA
            ))),
        }
    }

    /// The body as an object of this kind: sets `kind` and `apiVersion` if they are missing, and refuses others.
    pub(crate) fn object(&self, api_version: &str, kind: &str) -> Result<Value, ApiError> {
        let (mut object, duplicates) = self.decode()?;
        if object.is_null() {
            object = json!({});
        }
        let map =
            object.as_object_mut().ok_or_else(|| ApiError::bad_request("the body is not a JSON object"))?;
        for (field, expected) in [("apiVersion", api_version), ("kind", kind)] {
            let given = map.get(field).and_then(Value::as_str).unwrap_or_default();
            if !given.is_empty() && given != expected {
                let message = format!(
                    "the {field} in the data ({given}) does not match the expected {field} ({expected})"
                );
                return Err(ApiError::bad_request(message));
            }
            map.insert(field.to_owned(), Value::from(expected));
        }
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let unhandled = |why: String| {
            let what = format!("{kind} in version {version:?} cannot be handled as a {kind}");
            ApiError::bad_request(format!("{what}: {why}"))
        };
        if let Some(metadata) = map.get("metadata").filter(|field| !field.is_object() && !field.is_null()) {
            let given = json_type(metadata);
            return Err(unhandled(format!(
                "json: cannot unmarshal {given} into Go struct field {kind}.metadata of type v1.ObjectMeta"
            )));
        }
        self.check_fields(&object, None, &duplicates, unhandled)?;
        Ok(object)
    }
}

/// A YAML text as JSON, and its keys that come twice.
pub(super) fn decode_yaml(text: &[u8]) -> Result<(Value, Duplicates), String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let (value, found) = ::yaml::read_json(text).map_err(|error| error.with_place())?;
    Ok((value, Duplicates::of_yaml(&found)))
}

/// The attributes of this request for authorization.
pub(super) fn attributes(method: &Method, query: &Query, info: &RequestInfo) -> Result<Attributes, ApiError> {
    let RequestInfo { resource, namespace, name, subresource, .. } = info;
    let verb = match (method, name) {
        (&Method::GET | &Method::HEAD, _) if query.flag("watch") => "watch",
        (&Method::GET | &Method::HEAD, Some(_)) => "get",
        (&Method::GET | &Method::HEAD, None) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, Some(_)) => "delete",
        (&Method::DELETE, None) => "deletecollection",
        _ => return Err(ApiError::method_not_allowed()),
    };
    // For authorization, a namespace is in itself.
    let namespace = if resource.name == "namespaces" { name } else { namespace };
    let field_selector = query.get("fieldSelector").unwrap_or_default();
    // A list of one name accesses only that object.
    let selected = FieldSelector::parse(field_selector).ok();
    let selected = selected.as_ref().and_then(|fields| fields.required("metadata.name"));
    Ok(Attributes {
        verb: verb.to_owned(),
        group: resource.group.to_owned(),
        resource: resource.name.to_owned(),
        subresource: subresource.clone().unwrap_or_default(),
        namespace: namespace.clone().unwrap_or_default(),
        name: name.as_deref().or(selected).unwrap_or_default().to_owned(),
        field_selector: field_selector.to_owned(),
        path: String::new(),
    })
}
