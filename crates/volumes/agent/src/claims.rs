//! PersistentVolumeClaims and PersistentVolumes, read when a volume is mounted: they change rarely, and a pod starts once.

use base_agent::events::PersistentVolumeRef;
use model::k8s::{PersistentVolume, PersistentVolumeClaim, Quantity};
use ports::Cluster;
use ports::cluster::ClusterError;

use std::sync::Arc;

/// The claim of a volume, as it was when the volume was looked at.
#[derive(Clone, Debug)]
pub(super) struct BoundClaim {
    pub claim: PersistentVolumeClaim,
    /// Its PersistentVolume.
    pub volume: PersistentVolumeRef,
    /// Of the PersistentVolume.
    pub capacity: Option<Quantity>,
}

/// Why the volume of a claim could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("failed to fetch PVC from API server: {0}")]
    Claim(ClusterError),
    #[error("failed to fetch PV {name} from API server: {error}")]
    Volume { name: String, error: ClusterError },
    #[error("a standalone node has no PersistentVolumeClaims")]
    NoApi,
}

pub(crate) async fn claim(
    cluster: Option<&Arc<dyn Cluster>>,
    namespace: &str,
    name: &str,
) -> Result<PersistentVolumeClaim, ClaimError> {
    let cluster = cluster.ok_or(ClaimError::NoApi)?;
    cluster.claim(namespace, name).await.map_err(ClaimError::Claim)
}

pub(super) async fn persistent_volume(
    cluster: Option<&Arc<dyn Cluster>>,
    name: &str,
) -> Result<PersistentVolume, ClaimError> {
    let cluster = cluster.ok_or(ClaimError::NoApi)?;
    let volume = cluster.persistent_volume(name).await;
    volume.map_err(|error| ClaimError::Volume { name: name.to_owned(), error })
}
