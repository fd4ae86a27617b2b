//! Errors of the API: `metav1.Status` with the code, reason and details that client libraries evaluate.

use http::StatusCode;
use serde_json::{Value, json};

use crate::managed_fields::Conflict;
use crate::resources::Resource;
use crate::store::NotStored;
use crate::validation::{FieldError, Reason};

const NO_SUCH_PATH: &str = "the server could not find the requested resource";
const METHOD_NOT_ALLOWED: &str = "the server does not allow this method on the requested resource";

/// An error, ready to be written as a `metav1.Status`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) code: StatusCode,
    /// Empty where the real server sets none.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
    /// For the rest of a list.
    pub(crate) continue_token: Option<String>,
}

impl From<NotStored> for ApiError {
    fn from(error: NotStored) -> Self {
        Self::internal(error.to_string())
    }
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    pub(crate) fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = Some(details(name, resource.group, resource.name));
        self
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::not_found_of_kind(resource.group, resource.name, name)
    }

    /// Nothing is served at this path.
    pub(crate) fn no_such_path() -> Self {
        let mut error = Self::new(StatusCode::NOT_FOUND, "NotFound", NO_SUCH_PATH);
        error.details = Some(json!({}));
        error
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified_name());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified_name());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    /// An applied configuration would change fields of other managers.
    pub(crate) fn apply_conflict(conflicts: &[Conflict]) -> Self {
        let message = match conflicts {
            [Conflict { manager, path }] => {
                format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
            }
            _ => {
                let (mut lines, mut previous) = (Vec::new(), "");
                for Conflict { manager, path } in conflicts {
                    if manager != previous {
                        lines.push(format!("conflicts with {manager}:"));
                    }
                    lines.push(format!("- {path}"));
                    previous = manager;
                }
                format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
            }
        };
        let cause = |Conflict { manager, path }: &Conflict| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path});
        let causes: Vec<Value> = conflicts.iter().map(cause).collect();
        let mut error = Self::new(StatusCode::CONFLICT, "Conflict", message);
        error.details = Some(json!({"causes": causes}));
        error
    }

    /// The client's copy is older than the stored object.
    pub(crate) fn stale(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// An object that breaks the rules of its kind.
    pub(crate) fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_of_kind(resource.kind, resource.group, name, errors)
    }

    /// As [`ApiError::invalid`], for a kind that is not in the table, or that has another name in its error messages.
    pub(crate) fn invalid_of_kind(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Self {
        let messages: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        let message = match messages.as_slice() {
            [one] => one.clone(),
            _ => format!("[{}]", messages.join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{qualified} \"{name}\" is invalid: {message}");
        let cause = |error: &FieldError| json!({"reason": error.reason.as_str(), "message": error.message, "field": error.field});
        let causes: Vec<Value> = errors.iter().map(cause).collect();
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let mut about = details(name, group, kind);
        about["causes"] = json!(causes);
        error.details = Some(about);
        error
    }

    /// Invalid options of a request; `kind` is `CreateOptions`, `DeleteOptions` and so on.
    pub(crate) fn invalid_options(kind: &str, errors: &[FieldError]) -> Self {
        Self::invalid_of_kind(kind, "meta.k8s.io", "", errors)
    }

    /// A value of `dryRun` other than `All`.
    pub(crate) fn invalid_dry_run(kind: &str, values: &[&str]) -> Self {
        let message = format!("Unsupported value: {}: supported values: \"All\"", json!(values));
        let reason = Reason::NotSupported;
        Self::invalid_options(kind, &[FieldError { field: "dryRun".to_owned(), reason, message }])
    }

    /// An object with one invalid field; `message` begins with the kind of error, for example `Invalid value: `.
    pub(crate) fn invalid_field(
        resource: &Resource,
        name: &str,
        field: &str,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        let fault = FieldError { field: field.to_owned(), reason, message: message.into() };
        Self::invalid(resource, name, &[fault])
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// An admission rule rejects the object.
    pub(crate) fn forbidden_object(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified_name());
        Self::forbidden(message).about(resource, name)
    }

    /// A create in a namespace that is being terminated.
    pub(crate) fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = Self::forbidden_object(resource, name, &why);
        let cause = json!({
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        });
        if let Some(details) = error.details.as_mut() {
            details["causes"] = json!([cause]);
        }
        error
    }

    /// The requested revision is older than the history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// A page of a list whose revision is gone; `rest` is a token for the rest as it is now.
    pub(crate) fn expired_page(rest: &str) -> Self {
        let mut error = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
        error.continue_token = Some(rest.to_owned());
        error
    }

    pub(crate) fn too_old(requested: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// A revision that this server has not reached.
    pub(crate) fn too_large_version(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        error.details = Some(json!({"causes": [cause], "retryAfterSeconds": 1}));
        error
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", METHOD_NOT_ALLOWED)
    }

    /// A verb that a kind does not have, where the real server says so.
    pub(crate) fn verb_not_supported(resource: &Resource, verb: &str) -> Self {
        let qualified = resource.qualified_name();
        let message = format!("{verb} is not supported on resources of kind {qualified:?}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about(resource, "")
    }

    /// What this server needs for its answer does not answer.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// Not found, with a kind and group that are not in the table.
    pub(crate) fn not_found_of_kind(group: &str, kind: &str, name: &str) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{qualified} \"{name}\" not found");
        let mut error = Self::new(StatusCode::NOT_FOUND, "NotFound", message);
        error.details = Some(details(name, group, kind));
        error
    }

    /// A kind that is known and not served.
    pub(crate) fn not_served(resource: &Resource, advice: &str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", resource.with_advice(advice))
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub(crate) fn too_large_patch(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// A well-formed request that does not apply to this object, such as a patch whose test fails.
    pub(crate) fn unprocessable(resource: &Resource, name: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(resource, name)
    }

    /// An error for which the real server sets no reason.
    pub(crate) fn without_reason(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub(crate) fn too_many_requests(message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error.details = Some(json!({"retryAfterSeconds": 1}));
        error
    }

    /// An address that is only valid on this machine, or that is a multicast address.
    pub(crate) fn address_not_allowed() -> Self {
        Self::bad_request("address not allowed")
    }

    /// The error for a failed response of a backend; `body` is the body of that response.
    pub(crate) fn of_backend(code: StatusCode, resource: &str, name: &str, body: &str) -> Self {
        let (reason, message) = match code {
            StatusCode::INTERNAL_SERVER_ERROR => return Self::internal(body),
            StatusCode::BAD_REQUEST => return Self::bad_request(body),
            StatusCode::UNAUTHORIZED => {
                ("Unauthorized", "the server has asked for the client to provide credentials".to_owned())
            }
            StatusCode::FORBIDDEN => ("Forbidden", body.to_owned()),
            StatusCode::NOT_FOUND => ("NotFound", NO_SUCH_PATH.to_owned()),
            StatusCode::METHOD_NOT_ALLOWED => ("MethodNotAllowed", METHOD_NOT_ALLOWED.to_owned()),
            StatusCode::SERVICE_UNAVAILABLE => {
                ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned())
            }
            StatusCode::TOO_MANY_REQUESTS => (
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later".to_owned(),
            ),
            code if code.is_server_error() => (
                "InternalError",
                format!("an error on the server ({body:?}) has prevented the request from succeeding"),
            ),
            code => {
                let code = code.as_u16();
                let message = format!(
                    "the server responded with the status code {code} but did not return more information"
                );
                ("", message)
            }
        };
        // The real server does not know the verb at this point, which leaves a space before the resource.
        let mut error = Self::new(code, reason, format!("{message} ( {resource} {name})"));
        error.details = Some(json!({"name": name, "kind": resource}));
        error
    }

    pub(crate) fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// As the API writes it.
    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

/// The `details` of a `Status`, without what is empty: the core group has no name.
fn details(name: &str, group: &str, kind: &str) -> Value {
    let fields = [("name", name), ("group", group), ("kind", kind)];
    let given = fields.into_iter().filter(|(_, text)| !text.is_empty());
    given.map(|(field, text)| (field.to_owned(), json!(text))).collect::<serde_json::Map<_, _>>().into()
}

/// The `Status` of a completed deletion.
pub(crate) fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut about = details(name, resource.group, resource.name);
    about["uid"] = json!(uid);
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": about,
    })
}
