//! Application of a patch to an object, for the three kinds of patches of the API.
//!
//! Owns the semantics of each kind and the HTTP status of each error. Never validates the result, and never changes its
//! arguments.

mod json;
mod merge;
mod schema;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

/// The media type of a `Content-Type`, without parameters such as a charset.
pub(crate) fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// The kind of a patch; each has its own media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`: RFC 6902.
    Json,
    /// `application/merge-patch+json`: RFC 7386.
    Merge,
    /// `application/strategic-merge-patch+json`: a merge patch that also merges lists of built-in types, by their keys.
    Strategic,
}

impl PatchKind {
    /// The kind of a `Content-Type`, parameters such as a charset aside.
    #[must_use]
    pub fn from_media_type(content_type: &str) -> Option<Self> {
        match media_type(content_type) {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            _ => None,
        }
    }
}

/// Why a patch could not be applied. Its text is the message of the response; [`PatchError::status`] is the code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not apply to this object: a failed `test`, or a missing path.
    #[error("{0}")]
    DoesNotApply(String),
    /// The patch exceeds the limits of one request.
    #[error("{0}")]
    TooLarge(String),
    /// A merge patch with invalid list elements or directives. The real server answers with 500.
    #[error("{0}")]
    Unmergeable(String),
    /// Strategic merge needs a built-in type.
    #[error(
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json"
    )]
    NoStrategy,
}

impl PatchError {
    /// The HTTP status of the response.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooLarge(_) => 413,
            Self::NoStrategy => 415,
            Self::DoesNotApply(_) => 422,
            Self::Unmergeable(_) => 500,
        }
    }
}

/// Applies `patch` to `current`. `resource` is the plural name (`pods`), a subresource may follow (`pods/status`); only
/// strategic merge uses it.
pub fn apply(kind: PatchKind, resource: &str, current: &Value, patch: &Value) -> Result<Value, PatchError> {
    match kind {
        PatchKind::Json => json::apply(current, patch),
        PatchKind::Merge if !patch.is_object() => Err(not_a_map(patch)),
        PatchKind::Merge => Ok(merge::apply(current, patch)),
        PatchKind::Strategic => {
            let shape = schema::Shape::of_resource(resource).ok_or(PatchError::NoStrategy)?;
            let patch = patch.as_object().ok_or_else(|| not_a_map(patch))?;
            let current = current.as_object().cloned().unwrap_or_default();
            strategic::merge_map(current, patch.clone(), shape).map(Value::Object)
        }
    }
}

fn not_a_map(patch: &Value) -> PatchError {
    PatchError::Malformed(format!(
        "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
        json_type(patch)
    ))
}

/// The type of a value in error messages.
pub(crate) const fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
