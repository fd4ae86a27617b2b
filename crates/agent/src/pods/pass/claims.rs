//! ResourceClaims of a pod: its sandbox is created only when each of them may be used.
//!
//! Reads claims from the API server each time, not from a store, because a claim may have been deleted and made again under the same
//! name. Which claims a pod has, and what each must be, is decided in `resources_core::claims`.

use std::sync::Arc;

use model::ContainerRef;
use model::k8s::{Pod, PodStatus};
use ports::cluster::ClusterError;
use resources_core::claims::{ClaimError, check_claim, check_container_claims, compute_pod_claims};

use super::{PassContext, Retry};
use api_agent::meta::key_of_pod;

#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error("fetch ResourceClaim {name}: {source}")]
    Fetch { name: String, source: ClusterError },
    #[error("fetch ResourceClaim {name}: a standalone kubelet has no API server")]
    NoApi { name: String },
}

/// Checks that every claim of the pod may be used, and that its drivers are registered. On failure it records an event and returns when
/// to retry.
pub(super) async fn check_claims(context: &PassContext) -> Result<(), Retry> {
    let Err(error) = prepare(context).await else { return Ok(()) };
    let message = format!("Failed to prepare dynamic resources: prepare dynamic resources: {error}");
    let recorder = &context.handles.ctx.recorder;
    recorder.warning(&context.identity, None, "FailedPrepareDynamicResources", message);
    Err(Retry::BackingOff)
}

async fn prepare(context: &PassContext) -> Result<(), PrepareError> {
    let status = status_in_api(context);
    for claim in compute_pod_claims(&context.pod, status.as_deref())? {
        let Some(objects) = &context.handles.objects else {
            return Err(PrepareError::NoApi { name: claim.name });
        };
        let read = objects.cluster().resource_claim(&context.identity.namespace, &claim.name).await;
        let found = read.map_err(|source| PrepareError::Fetch { name: claim.name.clone(), source })?;
        // No driver can register on this node yet, so that a claim with devices keeps its pod waiting.
        if let Some(driver) = check_claim(&context.identity, &claim, &found)?.first() {
            return Err(ClaimError::NotRegistered { driver: (*driver).to_owned() }.into());
        }
    }
    Ok(())
}

/// Checks that the container is not started without a device of a claim, also in a sandbox that another kubelet made.
///
/// # Errors
/// The container needs a device of a claim.
pub(super) fn check_container(
    context: &PassContext,
    pod: &Pod,
    container: &ContainerRef<'_>,
) -> Result<(), ClaimError> {
    check_container_claims(pod, status_in_api(context).as_deref(), container)
}

/// The status of the pod in the API: it has the names of claims that were made for the pod.
fn status_in_api(context: &PassContext) -> Option<Arc<PodStatus>> {
    let pods = context.handles.pods_in_api.as_ref()?.borrow();
    let in_api = pods.objects.get(&key_of_pod(&context.identity))?;
    in_api.status.clone().filter(|_| in_api.identity.uid == context.identity.uid)
}
