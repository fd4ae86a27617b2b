//! A probe as the kubelet executes it: with defaults, resolved ports, and the complete request.
//!
//! Owns: parsing `v1.Probe`. Never: executing a probe, or evaluating a result (`outcome`, `machine`).

use std::time::Duration;

use model::ContainerRef;
use model::k8s::{EnvVar, GRPCAction, Probe};

use super::results::ProbeKind;
use crate::pods::env::{ExpansionError, expand_all};
use crate::pods::http_action::{HttpAction, PortError, port_number, resolve_port};

/// The User-Agent of HTTP probes.
pub const USER_AGENT: &str = "kube-probe/1.36";

/// Why a probe cannot be executed. The messages are shown in the pod's events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeSpecError {
    #[error("missing probe handler for container {container}")]
    NoHandler { container: String },
    #[error(transparent)]
    Expansion(#[from] ExpansionError),
    #[error(transparent)]
    Port(#[from] PortError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    pub kind: ProbeKind,
    pub handler: ProbeHandler,
    /// Initial delay after the start of the container.
    pub initial_delay: Duration,
    /// Timeout of one attempt.
    pub timeout: Duration,
    pub period: Duration,
    /// Number of consecutive results that change the verdict.
    pub success_threshold: u32,
    pub failure_threshold: u32,
    /// Replaces the pod's grace period if this probe causes the kill.
    pub termination_grace: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeHandler {
    Exec { command: Vec<String> },
    HttpGet(HttpAction),
    Tcp { host: Option<String>, port: u16 },
    Grpc { port: u16, service: String },
}

impl ProbeSpec {
    /// Parses a probe of this container.
    ///
    /// # Errors
    /// The probe has no handler, or no valid port.
    pub fn of(probe: &Probe, kind: ProbeKind, container: &ContainerRef<'_>) -> Result<Self, ProbeSpecError> {
        let or = |value: Option<i32>, default: u32| {
            value.and_then(|v| u32::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default)
        };
        let seconds = |value: u32| Duration::from_secs(u64::from(value));
        let grace = probe.termination_grace_period_seconds.filter(|seconds| *seconds >= 0);
        Ok(Self {
            kind,
            handler: ProbeHandler::of(probe, container)?,
            initial_delay: seconds(or(probe.initial_delay_seconds, 0)),
            timeout: seconds(or(probe.timeout_seconds, 1)),
            period: seconds(or(probe.period_seconds, 10)),
            success_threshold: or(probe.success_threshold, 1),
            failure_threshold: or(probe.failure_threshold, 3),
            termination_grace: grace.map(model::time::wait_of),
        })
    }
}

/// The literal variables of a container's spec. Variables with a source are empty here, as in the Go kubelet: the probe
/// does not read their sources.
fn static_env(container: &ContainerRef<'_>) -> Vec<(String, String)> {
    let value = |variable: &EnvVar| variable.value.clone().unwrap_or_default();
    container.env().iter().map(|variable| (variable.name.clone(), value(variable))).collect()
}

impl ProbeHandler {
    fn of(probe: &Probe, container: &ContainerRef<'_>) -> Result<Self, ProbeSpecError> {
        if let Some(exec) = &probe.exec {
            let command = exec.command.as_deref().unwrap_or_default();
            return Ok(Self::Exec { command: expand_all(command, &static_env(container))? });
        }
        if let Some(get) = &probe.http_get {
            return HttpAction::of(get, Some(container), USER_AGENT).map(Self::HttpGet).map_err(Into::into);
        }
        if let Some(tcp) = &probe.tcp_socket {
            let host = tcp.host.clone().filter(|host| !host.is_empty());
            return Ok(Self::Tcp { host, port: resolve_port(&tcp.port, Some(container))? });
        }
        if let Some(GRPCAction { port, service }) = &probe.grpc {
            let service = service.clone().unwrap_or_default();
            return Ok(Self::Grpc { port: port_number(*port)?, service });
        }
        Err(ProbeSpecError::NoHandler { container: container.name().to_owned() })
    }
}
