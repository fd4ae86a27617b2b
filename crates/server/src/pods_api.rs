//! Pods API (`v1alpha1.Pods`, gate `PodsAPI`): the pods of this node with their status, over gRPC on a Unix socket that only root may open.

mod encode;

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use grpc_api::pods as v1alpha1;
use grpc_api::pods::EventType;
use grpc_api::pods::pods_server::{Pods, PodsServer};
use http::Request;
use hyper::body::Incoming;
use model::RateLimiter;
use model::k8s::Pod;
use parking_lot::Mutex;
use ports::Clock;
use ports::node_api::PodEvent;
use tokio::net::UnixListener;
use tonic::{Response, Status};

use self::encode::{EncodeError, encode_pod};
use crate::Api;
pub use crate::grpc_socket::listen;
use crate::grpc_socket::{self, Answer, OVER_LIMIT, called, limiter};

/// The call that is not limited: it lasts as long as its client.
const WATCH: &str = "/v1alpha1.Pods/WatchPods";
/// Ends the stream of a client that did not read its events.
const CLIENT_IS_SLOW: &str = "watch client channel closed";

type Events = BoxStream<'static, Result<v1alpha1::WatchPodsEvent, Status>>;

/// Serves until `shutdown`.
pub async fn serve(
    listener: UnixListener,
    api: Api,
    clock: Clock,
    shutdown: impl Future<Output = ()> + Send,
) {
    let server = PodsOfNode { api, clock, limiter: Arc::new(Mutex::new(limiter(clock.mono()))) };
    let answer = move |request| answer(server.clone(), request);
    grpc_socket::serve("Pods", listener, answer, shutdown).await;
}

async fn answer(server: PodsOfNode, request: Request<Incoming>) -> Answer {
    if request.uri().path() != WATCH && !server.limiter.lock().try_take(server.clock.mono()) {
        return Ok(Status::resource_exhausted(OVER_LIMIT).into_http());
    }
    called(PodsServer::new(server), request).await
}

#[derive(Clone, Debug)]
struct PodsOfNode {
    api: Api,
    clock: Clock,
    limiter: Arc<Mutex<RateLimiter>>,
}

impl PodsOfNode {
    /// Sorted by UID.
    fn sorted(&self) -> Vec<Pod> {
        let mut pods = self.api.pods();
        pods.sort_by(|a, b| a.metadata.uid.cmp(&b.metadata.uid));
        pods
    }
}

#[tonic::async_trait]
impl Pods for PodsOfNode {
    /// First every pod, then that this was all, then changes. A change that happens meanwhile comes after the list.
    async fn watch_pods(
        &self,
        _: tonic::Request<v1alpha1::WatchPodsRequest>,
    ) -> Result<Response<Events>, Status> {
        let changes = self.api.watch_pods();
        let existing = stream::iter(self.sorted()).map(|pod| (EventType::Added, pod));
        let (api, of_change) = (self.api.clone(), self.api.clone());
        let existing = existing.filter_map(move |(kind, pod)| {
            let event = encoded(&api, kind, &pod);
            async move { event.map(Ok) }
        });
        let synced =
            v1alpha1::WatchPodsEvent { r#type: EventType::InitialSyncComplete.into(), pod: Vec::new() };
        let synced = stream::once(std::future::ready(Ok(synced)));
        let changes = changes.filter_map(move |change| {
            let event = match change {
                Ok(PodEvent::Added(pod)) => encoded(&of_change, EventType::Added, &pod).map(Ok),
                Ok(PodEvent::Modified(pod)) => encoded(&of_change, EventType::Modified, &pod).map(Ok),
                Ok(PodEvent::Deleted(pod)) => encoded(&of_change, EventType::Deleted, &pod).map(Ok),
                Err(_lagged) => {
                    count_dropped(&of_change);
                    Some(Err(Status::resource_exhausted(CLIENT_IS_SLOW)))
                }
            };
            std::future::ready(event)
        });
        Ok(Response::new(existing.chain(synced).chain(changes).boxed()))
    }

    async fn list_pods(
        &self,
        _: tonic::Request<v1alpha1::ListPodsRequest>,
    ) -> Result<Response<v1alpha1::ListPodsResponse>, Status> {
        let pods: Result<_, EncodeError> = self.sorted().iter().map(encode_pod).collect();
        Ok(Response::new(v1alpha1::ListPodsResponse { pods: pods.map_err(|error| internal(&error))? }))
    }

    async fn get_pod(
        &self,
        request: tonic::Request<v1alpha1::GetPodRequest>,
    ) -> Result<Response<v1alpha1::GetPodResponse>, Status> {
        let uid = request.into_inner().pod_uid;
        let found = self.api.pods().into_iter().find(|pod| pod.metadata.uid.as_ref() == Some(&uid));
        let pod = found.ok_or_else(|| Status::not_found(format!("pod with UID {uid} not found")))?;
        Ok(Response::new(v1alpha1::GetPodResponse {
            pod: encode_pod(&pod).map_err(|error| internal(&error))?,
        }))
    }
}

fn internal(error: &EncodeError) -> Status {
    Status::internal(format!("failed to encode pod: {error}"))
}

/// The event, if its pod can be encoded; otherwise it is dropped.
fn encoded(api: &Api, kind: EventType, pod: &Pod) -> Option<v1alpha1::WatchPodsEvent> {
    let encoded = encode_pod(pod).inspect_err(|error| {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        tracing::warn!(podUID = uid, err = %error, "Failed to encode pod for a client that watches pods");
        count_dropped(api);
    });
    Some(v1alpha1::WatchPodsEvent { r#type: kind.into(), pod: encoded.ok()? })
}

fn count_dropped(api: &Api) {
    if let Some(observer) = api.observer() {
        observer.pod_watch_event_dropped();
    }
}

#[cfg(test)]
mod tests;
