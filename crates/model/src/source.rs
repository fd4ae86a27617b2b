//! The config source of a pod.

use std::fmt;

use crate::annotations::CONFIG_SOURCE;
use crate::k8s::Pod;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodSource {
    File,
    Http,
    Api,
}

impl PodSource {
    /// The value of the `kubernetes.io/config.source` annotation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Api => "api",
        }
    }

    /// Static pods are those that do not come from the API.
    #[must_use]
    pub const fn is_static(self) -> bool {
        match self {
            Self::File | Self::Http => true,
            Self::Api => false,
        }
    }
}

/// Where the pod comes from, by its annotation.
#[must_use]
pub fn pod_source(pod: &Pod) -> PodSource {
    let source = pod.metadata.annotations.as_ref().and_then(|all| all.get(CONFIG_SOURCE));
    match source.map(String::as_str) {
        Some("file") => PodSource::File,
        Some("http") => PodSource::Http,
        Some(_) | None => PodSource::Api,
    }
}

/// The pod comes from this machine; the API has only its mirror pod.
#[must_use]
pub fn is_static_pod(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.as_ref().and_then(|all| all.get(CONFIG_SOURCE));
    source.is_some_and(|source| source != PodSource::Api.as_str())
}

impl fmt::Display for PodSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
