//! Proxies from the environment: `HTTPS_PROXY`, `HTTP_PROXY`, and `NO_PROXY` for hosts without a proxy.

use std::net::IpAddr;

use crate::access::{ProxyUrl, ServerUrl};

/// The variables at the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyEnv {
    pub https: Option<String>,
    pub http: Option<String>,
    pub no: Option<String>,
}

impl ProxyEnv {
    /// From the environment of this process; upper case takes precedence over lower case.
    #[must_use]
    pub fn from_env() -> Self {
        let get = |name: &str| {
            let lower = name.to_ascii_lowercase();
            [name, &lower].iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        };
        Self { https: get("HTTPS_PROXY"), http: get("HTTP_PROXY"), no: get("NO_PROXY") }
    }

    /// # Errors
    /// The name of the invalid variable, and why it is invalid.
    pub(crate) fn for_server(&self, server: &ServerUrl) -> Result<Option<ProxyUrl>, (String, String)> {
        let (name, url) = match server.tls {
            true => ("HTTPS_PROXY", &self.https),
            false => ("HTTP_PROXY", &self.http),
        };
        let Some(url) = url else { return Ok(None) };
        if self.is_exempt(&server.host, server.port) {
            return Ok(None);
        }
        let url = ProxyUrl::parse(url).map_err(|error| (name.to_owned(), error.to_string()))?;
        Ok(Some(url))
    }

    /// This machine, and the entries of `NO_PROXY`: `*`, `10.0.0.0/8`, `10.0.0.1`, `example.com` with its subdomains,
    /// `.example.com` for subdomains only, each optionally with a port.
    fn is_exempt(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return true;
        }
        let entries = self.no.as_deref().unwrap_or_default().split(',');
        entries.map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
            let (exempt, only) = split_port(&entry);
            let port_fits = only.is_none_or(|only| only == port);
            match address {
                _ if entry == "*" => true,
                Some(address) => port_fits && covers_address(exempt, address),
                None => port_fits && covers_name(exempt, &host),
            }
        })
    }
}

/// `[fd00::1]:6443`, `example.com:6443`, or without a port.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some((host, rest)) = entry.strip_prefix('[').and_then(|entry| entry.split_once(']')) {
        return (host, rest.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match entry.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, port.parse().ok()),
        Some(_) | None => (entry, None),
    }
}

fn covers_address(entry: &str, address: IpAddr) -> bool {
    match entry.split_once('/') {
        None => entry.parse() == Ok(address),
        Some((network, length)) => match (network.parse::<IpAddr>(), length.parse::<u32>()) {
            (Ok(network), Ok(length)) => same_prefix(network, address, length),
            _ => false,
        },
    }
}

fn same_prefix(network: IpAddr, address: IpAddr, length: u32) -> bool {
    let (network, address, bits) = match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (u128::from(network.to_bits()), u128::from(address.to_bits()), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => (network.to_bits(), address.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    length <= bits && (network ^ address).checked_shr(bits - length).unwrap_or(0) == 0
}

fn covers_name(entry: &str, host: &str) -> bool {
    let entry = entry.strip_prefix('*').unwrap_or(entry);
    match entry.strip_prefix('.') {
        Some(_) => host.ends_with(entry),
        None => {
            !entry.is_empty()
                && (host == entry || host.strip_suffix(entry).is_some_and(|rest| rest.ends_with('.')))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(no: &str) -> ProxyEnv {
        ProxyEnv { https: Some("http://proxy:3128".to_owned()), http: None, no: Some(no.to_owned()) }
    }

    fn proxied(no: &str, server: &str) -> bool {
        env(no).for_server(&ServerUrl::parse(server).unwrap()).unwrap().is_some()
    }

    #[test]
    fn no_proxy_names_hosts_domains_networks_and_ports() {
        for (no, server, through) in [
            ("", "https://api.example.com", true),
            ("*", "https://api.example.com", false),
            ("example.com", "https://api.example.com", false),
            ("example.com", "https://example.com", false),
            ("example.com", "https://notexample.com", true),
            (".example.com", "https://example.com", true),
            (" .Example.com , x", "https://api.example.com", false),
            ("*.example.com", "https://api.example.com", false),
            ("example.com:6443", "https://example.com:6443", false),
            ("example.com:6443", "https://example.com", true),
            ("10.0.0.0/8", "https://10.1.2.3:6443", false),
            ("10.0.0.0/8", "https://11.1.2.3:6443", true),
            ("10.0.0.0/0", "https://11.1.2.3:6443", false),
            ("10.0.0.1", "https://10.0.0.1", false),
            ("10.0.0.1", "https://10.0.0.10", true),
            ("fd00::/8", "https://[fd12::1]:6443", false),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", false),
            ("10.0.0.0/99", "https://10.0.0.1", true),
            ("", "https://localhost:6443", false),
            ("", "https://127.0.0.1:6443", false),
        ] {
            assert_eq!(proxied(no, server), through, "NO_PROXY={no} {server}");
        }
    }

    #[test]
    fn http_and_https_have_separate_proxies_and_errors_name_the_variable() {
        let server = ServerUrl::parse("http://api:8080").unwrap();
        assert_eq!(env("").for_server(&server), Ok(None));
        let wrong = ProxyEnv { http: Some("socks5://proxy".to_owned()), ..ProxyEnv::default() };
        assert_eq!(wrong.for_server(&server).unwrap_err().0, "HTTP_PROXY");
    }
}
