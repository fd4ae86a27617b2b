//! Validation of an object that is about to be stored, as the error of the API.

use serde_json::Value;

use crate::object;
use crate::resources::Resource;
use crate::status::ApiError;
use crate::validation;

/// Returns all validation errors of an object as one error. `rules` selects the rules: the plural name, or plural name and
/// subresource.
pub(super) fn refuse_invalid(
    resource: &Resource,
    rules: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let errors = validation::check(rules, object, old);
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(resource, object::name(object), &errors)) }
}
