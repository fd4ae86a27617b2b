//! The certificates of this node: bootstrap, rotation of the client certificate, and serving certificates.
//!
//! Owns the files of `--cert-dir`. When a certificate is requested, and for which names, is decided in
//! `api_core::certificates`; keys are generated and read behind `ports::Certificates`.

mod client;
mod join;
mod serving;
mod signing;
mod store;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::{CertificateFacts, CertificateNames, PemPair};
use ports::certificates::CertificateError;
use ports::{Certificates, ClientIdentity, Clock, Files, HostError};

use base_agent::damaged::remove_unfinished;

pub use crate::metrics::CertificateMetrics;
pub use client::ClientCertificate;
pub use join::{Join, JoinError};
pub use serving::{ClusterSigned, SelfSigned, Serves};
pub use signing::SigningError;
pub use store::{PairStore, StoredPair};

/// A certificate or key file that cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}", base_agent::error_chain::chain(.0))]
    Host(#[from] HostError),
    #[error("{path}: {source}")]
    Content { path: String, source: CertificateError },
}

/// How often the files that the kubeconfig names are checked for changes.
const RELOAD: Duration = Duration::from_secs(60);

/// Reloads the CA and client certificate files of the kubeconfig when they change, until dropped.
pub async fn reload(identity: Arc<dyn ClientIdentity>, clock: Clock) {
    let mut complaint = None;
    loop {
        clock.sleep_until(clock.mono() + RELOAD).await;
        match identity.reload().await {
            Ok(true) => {
                tracing::info!("Loaded changed certificate files of the kubeconfig")
            }
            Ok(false) => {}
            Err(error) if complaint.as_ref() == Some(&error) => continue,
            Err(error) => {
                tracing::warn!(err = %error, "Failed to load changed certificate files of the kubeconfig, keeping the old ones");
                complaint = Some(error);
                continue;
            }
        }
        complaint = None;
    }
}

/// The facts of a newly signed certificate; an error if its names are not the requested ones.
fn check_signed(
    certificates: &dyn Certificates,
    pair: &PemPair,
    wanted: &CertificateNames,
) -> Result<CertificateFacts, String> {
    let facts = certificates.read(pair).map_err(|error| error.to_string())?;
    if facts.names.cover(wanted) {
        return Ok(facts);
    }
    Err(format!("the signed certificate is for {:?}, but must be for {wanted:?}", facts.names))
}

/// Creates the directory, without unfinished files. An existing one keeps its permissions, which are its owner's choice.
async fn ensure_cert_dir(files: &dyn Files, dir: &Path) -> Result<(), FileError> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(()) };
    let siblings = files.list_dir(parent).await?;
    if siblings.iter().any(|entry| name == entry.name.as_str()) {
        remove_unfinished(files, dir).await;
        return Ok(());
    }
    Ok(files.ensure_dir(dir, 0o755).await?)
}
