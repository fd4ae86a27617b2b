//! Handlers of requests: authentication, authorization, and one module for each verb.

mod apply;
mod call;
mod create;
mod delete;
mod field_manager;
mod field_validation;
mod get;
mod list;
mod metrics;
mod negotiation;
mod options;
mod patch;
mod response;
mod selection;
mod subresource;
mod update;
mod watch;

use std::sync::Arc;

use ::http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;

use call::Call;
use negotiation::{Format, Media};

use crate::api::Api;
use crate::audit;
use crate::auth::attributes::Attributes;
use crate::auth::tokens::Tokens;
use crate::auth::{User, impersonation, rules};
use crate::discovery;
use crate::http::{Body, PeerCertificates, Query, RequestInfo, compression, request_info};
use crate::proxy;
use crate::resources::Resource;
use crate::status::ApiError;

/// Paths that need no credentials, so that a service manager can ask for the health: just these, without what is below them, as a real
/// server can be configured. Not the version, which helps an attacker to choose.
const HEALTH_PATHS: &[&str] = &["/healthz", "/livez", "/readyz"];
/// The largest request body, as the real server limits it.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Handles one request; an error becomes a response.
pub(crate) async fn respond(
    api: Arc<Api>,
    chain: PeerCertificates,
    request: Request<Incoming>,
) -> Response<Body> {
    let line = format!("{} {}", request.method(), request.uri());
    let response = match handle(api, &chain, request).await {
        Ok(response) => response,
        Err(error) => response::failure(&error),
    };
    tracing::debug!(request = line, status = response.status().as_u16(), "handled request");
    response
}

