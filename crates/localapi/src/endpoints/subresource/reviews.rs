//! Token reviews, access reviews and self subject reviews. They call the functions that authenticate and authorize requests,
//! and are never stored.

use ::http::{Response, StatusCode};
use serde_json::{Value, json};

use super::super::{Call, response};
use crate::auth::User;
use crate::auth::attributes::Attributes;
use crate::auth::rules;
use crate::auth::tokens::Tokens;
use crate::http::Body;
use crate::object::{items, text};
use crate::status::ApiError;
use crate::validation::reviews;

pub(in crate::endpoints) fn review(call: &Call) -> Result<Response<Body>, ApiError> {
    let resource = call.resource();
    let mut review = call.object(&resource.api_version(), resource.kind)?;
    review["status"] = match resource.name {
        "tokenreviews" if text(&review, "/spec/token").is_empty() => {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        "tokenreviews" => token(call, &review["spec"]),
        "selfsubjectreviews" => json!({"userInfo": user_info(&call.user)}),
        "selfsubjectrulesreviews" => {
            let namespace = text(&review, "/spec/namespace");
            if namespace.is_empty() {
                return Err(ApiError::bad_request("no namespace on request"));
            }
            call.api.store.read(|objects| rules::review(&call.user, namespace, objects))
        }
        name => {
            let errors = reviews::check(name, &review, call.namespace());
            if !errors.is_empty() {
                // The real server has no kind here.
                return Err(ApiError::invalid_of_kind("", resource.group, "", &errors));
            }
            match name {
                "selfsubjectaccessreviews" => access(call, &call.user, &review["spec"]),
                _ => access(call, &subject(&review["spec"]), &review["spec"]),
            }
        }
    };
    if review.get("metadata").is_none() {
        review["metadata"] = json!({});
    }
    Ok(response::json(StatusCode::CREATED, &review))
}

fn token(call: &Call, spec: &Value) -> Value {
    let wanted: Vec<String> =
        items(spec, "/audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let audiences = if wanted.is_empty() { Tokens::own_audiences() } else { wanted };
    let (api, now) = (&call.api, call.api.now());
    let reviewed =
        api.store.read(|objects| api.tokens.review(text(spec, "/token"), &audiences, objects, now));
    match reviewed {
        Ok((user, audiences)) => {
            let user = user_info(&user.authenticated());
            json!({"authenticated": true, "user": user, "audiences": audiences})
        }
        Err(why) => json!({"authenticated": false, "user": {}, "error": why}),
    }
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

fn subject(spec: &Value) -> User {
    let groups = items(spec, "/groups").iter().filter_map(Value::as_str).map(str::to_owned);
    User::new(text(spec, "/user"), groups)
}

fn access(call: &Call, user: &User, spec: &Value) -> Value {
    let resource = &spec["resourceAttributes"];
    let field = |name: &str| text(resource, &format!("/{name}")).to_owned();
    let wanted = if resource.is_null() {
        let attributes = &spec["nonResourceAttributes"];
        Attributes {
            verb: text(attributes, "/verb").to_owned(),
            path: text(attributes, "/path").to_owned(),
            ..Attributes::default()
        }
    } else {
        Attributes {
            verb: field("verb"),
            group: field("group"),
            resource: field("resource"),
            subresource: field("subresource"),
            namespace: field("namespace"),
            name: field("name"),
            field_selector: text(resource, "/fieldSelector/rawSelector").to_owned(),
            path: String::new(),
        }
    };
    match call.api.store.read(|objects| rules::check(user, &wanted, objects)) {
        Ok(why) if why.is_empty() => json!({"allowed": true}),
        Ok(why) => json!({"allowed": true, "reason": why}),
        Err(why) => json!({"allowed": false, "reason": why}),
    }
}
