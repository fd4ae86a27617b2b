//! A probe as the kubelet carries it out: defaults filled in, ports resolved, the request complete.
//!
//! Owns: reading `v1.Probe`. Never: carrying one out, or judging a result (`outcome`, `machine`).

use std::time::Duration;

use model::ContainerRef;
use model::k8s::{GRPCAction, HTTPGetAction, HTTPHeader, IntOrString, Probe};

use super::results::ProbeKind;

/// What the kubelet calls itself towards probed servers.
pub const USER_AGENT: &str = "kube-probe/1.36";

/// Why a probe cannot be carried out. The texts show in the pod's events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeSpecError {
    #[error("missing probe handler for container {container}")]
    NoHandler { container: String },
    #[error("couldn't find port: {name} in container {container}")]
    NoSuchPort { name: String, container: String },
    #[error("invalid port number: {number}")]
    PortOutOfRange { number: i32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    pub kind: ProbeKind,
    pub handler: ProbeHandler,
    /// From the start of the container to its first probe.
    pub initial_delay: Duration,
    /// For one attempt.
    pub timeout: Duration,
    pub period: Duration,
    /// That many in a row until a verdict changes.
    pub success_threshold: u32,
    pub failure_threshold: u32,
    /// Replaces the pod's grace period when this probe has the container killed.
    pub termination_grace: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeHandler {
    Exec { command: Vec<String> },
    HttpGet(HttpProbe),
    Tcp { host: Option<String>, port: u16 },
    Grpc { port: u16, service: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpScheme {
    Http,
    Https,
}

/// A GET whose host may still be open: without one it goes to the pod's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    pub scheme: HttpScheme,
    pub host: Option<String>,
    pub port: u16,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// In the order to send them; a `Host` among them replaces that of the URL.
    pub headers: Vec<(String, String)>,
}

impl ProbeSpec {
    /// Reads a probe of this container.
    ///
    /// # Errors
    /// When there is nothing to carry out, or no port to talk to.
    pub fn of(probe: &Probe, kind: ProbeKind, container: &ContainerRef<'_>) -> Result<Self, ProbeSpecError> {
        let or = |value: Option<i32>, default: u32| {
            value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default)
        };
        let seconds = |value: u32| Duration::from_secs(u64::from(value));
        let grace = probe.termination_grace_period_seconds.and_then(|s| u64::try_from(s).ok());
        Ok(Self {
            kind,
            handler: ProbeHandler::of(probe, container)?,
            initial_delay: seconds(or(probe.initial_delay_seconds, 0)),
            timeout: seconds(or(probe.timeout_seconds, 1)),
            period: seconds(or(probe.period_seconds, 10)),
            success_threshold: or(probe.success_threshold, 1),
            failure_threshold: or(probe.failure_threshold, 3),
            termination_grace: grace.map(Duration::from_secs),
        })
    }
}

impl ProbeHandler {
    fn of(probe: &Probe, container: &ContainerRef<'_>) -> Result<Self, ProbeSpecError> {
        if let Some(exec) = &probe.exec {
            return Ok(Self::Exec { command: exec.command.clone().unwrap_or_default() });
        }
        if let Some(get) = &probe.http_get {
            return HttpProbe::of(get, container).map(Self::HttpGet);
        }
        if let Some(tcp) = &probe.tcp_socket {
            let host = tcp.host.clone().filter(|host| !host.is_empty());
            return Ok(Self::Tcp { host, port: resolve_port(&tcp.port, container)? });
        }
        if let Some(GRPCAction { port, service }) = &probe.grpc {
            let service = service.clone().unwrap_or_default();
            return Ok(Self::Grpc { port: port_number(*port)?, service });
        }
        Err(ProbeSpecError::NoHandler { container: container.name().to_owned() })
    }
}

impl HttpProbe {
    /// Reads the HTTP request of a probe or hook.
    ///
    /// # Errors
    /// When the port is out of range or the container names none so.
    pub fn of(get: &HTTPGetAction, container: &ContainerRef<'_>) -> Result<Self, ProbeSpecError> {
        let is_https = get.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https"));
        let path = get.path.as_deref().unwrap_or_default();
        Ok(Self {
            scheme: if is_https { HttpScheme::Https } else { HttpScheme::Http },
            host: get.host.clone().filter(|host| !host.is_empty()),
            port: resolve_port(&get.port, container)?,
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
            headers: headers(get.http_headers.as_deref().unwrap_or_default()),
        })
    }

    /// Where the request goes: to its own host or else the pod's address.
    #[must_use]
    pub fn host<'a>(&'a self, pod_ip: &'a str) -> &'a str {
        self.host.as_deref().unwrap_or(pod_ip)
    }

    /// The URL as messages show it.
    #[must_use]
    pub fn url(&self, pod_ip: &str) -> String {
        let scheme = match self.scheme {
            HttpScheme::Http => "http",
            HttpScheme::Https => "https",
        };
        format!("{scheme}://{}{}", join_host_port(self.host(pod_ip), self.port), self.path)
    }
}

/// `host:port`, with IPv6 addresses in brackets.
#[must_use]
pub fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The user's headers, and ours where there is none of that name. An empty `Accept` means: send none.
fn headers(given: &[HTTPHeader]) -> Vec<(String, String)> {
    let has = |name: &str| given.iter().any(|h| h.name.eq_ignore_ascii_case(name));
    let is_empty_accept = |h: &&HTTPHeader| h.name.eq_ignore_ascii_case("Accept") && h.value.is_empty();
    let mut all: Vec<(String, String)> =
        given.iter().filter(|h| !is_empty_accept(h)).map(|h| (h.name.clone(), h.value.clone())).collect();
    for (name, value) in [("User-Agent", USER_AGENT), ("Accept", "*/*")] {
        if !has(name) {
            all.push((name.to_owned(), value.to_owned()));
        }
    }
    all
}

fn resolve_port(port: &IntOrString, container: &ContainerRef<'_>) -> Result<u16, ProbeSpecError> {
    match port {
        IntOrString::Int(number) => port_number(*number),
        IntOrString::String(name) => {
            let named = container.ports().iter().find(|p| p.name.as_deref() == Some(name));
            match (named, name.parse()) {
                (Some(port), _) => port_number(port.container_port),
                (None, Ok(number)) => port_number(number),
                (None, Err(_)) => Err(ProbeSpecError::NoSuchPort {
                    name: name.clone(),
                    container: container.name().to_owned(),
                }),
            }
        }
    }
}

fn port_number(number: i32) -> Result<u16, ProbeSpecError> {
    u16::try_from(number).ok().filter(|n| *n > 0).ok_or(ProbeSpecError::PortOutOfRange { number })
}
