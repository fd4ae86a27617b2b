//! PATCH with `application/apply-patch+yaml`: server-side apply of an object or of one of its subresources.

use ::http::{Method, Response};
use serde_json::{Value, json};

use super::field_validation::Duplicates;
use super::{Call, authorize, call, create};
use crate::events;
use crate::http::Body;
use crate::json;
use crate::managed_fields::{self, Applied, Refused, Writer};
use crate::object;
use crate::patch::media_type;
use crate::resources;
use crate::status::ApiError;
use crate::validation;

const MEDIA: &str = "application/apply-patch+yaml";

/// The configuration of a request.
#[derive(Debug)]
pub(super) struct Configuration {
    object: Value,
    manager: String,
    force: bool,
}

pub(super) fn is_apply(call: &Call) -> bool {
    call.method == Method::PATCH && media_type(&call.content_type) == MEDIA
}

impl Configuration {
    /// Reads the body, and checks what does not depend on the stored object.
    pub(super) fn of(call: &Call) -> Result<Self, ApiError> {
        let manager = call.applying_manager()?;
        let (mut object, duplicates) = decode(&call.body)?;
        call.check_applied(&duplicates)?;
        check_kind(call, &object)?;
        if object.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        check_names(call, &object)?;
        if call.resource().group == events::GROUP {
            object = events::from_events_group(object);
        }
        remove_reset_fields(call, &mut object);
        Ok(Self { object, manager, force: call.query.flag("force") })
    }

    /// The object with the configuration.
    pub(super) fn apply(&self, call: &Call, live: Option<&Value>) -> Result<Applied, ApiError> {
        let resource = call.resource();
        let stored = resources::stored(resource.name).unwrap_or(resource);
        let (version, time) = (stored.api_version(), object::time(call.api.now()));
        let subresource = call.info.subresource.as_deref().unwrap_or_default();
        let writer = Writer { manager: &self.manager, api_version: &version, subresource, time: &time };
        let applied = managed_fields::apply(resource.name, live, &self.object, &writer, self.force);
        let mut applied = applied.map_err(|refused| refusal(call, refused))?;
        validation::decode_without_managed_fields(resource.name, &mut applied.object)
            .map_err(ApiError::bad_request)?;
        Ok(applied)
    }
}

/// Creates the object of the configuration, which needs the permission to create, too.
pub(super) fn create(call: &Call, configuration: &Configuration) -> Result<Response<Body>, ApiError> {
    let mut attributes = call::attributes(&call.method, &call.query, &call.info)?;
    attributes.verb = "create".to_owned();
    authorize(&call.api, &call.user, &attributes)?;
    let Applied { mut object, entries } = configuration.apply(call, None)?;
    let uid = object::uid(&object);
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::conflict(call.resource(), call.name(), &why));
    }
    let metadata = object::metadata(&mut object);
    metadata.insert("name".to_owned(), json!(call.name()));
    metadata.insert("managedFields".to_owned(), entries);
    create::create_as(call, object, "")
}

/// JSON, or YAML. Keys that come twice are named as in YAML in both.
fn decode(body: &[u8]) -> Result<(Value, Duplicates), ApiError> {
    let malformed = |error: String| ApiError::bad_request(format!("error decoding YAML: {error}"));
    let (object, duplicates) = match json::decode_with_duplicates(body) {
        Ok((object, paths)) if paths.is_empty() => (object, Duplicates::default()),
        Ok(_) | Err(_) => call::decode_yaml(body).map_err(malformed)?,
    };
    if object.is_object() {
        Ok((object, duplicates))
    } else {
        Err(malformed("the body is no map".to_owned()))
    }
}

fn check_kind(call: &Call, object: &Value) -> Result<(), ApiError> {
    let (version, kind) = (object::text(object, "/apiVersion"), object::text(object, "/kind"));
    let resource = call.resource();
    if version == resource.api_version() && kind == resource.kind {
        return Ok(());
    }
    let group = if version.contains('/') { "" } else { "/" };
    Err(ApiError::bad_request(format!("invalid object type: {group}{version}, Kind={kind}")))
}

/// A name or namespace must be that of the path.
fn check_names(call: &Call, object: &Value) -> Result<(), ApiError> {
    for (what, sent, own) in [
        ("name", object::name(object), call.name()),
        ("namespace", object::namespace(object), call.namespace()),
    ] {
        // That of an object of the cluster is dropped.
        let is_kept = what == "name" || call.resource().namespaced;
        if is_kept && !sent.is_empty() && sent != own {
            let message =
                format!("the {what} of the object ({sent}) does not match the {what} on the URL ({own})");
            return Err(ApiError::bad_request(message));
        }
    }
    Ok(())
}

/// Removes what a request for this part of the object cannot change, and so does not own.
fn remove_reset_fields(call: &Call, object: &mut Value) {
    if !call.resource().has_status() {
        return;
    }
    let is_status = call.info.subresource.as_deref() == Some("status");
    if let Some(fields) = object.as_object_mut() {
        fields.remove(if is_status { "spec" } else { "status" });
    }
    if is_status {
        object::metadata(object).remove("ownerReferences");
    }
}

fn refusal(call: &Call, refused: Refused) -> ApiError {
    match refused {
        Refused::Malformed(problem) => {
            let resource = call.resource();
            let slash = if resource.group.is_empty() { "/" } else { "" };
            ApiError::without_reason(format!(
                "failed to create typed patch object ({}/{}; {slash}{}, Kind={}): {problem}",
                call.namespace(),
                call.name(),
                resource.api_version(),
                resource.kind
            ))
        }
        Refused::Conflicts(conflicts) => ApiError::apply_conflict(&conflicts),
        Refused::TooManyEntries => {
            ApiError::too_large_patch("metadata.managedFields has too many entries: remove some of them")
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::StatusCode;

    use super::*;

    #[test]
    fn body_is_json_or_yaml() {
        let expected = json!({"apiVersion": "v1", "metadata": {"name": "a"}, "data": {"a": "1"}});
        for text in [
            r#"{"apiVersion": "v1", "metadata": {"name": "a"}, "data": {"a": "1"}}"#,
            "apiVersion: v1\nmetadata:\n  name: a\ndata: {a: '1'}\n",
            "---\n# a comment\napiVersion: v1\nmetadata: {name: a}\ndata:\n  a: \"1\"\n",
        ] {
            let (object, duplicates) = decode(text.as_bytes()).unwrap();
            assert_eq!((object, duplicates.is_empty()), (expected.clone(), true));
        }
        let deep = format!("a: {}1{}", "[".repeat(5_000), "]".repeat(5_000));
        for text in ["", "a: [", "- a\n", "text", "a: 1\n---\nb: 2\n", &deep] {
            let refused = decode(text.as_bytes()).unwrap_err();
            assert!(refused.message.starts_with("error decoding YAML: "), "{refused}");
            assert_eq!(refused.code, StatusCode::BAD_REQUEST);
        }
        assert!(decode(&[0xff, 0xfe]).is_err());
    }
}
