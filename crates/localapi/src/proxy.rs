//! Requests that a node's kubelet or a pod answers: logs, exec, attach, port-forward, and the proxies of nodes and pods; and the question of
//! this server for what a kubelet measures.
//! This module finds the backend; `location` and `log_options` translate paths, parameters and errors, as pure functions.
//! Streams are not buffered: each part is forwarded when the other end reads it.

mod backend;
mod forward;
mod location;
mod log_options;
mod verifier;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use backend::Backends;

use crate::http::{Body, Query, RequestInfo, response};
use crate::object::text;
use crate::resources;
use crate::status::ApiError;
use crate::store::{Key, Store};
use forward::Upgrade;
use location::{Channel, HostPort, Location};
use log_options::LogOptions;

/// Streams that may be open at once; further requests are refused with 429.
const MAX_STREAMS: usize = 1000;
/// Path segments before the proxied path: `api`, `v1`, `nodes`, the name, `proxy`.
const NODE_PROXY_SEGMENTS: usize = 5;
/// The same for pods, with `namespaces` and the namespace.
const POD_PROXY_SEGMENTS: usize = 7;

/// CPU and memory alone, which the kubelet measures again if the last time was more than a second ago.
const STATS_SUMMARY: &str = "/stats/summary?only_cpu_and_memory=true";
/// Each container takes about a kilobyte.
const MAX_STATS_SUMMARY: usize = 16 << 20;
/// From the connection to the end of the answer.
const STATS_SUMMARY_TIMEOUT: Duration = Duration::from_secs(10);

/// The tasks that carry streams. They end when the server stops.
#[derive(Debug)]
pub(crate) struct Streams {
    tasks: TaskTracker,
    permits: Arc<Semaphore>,
    closing: CancellationToken,
}

/// The permit of one stream, held by all of its tasks.
type StreamPermit = Arc<OwnedSemaphorePermit>;

impl Streams {
    pub(crate) fn new(closing: CancellationToken) -> Self {
        Self { tasks: TaskTracker::new(), permits: Arc::new(Semaphore::new(MAX_STREAMS)), closing }
    }

    fn permit(&self) -> Result<StreamPermit, ApiError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map(Arc::new).map_err(|_| ApiError::too_many_requests("too many streams are open"))
    }

    /// Runs `work` until it ends or the server stops.
    fn run(&self, permit: StreamPermit, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            if closing.run_until_cancelled(work).await.is_none() {
                tracing::debug!("stream closed because the server stops");
            }
            drop(permit);
        });
    }

    /// Waits until all streams have ended.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// How the server reaches kubelets and pods.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) backends: Backends,
    pub(crate) streams: Streams,
    /// Where kubelets listen if not at the addresses of their nodes.
    pub(crate) kubelet_address: Option<IpAddr>,
}

/// Whether a kubelet or pod answers this request, and not the store.
pub(crate) fn serves(info: &RequestInfo) -> bool {
    if !info.resource.group.is_empty() {
        return false;
    }
    let part = info.subresource.as_deref().unwrap_or_default();
    match info.resource.name {
        "pods" => ["attach", "exec", "log", "portforward", "proxy"].contains(&part),
        "nodes" => part == "proxy",
        _ => false,
    }
}

