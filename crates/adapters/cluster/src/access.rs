//! Address and credentials of an API server, as parsed from a kubeconfig file.
//!
//! Validated plain values. Referenced files are read on use, so that changes are noticed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use crate::error::AccessError;

/// One API server with the credentials of its user.
#[derive(Clone, Debug)]
pub struct Access {
    pub server: ServerUrl,
    pub trust: Trust,
    /// The name that the server's certificate must have, if it is not the host of the URL.
    pub server_name: Option<String>,
    pub proxy: Option<ProxyUrl>,
    pub identity: Option<IdentitySource>,
    pub login: Login,
    pub impersonation: Impersonation,
}

/// Verification of the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Signed by a CA of this PEM bundle.
    Authorities(Content),
    /// Signed by a CA that this machine trusts.
    System,
    /// No verification.
    Anyone,
}

/// Inline data, or a file that is read on each use.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    Inline(Vec<u8>),
    File(PathBuf),
}

/// A client certificate with its key, both PEM; they may be in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentitySource {
    pub certificate: Content,
    pub key: Content,
}

/// Credentials for the `Authorization` header.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    None,
    Token(String),
    /// The file is read again every minute, and after the server rejected its token.
    TokenFile(PathBuf),
    Password {
        name: String,
        password: String,
    },
    Plugin(Box<Plugin>),
}

/// An exec credential plugin: `client.authentication.k8s.io`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// `v1` or `v1beta1`, with its group.
    pub api_version: String,
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Shown to the user if the plugin is not installed.
    pub install_hint: String,
    /// `spec.cluster` of the plugin's input, if `provideClusterInfo` is set.
    pub cluster: Option<Value>,
}

/// User impersonation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonation {
    pub user: Option<String>,
    pub uid: Option<String>,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// `https://10.0.0.1:6443/prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    pub tls: bool,
    /// Without brackets for an IPv6 address.
    pub host: String,
    pub port: u16,
    /// `host:port` as in the URL.
    pub authority: String,
    /// The path before `/api`, without a trailing slash.
    pub prefix: String,
}

/// `http://user:password@proxy:3128`.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    pub tls: bool,
    pub host: String,
    pub port: u16,
    /// `user:password`.
    pub userinfo: Option<String>,
}

impl ServerUrl {
    /// # Errors
    /// It is not an HTTP or HTTPS URL.
    pub fn parse(text: &str) -> Result<Self, AccessError> {
        let wrong = |problem: &str| AccessError::new(format!("{text:?} {problem}"));
        // Without a scheme, plain HTTP is used, as every Kubernetes client does.
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("must begin with https:// or http://")),
        };
        let uri: http::Uri = format!("{scheme}://{rest}")
            .parse()
            .map_err(|error| wrong(&format!("is not a valid URL: {error}")))?;
        let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || authority.as_str().contains('@') || uri.query().is_some() {
            return Err(wrong("must be a URL without user and query, as https://10.0.0.1:6443"));
        }
        Ok(Self {
            tls,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}{}", if self.tls { "s" } else { "" }, self.authority, self.prefix)
    }
}

impl ProxyUrl {
    /// # Errors
    /// It is not the URL of an HTTP or HTTPS proxy.
    pub fn parse(text: &str) -> Result<Self, AccessError> {
        // The text may contain a password, which is left out of errors.
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let shown = format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default());
        let wrong = |problem: &str| AccessError::new(format!("{shown:?} {problem}"));
        let tls = match scheme {
            "https" => true,
            "http" => false,
            "socks5" | "socks5h" => {
                return Err(wrong("is a SOCKS proxy, which is not supported: must be http:// or https://"));
            }
            _ => return Err(wrong("must begin with http:// or https://")),
        };
        let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (userinfo, authority) = match rest.rsplit_once('@') {
            Some((userinfo, authority)) => (Some(userinfo.to_owned()), authority),
            None => (None, rest),
        };
        let authority: http::uri::Authority =
            authority.parse().map_err(|error| wrong(&format!("has no valid host: {error}")))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong("has no host"));
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self { tls, host, port, userinfo })
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(content) => write!(f, "Inline({} bytes)", content.len()),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Without the password, for logs.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Token(_) => f.write_str("Token(..)"),
            Self::TokenFile(path) => f.debug_tuple("TokenFile").field(path).finish(),
            Self::Password { name, .. } => {
                f.debug_struct("Password").field("name", name).finish_non_exhaustive()
            }
            Self::Plugin(plugin) => f.debug_tuple("Plugin").field(&plugin.command).finish(),
        }
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}:{}", if self.tls { "s" } else { "" }, self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_urls_are_parsed_into_host_port_and_prefix() {
        let url = ServerUrl::parse("https://[fd00::1]:6443/k8s/one/").unwrap();
        assert_eq!((url.tls, url.host.as_str(), url.port), (true, "fd00::1", 6443));
        assert_eq!((url.authority.as_str(), url.prefix.as_str()), ("[fd00::1]:6443", "/k8s/one"));
        assert_eq!(url.to_string(), "https://[fd00::1]:6443/k8s/one");
        assert_eq!(ServerUrl::parse("https://api").unwrap().port, 443);
        assert_eq!(ServerUrl::parse("localhost:8080").unwrap().to_string(), "http://localhost:8080");
    }

    #[test]
    fn invalid_server_urls_are_rejected() {
        for text in ["ftp://api", "https://", "https://me@api", "https://api?x=y", "https://a b"] {
            let error = ServerUrl::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} ")), "{error}");
        }
    }

    #[test]
    fn proxy_password_is_not_shown() {
        let url = ProxyUrl::parse("http://me:secret@proxy:3128/").unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.userinfo.as_deref()),
            ("proxy", 3128, Some("me:secret"))
        );
        assert_eq!(format!("{url:?}"), "http://proxy:3128");
        let error = ProxyUrl::parse("socks5://me:secret@proxy:1080").unwrap_err().to_string();
        assert!(error.contains("SOCKS") && !error.contains("secret"), "{error}");
    }
}
