//! PATCH: the content type selects one of the three kinds of patches, or [`super::apply`].

use serde_json::Value;

use super::Call;
use super::field_validation::Duplicates;
use crate::events;
use crate::json;
use crate::object;
use crate::patch::{self, PatchKind};
use crate::status::ApiError;
use crate::validation::Reason;

/// The kind of the patch, by its content type.
pub(super) fn kind(call: &Call) -> Result<PatchKind, ApiError> {
    PatchKind::from_media_type(&call.content_type).ok_or_else(|| {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml; it was {}",
            call.content_type
        );
        ApiError::unsupported_media_type(message)
    })
}

/// The stored object with the patch of this call applied.
pub(super) fn patched(call: &Call, kind: PatchKind, current: &Value) -> Result<Value, ApiError> {
    let (patch, paths) = json::decode_with_duplicates(&call.body)
        .map_err(|error| ApiError::bad_request(format!("the patch is not JSON: {error}")))?;
    let duplicates = match kind {
        PatchKind::Json => Duplicates::of_json_patch(&paths),
        PatchKind::Merge | PatchKind::Strategic => Duplicates::of_json(&paths),
    };
    let resource = call.resource();
    let in_events_group = resource.group == events::GROUP;
    let converted = if in_events_group { events::to_events_group(current) } else { current.clone() };
    let patched =
        patch::apply(kind, resource.name, &converted, &patch).map_err(|error| refused(call, &error))?;
    call.check_fields(&patched, Some(&converted), &duplicates, |why| {
        // As the cause of an invalid object, which kubectl shows.
        let message = format!("Invalid value: {why}");
        ApiError::invalid_field(resource, call.name(), "patch", Reason::Invalid, message)
    })?;
    let patched = if in_events_group { events::from_events_group(patched) } else { patched };
    let uid = object::uid(&patched);
    // That of a subresource is a precondition.
    if call.info.subresource.is_none() && !["", object::uid(current)].contains(&uid) {
        let message = format!("Invalid value: {uid:?}: field is immutable");
        let (resource, name) = (call.resource(), call.name());
        return Err(ApiError::invalid_field(resource, name, "metadata.uid", Reason::Invalid, message));
    }
    for (what, own) in [("name", object::name(current)), ("namespace", object::namespace(current))] {
        // The stored object of the cluster has no namespace.
        let is_kept = what == "name" || resource.namespaced;
        if is_kept && object::text(&patched, &format!("/metadata/{what}")) != own {
            return Err(ApiError::bad_request(format!("a patch cannot change metadata.{what}")));
        }
    }
    Ok(patched)
}

fn refused(call: &Call, error: &patch::PatchError) -> ApiError {
    let message = error.to_string();
    match error.status() {
        413 => ApiError::too_large_patch(message),
        415 => ApiError::unsupported_media_type(message),
        422 => ApiError::unprocessable(call.resource(), call.name(), message),
        500 => ApiError::internal(message),
        _ => ApiError::bad_request(message),
    }
}
