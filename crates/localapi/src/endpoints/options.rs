//! The parameters of a request that are options of its verb (`CreateOptions`, `ListOptions`), what they say of the body, and the errors of
//! invalid ones.

use ::http::Method;
use serde_json::Value;

use super::Call;
use super::field_validation::{self, Duplicates, Mode};
use crate::status::ApiError;
use crate::store::Revision;
use crate::validation::{FieldError, Reason};

impl Call {
    /// The kind of the options of the verb, which error messages name.
    pub(super) fn options_kind(&self) -> &'static str {
        match self.method {
            Method::POST => "CreateOptions",
            Method::PUT => "UpdateOptions",
            Method::PATCH => "PatchOptions",
            Method::DELETE => "DeleteOptions",
            _ => "ListOptions",
        }
    }

    /// Whether the request is a dry run. `All` is the only allowed value.
    pub(super) fn is_dry_run(&self) -> Result<bool, ApiError> {
        let values: Vec<&str> = self.query.all("dryRun").filter(|value| !value.is_empty()).collect();
        if values.iter().any(|value| *value != "All") {
            return Err(ApiError::invalid_dry_run(self.options_kind(), &values));
        }
        Ok(!values.is_empty())
    }

    /// The requested revision; `None` for any, which `0` is, too.
    pub(super) fn revision(&self) -> Result<Option<Revision>, ApiError> {
        let Some(text) = self.query.get("resourceVersion") else { return Ok(None) };
        let revision: Revision = text.parse().map_err(|_| {
            let value = Value::from(text);
            ApiError::without_reason(format!(
                "resourceVersion: Invalid value: {value}: strconv.ParseUint: parsing {value}: invalid syntax"
            ))
        })?;
        Ok(Some(revision).filter(|revision| *revision > 0))
    }

    /// Refuses a revision that this server has not reached.
    pub(super) fn refuse_future(&self, revision: Option<Revision>) -> Result<(), ApiError> {
        let current = self.api.store.revision();
        match revision.filter(|revision| *revision > current) {
            Some(revision) => Err(ApiError::too_large_version(revision, current)),
            None => Ok(()),
        }
    }

    /// Checks the options of a list that depend on each other.
    pub(super) fn check_list_options(&self) -> Result<(), ApiError> {
        let rule = self.query.get("resourceVersionMatch").unwrap_or_default();
        let revision = self.query.get("resourceVersion").unwrap_or_default();
        let mut errors = Vec::new();
        let mut forbid = |field: &str, why: &str| errors.push(forbidden(field, why));
        if !rule.is_empty() && revision.is_empty() {
            forbid(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if !rule.is_empty() && self.query.get("continue").is_some() {
            forbid(MATCH, "resourceVersionMatch is forbidden when continue is provided");
        }
        if rule == "Exact" && revision == "0" {
            forbid(MATCH, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
        }
        if self.query.get("sendInitialEvents").is_some() {
            forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if !["", "Exact", "NotOlderThan"].contains(&rule) {
            errors.push(unknown_match(rule, "\"Exact\", \"NotOlderThan\", \"\""));
        }
        refuse(errors)
    }

    /// Checks the options of a watch that depend on each other.
    pub(super) fn check_watch_options(&self) -> Result<(), ApiError> {
        let rule = self.query.get("resourceVersionMatch").unwrap_or_default();
        let sends_initial_events = self.query.get("sendInitialEvents").is_some();
        let mut errors = Vec::new();
        if sends_initial_events && rule != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(forbidden(MATCH, why));
        }
        if !rule.is_empty() && !sends_initial_events {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(forbidden(MATCH, why));
        }
        if !["", "NotOlderThan"].contains(&rule) {
            errors.push(unknown_match(rule, "\"NotOlderThan\""));
        }
        refuse(errors)
    }
}

impl Call {
    fn field_validation(&self) -> Result<Mode, ApiError> {
        let text = self.query.get("fieldValidation").unwrap_or_default();
        field_validation::mode(text).ok_or_else(|| {
            let supported = "\"\", \"Ignore\", \"Strict\", \"Warn\"";
            let message = format!("Unsupported value: {text:?}: supported values: {supported}");
            let field = "fieldValidation".to_owned();
            let fault = FieldError { field, reason: Reason::NotSupported, message };
            ApiError::invalid_options(self.options_kind(), &[fault])
        })
    }

    /// Checks a decoded body as the client wants. `known` is the stored object, whose fields are not reported again; `refused` makes the
    /// error of a strict client.
    pub(super) fn check_fields(
        &self,
        object: &Value,
        known: Option<&Value>,
        duplicates: &Duplicates,
        refused: impl FnOnce(String) -> ApiError,
    ) -> Result<(), ApiError> {
        let found =
            field_validation::check(self.field_validation()?, object, known, duplicates).map_err(refused)?;
        self.warnings.lock().extend(found);
        Ok(())
    }

    /// Refuses or warns of the keys that come twice in an applied configuration, whose unknown fields are an error in any case.
    pub(super) fn check_applied(&self, duplicates: &Duplicates) -> Result<(), ApiError> {
        match self.field_validation()? {
            Mode::Ignore => {}
            Mode::Warn => self.warnings.lock().extend(duplicates.warnings().iter().cloned()),
            Mode::Strict if duplicates.is_empty() => {}
            Mode::Strict => {
                let why = duplicates.error();
                let message = format!("error strict decoding YAML: error converting YAML to JSON: {why}");
                return Err(ApiError::bad_request(message));
            }
        }
        Ok(())
    }
}

const MATCH: &str = "resourceVersionMatch";

fn refuse(errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid_options("ListOptions", &errors)) }
}

fn forbidden(field: &str, why: &str) -> FieldError {
    FieldError { field: field.to_owned(), reason: Reason::Forbidden, message: format!("Forbidden: {why}") }
}

fn unknown_match(rule: &str, supported: &str) -> FieldError {
    let message = format!("Unsupported value: {rule:?}: supported values: {supported}");
    FieldError { field: MATCH.to_owned(), reason: Reason::NotSupported, message }
}
