//! Which objects of a collection a request is about: the label selector, the field selector, and one name.

use serde_json::Value;

use super::Call;
use crate::object;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::ApiError;

/// The objects a list, watch or collection means.
#[derive(Debug)]
pub(super) struct Selection {
    labels: Option<LabelSelector>,
    fields: Option<FieldSelector>,
    /// A watch of one object has its name in the path.
    name: Option<String>,
}

impl Selection {
    pub(super) fn of(call: &Call) -> Result<Self, ApiError> {
        let labels = call.query.get("labelSelector").map(LabelSelector::parse).transpose();
        let labels = labels.map_err(|error| ApiError::bad_request(format!("labelSelector: {error}")))?;
        let fields = call.query.get("fieldSelector").map(FieldSelector::parse).transpose();
        let fields = fields.map_err(|error| ApiError::bad_request(format!("fieldSelector: {error}")))?;
        if let Some(fields) = &fields {
            fields.check(call.resource().name).map_err(|error| ApiError::bad_request(error.to_string()))?;
        }
        Ok(Self { labels, fields, name: call.target.name.clone() })
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.labels.as_ref().is_none_or(|labels| labels.matches(object))
            && self.fields.as_ref().is_none_or(|fields| fields.matches(object))
            && self.name.as_deref().is_none_or(|name| name == object::name(object))
    }
}
