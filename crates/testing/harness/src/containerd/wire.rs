//! The few calls the harness itself makes, directly over gRPC: it must not depend on the adapter under test.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use cri_api::v1 as wire;
use cri_api::v1::image_service_client::ImageServiceClient;
use cri_api::v1::runtime_service_client::RuntimeServiceClient;
use futures_util::future::join_all;
use tonic::transport::{Channel, Endpoint};

/// How long the removal of pods may take before they are removed by force.
const REMOVAL_TIME: Duration = Duration::from_secs(20);

async fn connect(socket: &Path) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
    let endpoint = endpoint.map_err(|e| e.to_string())?;
    endpoint.connect().await.map_err(|e| e.to_string())
}

/// Whether CRI works and has a network; the error is its status otherwise.
pub(super) async fn is_ready(socket: &Path) -> Result<(), String> {
    let mut client = RuntimeServiceClient::new(connect(socket).await?);
    let answer = client.status(wire::StatusRequest::default()).await.map_err(|e| e.message().to_owned())?;
    let conditions = answer.into_inner().status.map(|s| s.conditions).unwrap_or_default();
    match conditions.iter().find(|condition| !condition.status) {
        Some(unmet) => Err(format!("{}: {}", unmet.r#type, unmet.message)),
        None if conditions.is_empty() => Err("no conditions".to_owned()),
        None => Ok(()),
    }
}

pub(super) async fn has_image(socket: &Path, image: &str) -> bool {
    let Ok(channel) = connect(socket).await else { return false };
    let spec = wire::ImageSpec { image: image.to_owned(), ..Default::default() };
    let request = wire::ImageStatusRequest { image: Some(spec), verbose: false };
    let answer = ImageServiceClient::new(channel).image_status(request).await;
    answer.is_ok_and(|answer| answer.into_inner().image.is_some())
}

/// Labels and annotations of each container, by ID.
pub(super) async fn labels(socket: &Path) -> Result<BTreeMap<String, [BTreeMap<String, String>; 2]>, String> {
    let mut client = RuntimeServiceClient::new(connect(socket).await?);
    let listed = client.list_containers(wire::ListContainersRequest::default()).await;
    let containers = listed.map_err(|e| e.message().to_owned())?.into_inner().containers;
    Ok(containers.into_iter().map(|one| (one.id, [one.labels, one.annotations])).collect())
}

/// Stops and removes every sandbox, on a thread of its own: this runs in destructors, where nothing can be awaited.
pub(super) fn remove_all_pods(socket: &Path) {
    let socket = socket.to_path_buf();
    let thread = std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        // A timeout is no error: the caller cleans up by force.
        let _ = runtime.block_on(async {
            tokio::time::timeout(fixtures::stretched(REMOVAL_TIME), remove_pods(&socket)).await
        });
    });
    // A panic in that thread has been printed already.
    let _ = thread.join();
}

async fn remove_pods(socket: &Path) {
    let Ok(channel) = connect(socket).await else { return };
    let client = RuntimeServiceClient::new(channel);
    let listed = client.clone().list_pod_sandbox(wire::ListPodSandboxRequest::default()).await;
    let Ok(listed) = listed else { return };
    join_all(listed.into_inner().items.into_iter().map(|sandbox| {
        let mut client = client.clone();
        async move {
            let pod_sandbox_id = sandbox.id;
            let stop = wire::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
            // An error leaves the sandbox to the cleanup by force.
            let _ = client.stop_pod_sandbox(stop).await;
            let _ = client.remove_pod_sandbox(wire::RemovePodSandboxRequest { pod_sandbox_id }).await;
        }
    }))
    .await;
}
