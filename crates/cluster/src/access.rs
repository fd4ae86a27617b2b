//! How one reaches an API server and proves who one is: what a kubeconfig file comes down to.
//!
//! Plain values, checked. Files named here are read by those who use them, so that new content is seen.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use crate::error::AccessError;

/// One API server, and us as one of its users.
#[derive(Clone, Debug)]
pub struct Access {
    pub server: ServerUrl,
    pub trust: Trust,
    /// The name that the server's certificate must have, where it is not the host of the URL.
    pub server_name: Option<String>,
    pub proxy: Option<ProxyUrl>,
    pub identity: Option<IdentitySource>,
    pub login: Login,
    pub impersonation: Impersonation,
}

/// Which certificate of the server is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// One signed by an authority of this PEM bundle.
    Authorities(Content),
    /// One signed by an authority that this machine trusts.
    System,
    /// Any.
    Anyone,
}

/// Something given in place, or as a file to be read whenever it is needed.
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

/// What goes into the header `Authorization`.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    None,
    Token(String),
    /// The file is read again every minute, and after the server did not accept its token.
    TokenFile(PathBuf),
    Password {
        name: String,
        password: String,
    },
    Plugin(Box<Plugin>),
}

/// A program that gives us a token or a certificate: `client.authentication.k8s.io`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// `v1` or `v1beta1`, with its group.
    pub api_version: String,
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// What the user is to do where there is no such program.
    pub install_hint: String,
    /// What the program is told about the cluster, where it wants to be told.
    pub cluster: Option<Value>,
}

/// As whom we act, where that is not us.
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
    /// Without brackets where it is an IPv6 address.
    pub host: String,
    pub port: u16,
    /// `host:port` as it was written.
    pub authority: String,
    /// What comes before `/api`, without a slash at its end.
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
    /// It is no URL of HTTP or HTTPS.
    pub fn parse(text: &str) -> Result<Self, AccessError> {
        let wrong = |problem: &str| AccessError::new(format!("{text:?} {problem}"));
        // What has no scheme is taken for a host that speaks plain HTTP, as every client does.
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("must begin with https:// or http://")),
        };
        let uri: http::Uri =
            format!("{scheme}://{rest}").parse().map_err(|error| wrong(&format!("is no URL: {error}")))?;
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
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
    /// It is no URL of an HTTP or HTTPS proxy.
    pub fn parse(text: &str) -> Result<Self, AccessError> {
        // The text may hold a password: it is not repeated in full.
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let shown = format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default());
        let wrong = |problem: &str| AccessError::new(format!("{shown:?} {problem}"));
        let tls = match scheme {
            "https" => true,
            "http" => false,
            "socks5" | "socks5h" => {
                return Err(wrong(
                    "is a SOCKS proxy, which is not supported: give an http:// or https:// one",
                ));
            }
            _ => return Err(wrong("must begin with http:// or https://")),
        };
        let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (userinfo, place) = match rest.rsplit_once('@') {
            Some((userinfo, place)) => (Some(userinfo.to_owned()), place),
            None => (None, rest),
        };
        let place: http::uri::Authority =
            place.parse().map_err(|error| wrong(&format!("names no host: {error}")))?;
        let host = place.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong("names no host"));
        }
        let port = place.port_u16().unwrap_or(if tls { 443 } else { 80 });
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

/// Secrets stay out of logs.
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
    fn a_server_is_a_host_a_port_and_what_comes_before_the_api() {
        let url = ServerUrl::parse("https://[fd00::1]:6443/k8s/one/").unwrap();
        assert_eq!((url.tls, url.host.as_str(), url.port), (true, "fd00::1", 6443));
        assert_eq!((url.authority.as_str(), url.prefix.as_str()), ("[fd00::1]:6443", "/k8s/one"));
        assert_eq!(url.to_string(), "https://[fd00::1]:6443/k8s/one");
        assert_eq!(ServerUrl::parse("https://api").unwrap().port, 443);
        assert_eq!(ServerUrl::parse("localhost:8080").unwrap().to_string(), "http://localhost:8080");
    }

    #[test]
    fn what_is_no_server_is_refused_with_what_is_allowed() {
        for text in ["ftp://api", "https://", "https://me@api", "https://api?x=y", "https://a b"] {
            let error = ServerUrl::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} ")), "{error}");
        }
    }

    #[test]
    fn a_proxys_password_is_not_shown() {
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
