//! `fieldValidation`: what happens to a field that a type does not have. It is refused, named in a warning, or ignored.

use ::http::{HeaderValue, Response, header};
use serde_json::Value;

use crate::http::{Body, Query};
use crate::schema::{Schema, unknown_fields};
use crate::status::ApiError;
use crate::validation::{FieldError, Reason};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Ignore,
    Warn,
    Strict,
}

/// Checks an object of a client; returns the warnings for it. `known` is the stored object, whose fields are not reported again.
pub(super) fn check(
    options_kind: &str,
    query: &Query,
    object: &Value,
    known: Option<&Value>,
) -> Result<Vec<String>, ApiError> {
    let mode = mode(options_kind, query.get("fieldValidation").unwrap_or_default())?;
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let Some(of) = Schema::of_object(api_version, kind).filter(|_| mode != Mode::Ignore) else {
        return Ok(Vec::new());
    };
    let mut unknown = unknown_fields(of, object);
    if !unknown.is_empty()
        && let Some(known) = known
    {
        let before = unknown_fields(of, known);
        unknown.retain(|field| !before.contains(field));
    }
    let problems: Vec<String> = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
    if mode == Mode::Warn || problems.is_empty() {
        return Ok(problems);
    }
    let version = api_version.rsplit('/').next().unwrap_or_default();
    Err(ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
        problems.join(", ")
    )))
}

fn mode(options_kind: &str, text: &str) -> Result<Mode, ApiError> {
    match text {
        "" | "Warn" => Ok(Mode::Warn),
        "Ignore" => Ok(Mode::Ignore),
        "Strict" => Ok(Mode::Strict),
        _ => {
            let fault = FieldError {
                field: "fieldValidation".to_owned(),
                reason: Reason::NotSupported,
                message: format!(
                    "Unsupported value: {text:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
                ),
            };
            Err(ApiError::invalid_options(options_kind, &[fault]))
        }
    }
}

/// Adds a header for each warning.
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(query: &str, known: Option<&Value>) -> Result<Vec<String>, String> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "date": {}});
        check("PatchOptions", &Query::parse(query), &object, known).map_err(|error| error.message)
    }

    #[test]
    fn unknown_field_is_refused_named_or_ignored() {
        assert_eq!(checked("", None).unwrap(), ["unknown field \"date\""]);
        assert_eq!(checked("fieldValidation=Ignore", None).unwrap(), [""; 0]);
        assert_eq!(
            checked("fieldValidation=Strict", None).unwrap_err(),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"date\""
        );
        assert!(checked("fieldValidation=Odd", None).unwrap_err().contains("supported values"));
        let known = json!({"date": {}});
        assert_eq!(checked("fieldValidation=Strict", Some(&known)).unwrap(), [""; 0]);
    }
}
