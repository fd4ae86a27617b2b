//! The objects of a collection that a request selects: by labels, by fields, and by one name.

use serde_json::Value;

use super::Call;
use crate::object;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::ApiError;
use crate::store::Stored;

/// The selectors of a list, watch or deletecollection.
#[derive(Debug)]
pub(super) struct Selection {
    labels: Option<LabelSelector>,
    fields: Option<FieldSelector>,
    /// The name in the path of a watch of one object.
    name: Option<String>,
}

impl Selection {
    pub(super) fn of(call: &Call) -> Result<Self, ApiError> {
        Self::with_fields_of(call.resource().name, call)
    }

    /// What is measured is selected by labels, name and namespace.
    pub(super) fn of_measured(call: &Call) -> Result<Self, ApiError> {
        Self::with_fields_of(call.resource().measured_as.unwrap_or_default(), call)
    }

    /// `kind` is that of the selectable fields.
    fn with_fields_of(kind: &str, call: &Call) -> Result<Self, ApiError> {
        let labels = call.query.get("labelSelector").map(LabelSelector::parse).transpose();
        let labels = labels.map_err(|error| ApiError::bad_request(format!("labelSelector: {error}")))?;
        let fields = call.query.get("fieldSelector").map(FieldSelector::parse).transpose();
        let fields = fields.map_err(|error| ApiError::bad_request(format!("fieldSelector: {error}")))?;
        if let Some(fields) = &fields {
            fields.check(kind).map_err(|error| ApiError::bad_request(error.to_string()))?;
        }
        Ok(Self { labels, fields, name: call.info.name.clone() })
    }

    /// Whether there is no selector.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none() && self.name.is_none()
    }

    /// As [`Self::matches`], of an object that is decoded only if a selector looks at it.
    pub(super) fn includes(&self, object: &Stored) -> bool {
        self.is_everything() || self.matches(&object.tree())
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.labels.as_ref().is_none_or(|labels| labels.matches(object))
            && self.fields.as_ref().is_none_or(|fields| fields.matches(object))
            && self.name.as_deref().is_none_or(|name| name == object::name(object))
    }
}
