//! Why the kubelet did not start.

use std::path::PathBuf;

/// The text is what failed; the alternate form adds the causes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{0}")]
    Config(config::ConfigErrors),
    #[error("listen on {address}:{port} ({field}): {source}")]
    Listen { field: &'static str, address: String, port: u16, source: std::io::Error },
    #[error("containerRuntimeEndpoint: {0}")]
    Endpoint(cri::EndpointError),
    #[error("{0}")]
    Host(String),
    #[error("--bootstrap-kubeconfig: {0}")]
    Bootstrap(String),
    #[error("--single-node: {0}")]
    ApiServer(String),
    #[error("--kubeconfig: {0}")]
    Kubeconfig(String),
    #[error("lock file {}: {source}", path.display())]
    Lock { path: PathBuf, source: std::io::Error },
    #[error("{what} is used by another kubelet ({holder}): stop that one first")]
    InUse { what: String, holder: host::node_lock::Holder },
    #[error("listen for signals: {0}")]
    Signals(std::io::Error),
    #[error("{}", .0.join("\n"))]
    Standalone(Vec<String>),
    /// Complete: with the field or the file.
    #[error("{0}")]
    Certificates(String),
    /// Complete, and as in the Go kubelet.
    #[error("{0}")]
    Access(String),
    #[error("run once needs a source of pods: set staticPodPath or staticPodURL")]
    NothingToRun,
}
