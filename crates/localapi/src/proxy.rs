//! Streams and proxies: requests that are answered by a node's kubelet, or by what a pod runs. Which answer is asked for
//! and where it is stands here; the words of refusals and all mapping of parameters are pure rules in `location` and
//! `log_options`. Nothing of a stream is kept: each part goes on when the other end takes it.

mod backend;
mod forward;
mod location;
mod log_options;
mod verifier;

use std::sync::Arc;

use ::http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use backend::Backends;

use crate::api::Api;
use crate::http::{Body, Query, Target, answer as write};
use crate::object::text;
use crate::resources;
use crate::status::ApiError;
use crate::store::Key;
use forward::Upgrade;
use location::{Authority, Channel, Location};
use log_options::LogOptions;

/// Streams at once; who comes later is told to come again.
const MAX_STREAMS: usize = 1000;
/// Segments of a path before what a proxy passes on: `api`, `v1`, `nodes`, the name, `proxy`.
const NODE_PROXY_SEGMENTS: usize = 5;
/// The same with `namespaces` and the namespace.
const POD_PROXY_SEGMENTS: usize = 7;

/// The tasks that carry streams. They end when the server stops.
#[derive(Debug)]
pub(crate) struct Streams {
    tasks: TaskTracker,
    places: Arc<Semaphore>,
    closing: CancellationToken,
}

/// Counts one stream for as long as any part of it lives.
type Place = Arc<OwnedSemaphorePermit>;

impl Streams {
    pub(crate) fn new(closing: CancellationToken) -> Self {
        Self { tasks: TaskTracker::new(), places: Arc::new(Semaphore::new(MAX_STREAMS)), closing }
    }

    fn place(&self) -> Result<Place, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map(Arc::new).map_err(|_| ApiError::too_many_requests("too many streams are open"))
    }

    /// Runs `work` until it ends or the server stops.
    fn run(&self, place: Place, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            if closing.run_until_cancelled(work).await.is_none() {
                tracing::debug!("a stream was cut off because the server stops");
            }
            drop(place);
        });
    }

    /// Waits for the end of all; the server is stopping.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Whether a request for this target is answered elsewhere, and not from the store.
pub(crate) fn serves(target: &Target) -> bool {
    let part = target.subresource.as_deref().unwrap_or_default();
    match target.resource.name {
        "pods" => ["attach", "exec", "log", "portforward", "proxy"].contains(&part),
        "nodes" => part == "proxy",
        _ => false,
    }
}

/// Answers a request that [`serves`] said yes to, and that its user may ask.
pub(crate) async fn answer(
    api: &Arc<Api>,
    target: &Target,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let part = target.subresource.as_deref().unwrap_or_default();
    let methods: &[Method] = match part {
        "log" => &[Method::GET],
        "proxy" => &[Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE],
        _ => &[Method::GET, Method::POST],
    };
    if !methods.contains(request.method()) {
        return Err(ApiError::method_not_allowed());
    }
    match (target.resource.name, part) {
        (_, "log") => log(api, target, query).await,
        ("nodes", _) => {
            let location = node(api, target, request.uri())?;
            forward::forward(api, &location, request, Upgrade::Possible).await
        }
        (_, "proxy") => {
            let location = pod_itself(api, target, request.uri())?;
            forward::forward(api, &location, request, Upgrade::Possible).await
        }
        _ => {
            let location = stream(api, target, query, part)?;
            forward::forward(api, &location, request, Upgrade::Required).await
        }
    }
}

/// A log is text, whatever the kubelet calls it; a refusal of the kubelet becomes one of ours.
async fn log(api: &Arc<Api>, target: &Target, query: &Query) -> Result<Response<Body>, ApiError> {
    let name = target.name.as_deref().unwrap_or_default();
    let options = LogOptions::parse(query, name)?;
    let pod = pod(api, target, name)?;
    let container = location::container(&pod, query.get("container"))?;
    let host = text(&pod, "/spec/nodeName");
    if host.is_empty() {
        // Nothing can have been logged yet.
        return Ok(write::bytes(StatusCode::NO_CONTENT, "text/plain", ""));
    }
    let channel = if options.skip_verification { Channel::KubeletUnverified } else { Channel::Kubelet };
    let path = location::stream_path("containerLogs", &pod, Some(container), &options.query());
    let location = Location { channel, authority: kubelet(api, host)?, path_and_query: path };
    forward::log(api, &location, name).await
}

/// Where exec, attach and port-forward of a pod are.
fn stream(api: &Api, target: &Target, query: &Query, part: &str) -> Result<Location, ApiError> {
    let name = target.name.as_deref().unwrap_or_default();
    let pod = pod(api, target, name)?;
    let forwards = part == "portforward";
    let container = if forwards { None } else { Some(location::container(&pod, query.get("container"))?) };
    let host = text(&pod, "/spec/nodeName");
    if host.is_empty() {
        return Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let path = if forwards { "portForward" } else { part };
    let query = location::stream_query(part, query)?;
    let path_and_query = location::stream_path(path, &pod, container, &query);
    Ok(Location { channel: Channel::Kubelet, authority: kubelet(api, host)?, path_and_query })
}

/// Where `nodes/<scheme:name:port>/proxy` leads to: the kubelet, unless another port is named.
fn node(api: &Api, target: &Target, uri: &::http::Uri) -> Result<Location, ApiError> {
    let id = target.name.as_deref().unwrap_or_default();
    let invalid = || ApiError::bad_request(format!("invalid node request {id:?}"));
    let asked = location::SchemeNamePort::parse(id).ok_or_else(invalid)?;
    let kubelet = kubelet(api, asked.name)?;
    let path_and_query = location::proxied(uri, NODE_PROXY_SEGMENTS);
    let port = match asked.port {
        "" => kubelet.port,
        port => port.parse().map_err(|_| invalid())?,
    };
    if port == kubelet.port {
        return Ok(Location { channel: Channel::Kubelet, authority: kubelet, path_and_query });
    }
    let authority = Authority { host: kubelet.host, port };
    Ok(Location { channel: asked.channel(), authority, path_and_query })
}

/// Where `pods/<scheme:name:port>/proxy` leads to: the pod's own address.
fn pod_itself(api: &Api, target: &Target, uri: &::http::Uri) -> Result<Location, ApiError> {
    let id = target.name.as_deref().unwrap_or_default();
    let invalid = || ApiError::bad_request(format!("invalid pod request {id:?}"));
    let asked = location::SchemeNamePort::parse(id).ok_or_else(invalid)?;
    let pod = pod(api, target, asked.name)?;
    let port = match asked.port {
        "" => location::first_port(&pod).unwrap_or(asked.default_port()),
        port => port.parse().map_err(|_| invalid())?,
    };
    let host = location::pod_address(&pod).ok_or_else(ApiError::address_not_allowed)?;
    let path_and_query = location::proxied(uri, POD_PROXY_SEGMENTS);
    Ok(Location { channel: asked.channel(), authority: Authority { host, port }, path_and_query })
}

fn pod(api: &Api, target: &Target, name: &str) -> Result<Arc<Value>, ApiError> {
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let found = api.store.get(&Key::new(target.resource.name, namespace, name));
    found.ok_or_else(|| ApiError::not_found(target.resource, name))
}

/// Where the kubelet of a node listens.
fn kubelet(api: &Api, node: &str) -> Result<Authority, ApiError> {
    let nodes = resources::stored("nodes").ok_or_else(ApiError::no_such_path)?;
    let found = api.store.get(&Key::new(nodes.name, "", node));
    location::kubelet(&*found.ok_or_else(|| ApiError::not_found(nodes, node))?)
}
