//! ResourceClaims of a pod: its sandbox is created only when each of them is prepared.
//!
//! Reads claims from the API server each time, not from a store, because a claim may have been deleted and made again under the same
//! name. Which claims a pod has, and what each must be, is decided in `resources_core::claims`.

use std::sync::Arc;

use api_agent::meta::key_of_pod;
use model::ContainerRef;
use model::dra::ClaimId;
use model::k8s::{Pod, PodStatus};
use ports::RuntimeError;
use ports::cluster::ClusterError;
use resources_agent::claims::OperationError;
use resources_agent::metrics::ClaimMetrics;
use resources_core::claims::table::AllocatedClaim;
use resources_core::claims::{ClaimError, ClaimUser, check_claim, compute_pod_claims, pod_group};

use super::{PassContext, Retry};

#[derive(Debug, thiserror::Error)]
pub(super) enum PrepareError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error("fetch ResourceClaim {name}: {source}")]
    Fetch { name: String, source: ClusterError },
    #[error("fetch ResourceClaim {name}: a standalone kubelet has no API server")]
    NoApi { name: String },
}

/// Ensures that every claim of the pod is prepared. On failure it records an event and returns when to retry.
pub(super) async fn ensure_claims(context: &PassContext) -> Result<(), Retry> {
    let ctx = &context.handles.ctx;
    let began = ctx.clock.mono();
    let prepared = prepare(context).await;
    let took = ctx.clock.mono().saturating_since(began);
    ctx.metrics.get::<ClaimMetrics>().operation("PrepareResources", prepared.is_err(), took);
    let Err(error) = prepared else { return Ok(()) };
    let message = format!("Failed to prepare dynamic resources: prepare dynamic resources: {error}");
    ctx.recorder.warning(&context.identity, None, "FailedPrepareDynamicResources", message);
    Err(Retry::BackingOff)
}

async fn prepare(context: &PassContext) -> Result<(), PrepareError> {
    let status = status_in_api(context);
    let is_group_supported = context.handles.ctx.node_facts.features.group_claims;
    let group = if is_group_supported { pod_group(&context.pod) } else { None };
    let user = ClaimUser { pod: &context.identity, group };
    let mut allocated = Vec::new();
    for claim in compute_pod_claims(&context.pod, status.as_deref())? {
        let Some(objects) = &context.handles.objects else {
            return Err(PrepareError::NoApi { name: claim.name });
        };
        let read = objects.cluster().resource_claim(&context.identity.namespace, &claim.name).await;
        let found = read.map_err(|source| PrepareError::Fetch { name: claim.name.clone(), source })?;
        let drivers = check_claim(user, &claim, &found)?;
        let id = ClaimId {
            namespace: context.identity.namespace.to_string(),
            name: claim.name.clone(),
            uid: found.metadata.uid.clone().unwrap_or_default(),
        };
        allocated.push(AllocatedClaim { id, drivers: drivers.into_iter().map(str::to_owned).collect() });
    }
    if allocated.is_empty() {
        return Ok(());
    }
    Ok(context.handles.resources.claims.prepare(&context.identity.uid, allocated).await?)
}

/// The CDI names of the devices that the container gets by claims, also in a sandbox that another kubelet made.
///
/// # Errors
/// A claim is not prepared, or could not be prepared again after the runtime did not find one of its devices.
pub(super) async fn cdi_devices(
    context: &PassContext,
    pod: &Pod,
    container: &ContainerRef<'_>,
) -> Result<Vec<String>, PrepareError> {
    let claims = &context.handles.resources.claims;
    if claims.are_unresolved(&context.identity.uid) {
        prepare(context).await?;
    }
    Ok(claims.cdi_devices(pod, status_in_api(context).as_deref(), container)?)
}

/// The runtime could not create a container. If it does not know a device of a claim, the CDI files are gone, for example after a reboot:
/// the claims of the pod are prepared again before the next try.
pub(super) fn handle_create_error(context: &PassContext, error: &RuntimeError) {
    if is_unresolved_device(&error.message())
        && context.handles.resources.claims.are_used_by(&context.identity.uid)
    {
        tracing::warn!(pod = %context.identity, err = %error, "Container runtime does not know a CDI device, preparing the ResourceClaims of the pod again");
        context.handles.resources.claims.set_unresolved(&context.identity.uid);
    }
}

/// The message of the CDI library, which containerd and CRI-O use: `unresolvable CDI devices vendor.com/class=device`.
fn is_unresolved_device(message: &str) -> bool {
    message.contains("unresolvable CDI device") || message.contains("unknown CDI device")
}

/// The status of the pod in the API: it has the names of claims that were made for the pod.
pub(super) fn status_in_api(context: &PassContext) -> Option<Arc<PodStatus>> {
    let pods = context.handles.pods_in_api.as_ref()?.borrow();
    let in_api = pods.objects.get(&key_of_pod(&context.identity))?;
    in_api.status.clone().filter(|_| in_api.identity.uid == context.identity.uid)
}
