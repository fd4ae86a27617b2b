//! URLs of HTTP requests, and the resolution of redirects against them.
//!
//! Does not resolve names, and does not decide whether a redirect is followed.

use std::fmt;
use std::net::IpAddr;

use ports::net::{HttpGet, Scheme};

/// A target of a GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: Scheme,
    /// Lower-case, IPv6 without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query, escaped; starts with `/`.
    pub(crate) path: String,
}

impl Url {
    pub(crate) fn of(request: &HttpGet) -> Self {
        Self {
            scheme: request.scheme,
            host: bare_host(&request.host).to_ascii_lowercase(),
            port: request.port,
            path: escape(&request.path),
        }
    }

    pub(crate) fn host_and_port(&self) -> String {
        join_host_port(&self.host, self.port)
    }

    /// Resolves a `Location` header against this URL; `None` if it is not an HTTP URL.
    pub(crate) fn resolve(&self, location: &str) -> Option<Self> {
        if let Some(rest) = location.strip_prefix("//") {
            return Self::absolute(self.scheme, rest);
        }
        match location.split_once("://") {
            Some((scheme, rest)) if !scheme.contains(['/', '?', '#']) => {
                return Self::absolute(scheme_of(scheme)?, rest);
            }
            Some(_) | None => {}
        }
        let here = self.path.split('?').next().unwrap_or_default();
        let path = match location.as_bytes().first() {
            None | Some(b'#') => self.path.clone(),
            Some(b'/') => location.to_owned(),
            Some(b'?') => format!("{here}{location}"),
            Some(_) => {
                let folder = here.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{location}")
            }
        };
        Some(Self { path: escape(&without_dots(&path)), ..self.clone() })
    }

    fn absolute(scheme: Scheme, rest: &str) -> Option<Self> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            Some(_) | None => (authority, ""),
        };
        let port = match (port, scheme) {
            ("", Scheme::Http) => 80,
            ("", Scheme::Https) => 443,
            (given, _) => given.parse().ok()?,
        };
        let host = bare_host(host).to_ascii_lowercase();
        (!host.is_empty()).then(|| Self { scheme, host, port, path: escape(&without_dots(path)) })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}{}", self.host_and_port(), self.path)
    }
}

fn scheme_of(name: &str) -> Option<Scheme> {
    match name.to_ascii_lowercase().as_str() {
        "http" => Some(Scheme::Http),
        "https" => Some(Scheme::Https),
        _ => None,
    }
}

pub(crate) fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// IPv6 addresses get brackets.
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    match bare_host(host).parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        Ok(IpAddr::V4(_)) | Err(_) => format!("{host}:{port}"),
    }
}

/// Adds a leading slash, removes the fragment, and escapes characters that are not allowed in a request line.
fn escape(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut escaped = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        escaped.push('/');
    }
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Resolves `.` and `..` in the path; the query is unchanged.
fn without_dots(path: &str) -> String {
    let (path, query) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
    let mut kept: Vec<&str> = Vec::new();
    let steps: Vec<&str> = path.split('/').skip(1).collect();
    for (number, step) in steps.iter().enumerate() {
        let is_last = number + 1 == steps.len();
        match *step {
            "." | ".." => {
                if *step == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Url {
        Url { scheme: Scheme::Http, host: "10.0.0.1".into(), port: 8080, path: "/a/b?c=d".into() }
    }

    #[track_caller]
    fn check(location: &str, expected: &str) {
        let resolved = here().resolve(location);
        assert_eq!(resolved.map_or("nowhere".to_owned(), |url| url.to_string()), expected);
    }

    #[test]
    fn locations_are_resolved_against_the_current_url() {
        check("/x?y=z", "http://10.0.0.1:8080/x?y=z");
        check("x", "http://10.0.0.1:8080/a/x");
        check("../x/./y", "http://10.0.0.1:8080/x/y");
        check("../../../x/..", "http://10.0.0.1:8080/");
        check("?q", "http://10.0.0.1:8080/a/b?q");
        check("#part", "http://10.0.0.1:8080/a/b?c=d");
        check("/next?to=http://elsewhere/", "http://10.0.0.1:8080/next?to=http://elsewhere/");
        check("//other/x", "http://other:80/x");
        check("https://10.0.0.1", "https://10.0.0.1:443/");
        check("HTTP://User:pw@Host:81?q#f", "http://host:81/?q");
        check("http://[fd00::1]:9/x", "http://[fd00::1]:9/x");
        check("http://[fd00::1]", "http://[fd00::1]:80/");
        check("ftp://host/x", "nowhere");
        check("http://host:port/", "nowhere");
        check("http:///x", "nowhere");
    }

    #[test]
    fn invalid_characters_of_a_request_line_are_escaped() {
        assert_eq!(escape("healthz"), "/healthz");
        assert_eq!(escape(""), "/");
        assert_eq!(escape("/a b?c=ü#d"), "/a%20b?c=%C3%BC");
        assert_eq!(escape("/a%20b\r\nHost: x"), "/a%20b%0D%0AHost:%20x");
    }

    #[test]
    fn ipv6_addresses_get_brackets() {
        assert_eq!(join_host_port("fd00::1", 80), "[fd00::1]:80");
        assert_eq!(join_host_port("[fd00::1]", 80), "[fd00::1]:80");
        assert_eq!(join_host_port("web", 80), "web:80");
    }
}
