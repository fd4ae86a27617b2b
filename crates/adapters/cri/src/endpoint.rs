//! Parses `containerRuntimeEndpoint` and `imageServiceEndpoint`. Opens nothing.

use std::path::{Path, PathBuf};

/// An invalid endpoint. The text has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("the container runtime endpoint is not set")]
    Empty,
    #[error("container runtime endpoint {endpoint:?}: protocol {scheme:?} not supported, must be unix")]
    Scheme { endpoint: String, scheme: String },
    #[error("container runtime endpoint {endpoint:?}: must be an absolute path after unix://")]
    NotAbsolute { endpoint: String },
}

/// A Unix socket, and a warning if its spelling is deprecated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    path: PathBuf,
    warning: Option<String>,
}

impl Endpoint {
    /// Parses `unix:///run/containerd/containerd.sock`; a bare absolute path is accepted with a warning.
    pub fn parse(endpoint: &str) -> Result<Self, EndpointError> {
        if endpoint.is_empty() {
            return Err(EndpointError::Empty);
        }
        let (path, warning) = match endpoint.split_once("://") {
            Some(("unix", path)) => (path, None),
            Some((scheme, _)) => {
                return Err(EndpointError::Scheme {
                    endpoint: endpoint.to_owned(),
                    scheme: scheme.to_owned(),
                });
            }
            // `unix:/run/x.sock` is the same URL without an authority.
            None => match endpoint.strip_prefix("unix:") {
                Some(path) => (path, None),
                None => (endpoint, Some(deprecated(endpoint))),
            },
        };
        if !path.starts_with('/') {
            return Err(EndpointError::NotAbsolute { endpoint: endpoint.to_owned() });
        }
        Ok(Self { path: PathBuf::from(path), warning })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The warning, if the spelling is deprecated.
    #[must_use]
    pub fn into_warning(self) -> Option<String> {
        self.warning
    }
}

fn deprecated(endpoint: &str) -> String {
    format!(
        "Using this endpoint is deprecated, please consider using full URL format: \
         endpoint {endpoint:?}, URL \"unix://{endpoint}\""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(endpoint: &str) -> String {
        Endpoint::parse(endpoint).unwrap().path().display().to_string()
    }

    #[test]
    fn unix_url_is_parsed_into_a_socket_path() {
        assert_eq!(path_of("unix:///run/containerd/containerd.sock"), "/run/containerd/containerd.sock");
        assert_eq!(path_of("unix:/run/crio/crio.sock"), "/run/crio/crio.sock");
        assert_eq!(Endpoint::parse("unix:///run/a.sock").unwrap().into_warning(), None);
    }

    #[test]
    fn bare_path_is_accepted_with_a_warning() {
        let endpoint = Endpoint::parse("/run/containerd/containerd.sock").unwrap();
        assert_eq!(endpoint.path(), Path::new("/run/containerd/containerd.sock"));
        let warning = endpoint.into_warning().unwrap();
        assert!(warning.contains("unix:///run/containerd/containerd.sock"), "{warning}");
    }

    #[test]
    fn other_endpoints_are_rejected_by_name() {
        assert_eq!(Endpoint::parse(""), Err(EndpointError::Empty));
        let tcp = Endpoint::parse("tcp://127.0.0.1:3735").unwrap_err().to_string();
        assert!(tcp.contains("tcp://127.0.0.1:3735") && tcp.contains("\"tcp\""), "{tcp}");
        assert!(matches!(Endpoint::parse("run/x.sock"), Err(EndpointError::NotAbsolute { .. })));
        assert!(matches!(Endpoint::parse("unix://run/x.sock"), Err(EndpointError::NotAbsolute { .. })));
    }
}
