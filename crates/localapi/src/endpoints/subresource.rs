//! The handlers of subresources and reviews.

mod binding;
mod eviction;
mod parts;
mod reviews;
mod token;

use ::http::{Method, Response, StatusCode};

pub(super) use reviews::review;

use super::Call;
use super::response::object as write_object;
use super::update::change;
use crate::http::Body;
use crate::registry::Scope;
use crate::status::ApiError;

pub(super) fn handle(call: &Call, name: &str) -> Result<Response<Body>, ApiError> {
    let resource = call.resource();
    if (resource.name, name) == ("services", "proxy") {
        return Err(ApiError::not_implemented("services/proxy is not built: use pods/proxy"));
    }
    let known = resource.subresource(name).ok_or_else(ApiError::no_such_path)?;
    match (resource.name, name, &call.method) {
        ("pods", "binding", &Method::POST) => binding::bind(call),
        ("pods", "eviction", &Method::POST) => eviction::evict(call),
        ("serviceaccounts", "token", &Method::POST) => token::request(call),
        (_, _, &Method::GET | &Method::HEAD) if known.verbs.contains(&"get") => {
            let found = call.api.store.get(&call.key());
            let object = found.ok_or_else(|| ApiError::not_found(resource, call.name()))?;
            write_object(call, StatusCode::OK, &object)
        }
        (_, "status", _) => change(call, Scope::Status, |change| Ok(change.sent)),
        ("pods", "ephemeralcontainers", _) => change(call, Scope::Subresource, parts::ephemeral_containers),
        ("pods", "resize", _) => change(call, Scope::Subresource, parts::resize),
        ("namespaces", "finalize", _) => change(call, Scope::Subresource, parts::namespace_finalizers),
        ("certificatesigningrequests", "approval", _) => change(call, Scope::Subresource, parts::approval),
        _ => Err(ApiError::method_not_allowed()),
    }
}
