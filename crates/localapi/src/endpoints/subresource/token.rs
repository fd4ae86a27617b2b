//! `serviceaccounts/token`: creates a service account token with audiences and an expiration, optionally bound to a pod,
//! Secret or node.

use ::http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{Call, response};
use crate::auth::service_account::{BoundObject, ISSUER, TokenClaims};
use crate::http::Body;
use crate::object::{self, items, text};
use crate::status::ApiError;
use crate::store::{Key, Objects};
use crate::validation::{FieldError, Reason, reviews};

/// In seconds.
const DEFAULT_LIFETIME: i64 = 3600;

pub(super) fn request(call: &Call) -> Result<Response<Body>, ApiError> {
    let mut request = call.object("authentication.k8s.io/v1", "TokenRequest")?;
    check(call, &request)?;
    let now = call.api.now();
    let claims = call.api.store.read(|objects| token_claims(call, &request, objects, now))?;
    let token =
        call.api.tokens.signer.token(&claims).map_err(|error| ApiError::internal(error.to_string()))?;
    let spec = object::map_at(&mut request, "spec");
    spec.insert("audiences".to_owned(), json!(claims.audiences));
    let seconds = claims.until.as_second() - claims.from.as_second();
    spec.insert("expirationSeconds".to_owned(), json!(seconds));
    let until = object::time(claims.until);
    request["status"] = json!({"token": token, "expirationTimestamp": until});
    let metadata = object::metadata(&mut request);
    metadata.insert("name".to_owned(), json!(call.name()));
    metadata.insert("namespace".to_owned(), json!(call.namespace()));
    metadata.insert("uid".to_owned(), json!(call.api.rng.uid()));
    metadata.insert("creationTimestamp".to_owned(), json!(object::time(now)));
    Ok(response::json(StatusCode::CREATED, &request))
}

/// Checks what does not depend on other objects.
fn check(call: &Call, request: &Value) -> Result<(), ApiError> {
    let (name, namespace) = (object::name(request), object::namespace(request));
    if !["", call.namespace()].contains(&namespace) {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    if !["", call.name()].contains(&name) {
        let message = format!("Invalid value: {name:?}: must match the service account name if specified");
        let fault = FieldError { field: "metadata.name".to_owned(), reason: Reason::Invalid, message };
        return Err(invalid(call.name(), &[fault]));
    }
    let errors = reviews::check_token_request(request);
    if errors.is_empty() { Ok(()) } else { Err(invalid("", &errors)) }
}

fn invalid(name: &str, errors: &[FieldError]) -> ApiError {
    ApiError::invalid_of_kind("TokenRequest", "authentication.k8s.io", name, errors)
}

fn token_claims(
    call: &Call,
    request: &Value,
    objects: &Objects,
    now: Timestamp,
) -> Result<TokenClaims, ApiError> {
    let account =
        objects.get(&call.key()).ok_or_else(|| ApiError::not_found(call.resource(), call.name()))?;
    let seconds =
        request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_LIFETIME);
    let mut audiences: Vec<String> =
        items(request, "/spec/audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let until = now
        .checked_add(SignedDuration::from_secs(seconds))
        .map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(TokenClaims {
        namespace: call.namespace().to_owned(),
        account: call.name().to_owned(),
        account_uid: object::uid(account).to_owned(),
        audiences,
        bound: bound(call, &request["spec"], objects)?,
        id: call.api.rng.uid(),
        from: now,
        until,
    })
}

fn bound(call: &Call, spec: &Value, objects: &Objects) -> Result<Vec<BoundObject>, ApiError> {
    let reference = &spec["boundObjectRef"];
    let kind = text(reference, "/kind");
    if reference.is_null() {
        return match call.user.node() {
            Some(node) => {
                let why = format!("node requested token not bound to a pod (node {node})");
                Err(ApiError::forbidden_object(call.resource(), call.name(), &why))
            }
            None => Ok(Vec::new()),
        };
    }
    let (claim, resource, namespace) = match kind {
        "Pod" => ("pod", "pods", call.namespace()),
        "Secret" => ("secret", "secrets", call.namespace()),
        "Node" => ("node", "nodes", ""),
        other => {
            let why = format!("cannot bind token to object of type {other:?}: only Pod, Secret and Node");
            return Err(ApiError::bad_request(why));
        }
    };
    let target = existing(resource, namespace, text(reference, "/name"), objects)?;
    let given = text(reference, "/uid");
    if !given.is_empty() && given != object::uid(target) {
        let why = format!("the UID in the bound object reference ({given}) does not match the UID in record");
        return Err(ApiError::conflict(call.resource(), call.name(), &why));
    }
    let mut all = vec![as_bound(claim, target)];
    if claim == "pod" {
        let account = text(target, "/spec/serviceAccountName");
        if account != call.name() {
            let why = format!(
                "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
                call.name()
            );
            return Err(ApiError::bad_request(why));
        }
        let node = text(target, "/spec/nodeName");
        if let Some(node) = call.user.node().filter(|own| *own != node) {
            tracing::debug!(node, "token refused");
            let why = "node requested token bound to a pod scheduled on a different node".to_owned();
            return Err(ApiError::forbidden_object(call.resource(), call.name(), &why));
        }
        if let Some(node) = objects.get(&Key::new("nodes", "", node)) {
            all.push(as_bound("node", node));
        }
    }
    Ok(all)
}

fn existing<'a>(
    resource: &'static str,
    namespace: &str,
    name: &str,
    objects: &'a Objects,
) -> Result<&'a Value, ApiError> {
    let known = crate::resources::stored(resource).ok_or_else(ApiError::no_such_path)?;
    let found = objects.get(&Key::new(resource, namespace, name)).map(|found| &**found);
    found.ok_or_else(|| ApiError::not_found(known, name))
}

fn as_bound(claim: &'static str, object: &Value) -> BoundObject {
    BoundObject { claim, name: object::name(object).to_owned(), uid: object::uid(object).to_owned() }
}
