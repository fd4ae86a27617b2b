//! Handlers of requests: authentication, authorization, and one module for each verb.

mod call;
mod create;
mod delete;
mod get;
mod list;
mod negotiation;
mod patch;
mod response;
mod selection;
mod subresource;
mod update;
mod watch;

use std::sync::Arc;

use ::http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;

use call::Call;
use negotiation::Media;

use crate::api::Api;
use crate::audit;
use crate::auth::User;
use crate::auth::attributes::Attributes;
use crate::auth::rules;
use crate::auth::tokens::Tokens;
use crate::discovery;
use crate::http::{Body, Chain, Query, Target, path};
use crate::proxy;
use crate::status::ApiError;

/// The largest request body, as the real server limits it.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Answers one request; a failure is an answer too.
pub(crate) async fn respond(api: Arc<Api>, chain: Chain, request: Request<Incoming>) -> Response<Body> {
    let line = format!("{} {}", request.method(), request.uri());
    let response = match handle(api, &chain, request).await {
        Ok(response) => response,
        Err(error) => response::failure(&error),
    };
    tracing::debug!(request = line, status = response.status().as_u16(), "answered");
    response
}

async fn handle(
    api: Arc<Api>,
    chain: &[CertificateDer<'static>],
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let user = authenticate(&api, chain, &request)?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    // Over HTTP/2 the URI names the server, too.
    let uri = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    match path::target(request.uri().path()) {
        Some(target) if proxy::serves(&target) => {
            let wanted = call::attributes(request.method(), &query, &target)?;
            authorize(&api, &user, &wanted)?;
            api.proxy.handle(&api.store, &target, &query, request).await
        }
        Some(target) => {
            let mut call = read(api, user, query, target, request).await?;
            call.uri = uri;
            let wanted = call::attributes(&call.method, &call.query, &call.target)?;
            let answered = authorize(&call.api, &call.user, &wanted).and_then(|()| dispatch(&call));
            match &call.api.audit {
                Some(log) => {
                    let event = audit::Event {
                        at: call.api.now(),
                        user: &call.user,
                        verb: &wanted.verb,
                        uri: &call.uri,
                        body: &call.body,
                    };
                    Ok(log.record(event, answered).await)
                }
                None => answered,
            }
        }
        None => {
            let verb = request.method().as_str().to_ascii_lowercase();
            let path = request.uri().path().to_owned();
            authorize(&api, &user, &Attributes { verb, path: path.clone(), ..Attributes::default() })?;
            if ![Method::GET, Method::HEAD].contains(request.method()) {
                return Err(ApiError::method_not_allowed());
            }
            discovery::answer(&path, accept(&request))
        }
    }
}

/// A certificate of our authority first, then a token; without either, nobody, where nobody is let in.
fn authenticate(
    api: &Api,
    chain: &[CertificateDer<'static>],
    request: &Request<Incoming>,
) -> Result<User, ApiError> {
    let now = api.now();
    let mut shown = false;
    if !chain.is_empty() {
        shown = true;
        match api.clients.user(chain, now) {
            Ok(user) => return Ok(user.authenticated()),
            Err(why) => tracing::info!(err = why, "a client certificate is not believed"),
        }
    }
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(token) = header.and_then(|header| header.strip_prefix("Bearer ")) {
        shown = true;
        let reviewed =
            api.store.read(|objects| api.tokens.review(token.trim(), &Tokens::own_audiences(), objects, now));
        match reviewed {
            Ok((user, _)) => return Ok(user.authenticated()),
            Err(why) => tracing::info!(err = why, "a bearer token is not believed"),
        }
    }
    if api.behaviour.anonymous && !shown { Ok(User::anonymous()) } else { Err(ApiError::unauthorized()) }
}

fn authorize(api: &Api, user: &User, wanted: &Attributes) -> Result<(), ApiError> {
    let decided = api.store.read(|objects| rules::check(user, wanted, objects));
    decided.map_err(|why| {
        let refused = ApiError::forbidden(rules::refusal(user, wanted, &why));
        match crate::resources::stored(&wanted.resource) {
            Some(resource) => refused.about(resource, &wanted.name),
            None => refused,
        }
    })
}

fn accept(request: &Request<Incoming>) -> &str {
    request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn read(
    api: Arc<Api>,
    user: User,
    query: Query,
    target: Target,
    request: Request<Incoming>,
) -> Result<Call, ApiError> {
    let media = Media::negotiate(accept(&request))?;
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or("application/json").to_owned();
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_LIMIT).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            ApiError::too_large(BODY_LIMIT)
        } else {
            ApiError::bad_request(format!("the body could not be read: {error}"))
        }
    })?;
    Ok(Call {
        api,
        user,
        uri: String::new(),
        query,
        target,
        media,
        method: head.method,
        content_type,
        body: body.to_bytes(),
    })
}

/// One verb, one file.
fn dispatch(call: &Call) -> Result<Response<Body>, ApiError> {
    let Target { resource, namespace, name, subresource, .. } = &call.target;
    if let Some(subresource) = subresource {
        return subresource::handle(call, subresource);
    }
    if resource.review {
        return match call.method {
            Method::POST if name.is_none() => subresource::review(call),
            _ => Err(ApiError::method_not_allowed()),
        };
    }
    let placed = !resource.namespaced || namespace.is_some();
    match (&call.method, name) {
        (&Method::GET | &Method::HEAD, None) if call.watches() => watch::watch(call),
        (&Method::GET | &Method::HEAD, Some(_)) if call.watches() => watch::watch(call),
        (&Method::GET | &Method::HEAD, None) => list::list(call),
        (&Method::GET | &Method::HEAD, Some(_)) => get::get(call),
        (&Method::POST, None) if placed => create::create(call),
        (&Method::PUT | &Method::PATCH, Some(_)) => update::update(call),
        (&Method::DELETE, Some(_)) => delete::delete(call),
        (&Method::DELETE, None) if placed => delete::collection(call),
        _ => Err(ApiError::method_not_allowed()),
    }
}