async fn handle(
    api: Arc<Api>,
    chain: &[CertificateDer<'static>],
    mut request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let user = authenticate(&api, chain, &request)?;
    let user = impersonate(&api, user, request.headers())?;
    impersonation::remove_headers(request.headers_mut());
    let query = Query::parse(request.uri().query().unwrap_or_default());
    // Over HTTP/2 the URI contains the server, too.
    let uri = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    match request_info::parse(request.uri().path(), api.kinds()) {
        Some(RequestInfo { resource: resource @ Resource { advice: Some(advice), .. }, name, .. })
            if request.method() != Method::GET || name.is_some() || query.flag("watch") =>
        {
            Err(ApiError::not_served(resource, advice))
        }
        Some(info) if proxy::serves(&info) => {
            let attributes = call::attributes(request.method(), &query, &info)?;
            authorize(&api, &user, &attributes)?;
            api.proxy.handle(&api.store, &info, &query, request).await
        }
        Some(info) => {
            let accepts_gzip = compression::is_accepted(request.headers());
            let mut call = read(api, user, query, info, request).await?;
            call.uri = uri;
            call.warnings.lock().extend(call.resource().warning());
            let attributes = call::attributes(&call.method, &call.query, &call.info)?;
            let result = match authorize(&call.api, &call.user, &attributes) {
                Ok(()) if call.resource().measured_as.is_some() => metrics::read(&call).await,
                Ok(()) => dispatch(&call),
                Err(error) => Err(error),
            };
            let mut response = match &call.api.audit {
                Some(log) => {
                    let event = audit::Event {
                        at: call.api.now(),
                        user: &call.user,
                        verb: &attributes.verb,
                        uri: &call.uri,
                        body: &call.body,
                    };
                    log.record(event, result).await
                }
                None => result.unwrap_or_else(|error| response::failure(&error)),
            };
            field_validation::warn(&mut response, &call.warnings.lock());
            let response = negotiation::formatted(response, call.format).await?;
            if !accepts_gzip {
                return Ok(response);
            }
            compression::compress(response).await.map_err(ApiError::internal)
        }
        None => {
            let verb = request.method().as_str().to_ascii_lowercase();
            let path = request.uri().path().to_owned();
            let format = Media::negotiate(accept(&request)).map_or(Format::Json, |(_, format)| format);
            authorize(&api, &user, &Attributes { verb, path: path.clone(), ..Attributes::default() })?;
            if ![Method::GET, Method::HEAD].contains(request.method()) {
                let is_of_resource = request_info::is_of_resource(&path);
                return Err(if is_of_resource {
                    ApiError::no_such_path()
                } else {
                    ApiError::method_not_allowed()
                });
            }
            negotiation::formatted(discovery::handle(&api, &path, &query, accept(&request))?, format).await
        }
    }
}

/// Authenticates by a client certificate first, then by a bearer token. A request with neither is anonymous, if anonymous
/// requests are enabled or it is for the health.
fn authenticate(
    api: &Api,
    chain: &[CertificateDer<'static>],
    request: &Request<Incoming>,
) -> Result<User, ApiError> {
    let now = api.now();
    let mut has_credentials = false;
    if !chain.is_empty() {
        has_credentials = true;
        match api.clients.user(chain, now) {
            Ok(user) => return Ok(user.authenticated()),
            Err(reason) => tracing::info!(err = reason, "invalid client certificate"),
        }
    }
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(token) = header.and_then(|header| header.strip_prefix("Bearer ")) {
        has_credentials = true;
        let reviewed =
            api.store.read(|objects| api.tokens.review(token.trim(), &Tokens::own_audiences(), objects, now));
        match reviewed {
            Ok((user, _)) => return Ok(user.authenticated()),
            Err(reason) => tracing::info!(err = reason, "invalid bearer token"),
        }
    }
    let is_open = api.behaviour.anonymous || HEALTH_PATHS.contains(&request.uri().path());
    if is_open && !has_credentials { Ok(User::anonymous()) } else { Err(ApiError::unauthorized()) }
}

/// The user that the headers request instead of this one, who must have the permission for each part of it.
fn impersonate(api: &Api, user: User, headers: &HeaderMap) -> Result<User, ApiError> {
    let targets = impersonation::targets(headers).map_err(ApiError::bad_request)?;
    if targets.is_empty() {
        return Ok(user);
    }
    for target in &targets {
        authorize(api, &user, &target.attributes())?;
    }
    let acting = impersonation::user(targets);
    tracing::debug!(user = user.name, acting = acting.name, "impersonation");
    Ok(acting)
}

fn authorize(api: &Api, user: &User, attributes: &Attributes) -> Result<(), ApiError> {
    let decided = api.store.read(|objects| rules::check(user, attributes, objects));
    decided.map(drop).map_err(|reason| {
        let error = ApiError::forbidden(rules::denial_message(user, attributes, &reason));
        let Attributes { group, resource, name, .. } = attributes;
        let of_objects = |kind: &&Resource| !kind.review && kind.advice.is_none();
        let mut kinds = api.kinds().all().filter(of_objects);
        match kinds.find(|kind| (kind.group, kind.name) == (group.as_str(), resource.as_str())) {
            Some(resource) => error.about(resource, name),
            None => error,
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
    info: RequestInfo,
    request: Request<Incoming>,
) -> Result<Call, ApiError> {
    let (media, format) = Media::negotiate(accept(&request))?;
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or("application/json").to_owned();
    let user_agent = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let user_agent = user_agent.unwrap_or_default().to_owned();
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_LIMIT).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            ApiError::too_large(BODY_LIMIT)
        } else {
            ApiError::bad_request(format!("failed to read the body: {error}"))
        }
    })?;
    Ok(Call {
        api,
        user,
        uri: String::new(),
        query,
        info,
        media,
        format,
        warnings: Mutex::default(),
        method: head.method,
        content_type,
        user_agent,
        body: body.to_bytes(),
    })
}

/// Calls the handler of the verb.
fn dispatch(call: &Call) -> Result<Response<Body>, ApiError> {
    let RequestInfo { resource, namespace, name, subresource, .. } = &call.info;
    if let Some(subresource) = subresource {
        return subresource::handle(call, subresource);
    }
    if resource.review {
        return match call.method {
            Method::POST if name.is_none() => subresource::review(call),
            _ => Err(ApiError::method_not_allowed()),
        };
    }
    if call.watches() && call.format != Format::Json {
        return Err(ApiError::not_acceptable());
    }
    let has_scope = !resource.namespaced || namespace.is_some();
    match (&call.method, name) {
        (&Method::GET | &Method::HEAD, None) if call.watches() => watch::watch(call),
        (&Method::GET | &Method::HEAD, Some(_)) if call.watches() => watch::watch(call),
        (&Method::GET | &Method::HEAD, None) => list::list(call),
        (&Method::GET | &Method::HEAD, Some(_)) => get::get(call),
        (&Method::POST, None) if has_scope => create::create(call),
        (&Method::PUT | &Method::PATCH, Some(_)) => update::update(call),
        (&Method::DELETE, Some(_)) => delete::delete(call),
        // All namespaces at once would be everything.
        (&Method::DELETE, None) if has_scope && resource.name != "namespaces" => delete::collection(call),
        _ => Err(ApiError::method_not_allowed()),
    }
}