impl Proxy {
    /// Handles an authorized request that [`serves`] accepts.
    pub(crate) async fn handle(
        &self,
        store: &Store,
        info: &RequestInfo,
        query: &Query,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, ApiError> {
        let part = info.subresource.as_deref().unwrap_or_default();
        let methods: &[Method] = match part {
            "log" => &[Method::GET],
            "proxy" => &[Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE],
            _ => &[Method::GET, Method::POST],
        };
        if !methods.contains(request.method()) {
            return Err(ApiError::method_not_allowed());
        }
        match (info.resource.name, part) {
            (_, "log") => self.log(store, info, query).await,
            ("nodes", _) => {
                let location = self.node(store, info, request.uri())?;
                forward::forward(self, &location, request, Upgrade::Possible).await
            }
            (_, "proxy") => {
                let location = pod_location(store, info, request.uri())?;
                forward::forward(self, &location, request, Upgrade::Possible).await
            }
            _ => {
                let location = self.stream(store, info, query, part)?;
                forward::forward(self, &location, request, Upgrade::Required).await
            }
        }
    }

    /// A log is sent as plain text, whatever content type the kubelet sends; an error of the kubelet becomes a `Status`.
    async fn log(
        &self,
        store: &Store,
        info: &RequestInfo,
        query: &Query,
    ) -> Result<Response<Body>, ApiError> {
        let name = info.name.as_deref().unwrap_or_default();
        let options = LogOptions::parse(query, name)?;
        let pod = pod(store, info, name)?;
        let container = location::container(&pod, query.get("container"))?;
        let host = text(&pod, "/spec/nodeName");
        if host.is_empty() {
            // The pod has not started, so its log is empty.
            return Ok(response::bytes(StatusCode::NO_CONTENT, "text/plain", ""));
        }
        let channel = if options.skip_verification { Channel::KubeletUnverified } else { Channel::Kubelet };
        let path = location::stream_path("containerLogs", &pod, Some(container), &options.query());
        let location = Location { channel, host_port: self.kubelet(store, host)?, path_and_query: path };
        forward::log(self, &location, name).await
    }

    /// The location of exec, attach and port-forward of a pod.
    fn stream(
        &self,
        store: &Store,
        info: &RequestInfo,
        query: &Query,
        part: &str,
    ) -> Result<Location, ApiError> {
        let name = info.name.as_deref().unwrap_or_default();
        let pod = pod(store, info, name)?;
        let is_port_forward = part == "portforward";
        let container =
            if is_port_forward { None } else { Some(location::container(&pod, query.get("container"))?) };
        let host = text(&pod, "/spec/nodeName");
        if host.is_empty() {
            return Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")));
        }
        let path = if is_port_forward { "portForward" } else { part };
        let query = location::stream_query(part, query)?;
        let path_and_query = location::stream_path(path, &pod, container, &query);
        Ok(Location { channel: Channel::Kubelet, host_port: self.kubelet(store, host)?, path_and_query })
    }

    /// The location of `nodes/<scheme:name:port>/proxy`: the kubelet, unless another port is specified.
    fn node(&self, store: &Store, info: &RequestInfo, uri: &::http::Uri) -> Result<Location, ApiError> {
        let id = info.name.as_deref().unwrap_or_default();
        let invalid = || ApiError::bad_request(format!("invalid node request {id:?}"));
        let id_parts = location::SchemeNamePort::parse(id).ok_or_else(invalid)?;
        let kubelet = self.kubelet(store, id_parts.name)?;
        let path_and_query = location::proxied(uri, NODE_PROXY_SEGMENTS);
        let port = match id_parts.port {
            "" => kubelet.port,
            port => port.parse().map_err(|_| invalid())?,
        };
        if port == kubelet.port {
            return Ok(Location { channel: Channel::Kubelet, host_port: kubelet, path_and_query });
        }
        let host = location::kubelet(&*stored_node(store, id_parts.name)?, None)?.host;
        let host_port = HostPort { host, port };
        Ok(Location { channel: id_parts.channel(), host_port, path_and_query })
    }

    /// The usage of CPU and memory that the kubelet of a node measures, as the JSON of `stats/v1alpha1`. The error names what failed.
    pub(crate) async fn stats_summary(&self, store: &Store, node: &str) -> Result<Bytes, String> {
        let host_port = self.kubelet(store, node).map_err(|error| error.message)?;
        let location =
            Location { channel: Channel::Kubelet, host_port, path_and_query: STATS_SUMMARY.to_owned() };
        let read = forward::read(self, &location, MAX_STATS_SUMMARY);
        let answer = timeout(STATS_SUMMARY_TIMEOUT, read).await;
        let error = match answer {
            Ok(Ok(body)) => return Ok(body),
            Ok(Err(error)) => error,
            Err(_) => format!("no answer within {} s", STATS_SUMMARY_TIMEOUT.as_secs()),
        };
        Err(format!("Get \"{location}\": {error}"))
    }

    /// Where the kubelet of a node listens.
    fn kubelet(&self, store: &Store, node: &str) -> Result<HostPort, ApiError> {
        location::kubelet(&*stored_node(store, node)?, self.kubelet_address)
    }
}

/// The location of `pods/<scheme:name:port>/proxy`: the address of the pod.
fn pod_location(store: &Store, info: &RequestInfo, uri: &::http::Uri) -> Result<Location, ApiError> {
    let id = info.name.as_deref().unwrap_or_default();
    let invalid = || ApiError::bad_request(format!("invalid pod request {id:?}"));
    let id_parts = location::SchemeNamePort::parse(id).ok_or_else(invalid)?;
    let pod = pod(store, info, id_parts.name)?;
    let port = match id_parts.port {
        "" => location::first_port(&pod).unwrap_or(id_parts.default_port()),
        port => port.parse().map_err(|_| invalid())?,
    };
    let host = location::pod_address(&pod).ok_or_else(ApiError::address_not_allowed)?;
    let path_and_query = location::proxied(uri, POD_PROXY_SEGMENTS);
    Ok(Location { channel: id_parts.channel(), host_port: HostPort { host, port }, path_and_query })
}

fn pod(store: &Store, info: &RequestInfo, name: &str) -> Result<Arc<Value>, ApiError> {
    let namespace = info.namespace.as_deref().unwrap_or_default();
    let found = store.get(&Key::new(info.resource.name, namespace, name));
    found.ok_or_else(|| ApiError::not_found(info.resource, name))
}

fn stored_node(store: &Store, name: &str) -> Result<Arc<Value>, ApiError> {
    let nodes = resources::stored("nodes").ok_or_else(ApiError::no_such_path)?;
    store.get(&Key::new(nodes.name, "", name)).ok_or_else(|| ApiError::not_found(nodes, name))
}
