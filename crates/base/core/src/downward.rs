//! The downward API: fields of a pod and resources of its containers as text (docs/behaviour/pod-environment.md), for variables
//! and volumes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use model::Amount;
use model::containers::{find_container, spec_of};
use model::k8s::{Pod, Quantity, ResourceRequirements};

/// What is known of a pod beyond its spec, and of the node.
#[derive(Clone, Copy, Debug)]
pub struct DownwardFacts<'a> {
    /// The container asking.
    pub container: &'a str,
    /// First the primary address. Pods on the node's network have the node's addresses.
    pub pod_ips: &'a [IpAddr],
    pub host_ips: &'a [IpAddr],
    /// What a container without a limit may use.
    pub allocatable: &'a BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownwardError {
    #[error("unsupported fieldPath: {path}")]
    UnknownField { path: String },
    #[error("failed to get host IPs: the node has no address yet")]
    NoHostIp,
    #[error("container {name} not found")]
    NoContainer { name: String },
    #[error("unsupported container resource : {resource}")]
    UnknownResource { resource: String },
}

/// The text of one field of the pod, by its path.
///
/// # Errors
/// There is no such field, or it asks for node addresses that are not known.
pub fn field_value(pod: &Pod, path: &str, facts: &DownwardFacts<'_>) -> Result<String, DownwardError> {
    let text = |field: &Option<String>| Ok(field.clone().unwrap_or_default());
    let unknown = || DownwardError::UnknownField { path: path.to_owned() };
    if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
        let values = match map {
            "metadata.labels" => &pod.metadata.labels,
            "metadata.annotations" => &pod.metadata.annotations,
            _ => return Err(unknown()),
        };
        return Ok(values.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default());
    }
    match path {
        "metadata.name" => text(&pod.metadata.name),
        "metadata.namespace" => text(&pod.metadata.namespace),
        "metadata.uid" => text(&pod.metadata.uid),
        "metadata.labels" => Ok(lines(pod.metadata.labels.as_ref())),
        "metadata.annotations" => Ok(lines(pod.metadata.annotations.as_ref())),
        "spec.nodeName" => text(&spec_of(pod).node_name),
        "spec.serviceAccountName" => text(&spec_of(pod).service_account_name),
        "status.hostIP" => {
            host_ips(facts).map(|ips| ips.first().map(ToString::to_string).unwrap_or_default())
        }
        "status.hostIPs" => host_ips(facts).map(joined),
        "status.podIP" => Ok(facts.pod_ips.first().map(ToString::to_string).unwrap_or_default()),
        "status.podIPs" => Ok(joined(facts.pod_ips)),
        _ => Err(unknown()),
    }
}

fn host_ips<'a>(facts: &DownwardFacts<'a>) -> Result<&'a [IpAddr], DownwardError> {
    if facts.host_ips.is_empty() { Err(DownwardError::NoHostIp) } else { Ok(facts.host_ips) }
}

fn joined(ips: &[IpAddr]) -> String {
    ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// One `key="value"` a line, sorted by key.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<_> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// A text in double quotes with the escapes that Go's `strconv.Quote` uses.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A request or limit of a container in units of `divisor`, rounded up. A container without a limit may use all that
/// the node can give.
///
/// # Errors
/// There is no such container or resource.
pub fn resource_value(
    pod: &Pod,
    container: &str,
    resource: &str,
    divisor: Amount,
    facts: &DownwardFacts<'_>,
) -> Result<String, DownwardError> {
    let Some(found) = find_container(pod, container) else {
        return Err(DownwardError::NoContainer { name: container.to_owned() });
    };
    let unknown = || DownwardError::UnknownResource { resource: resource.to_owned() };
    let (side, name) = resource.split_once('.').ok_or_else(unknown)?;
    let is_known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !is_known {
        return Err(unknown());
    }
    let requested = match side {
        "requests" => amount_of(found.resources(), name, |r| r.requests.as_ref()),
        // Huge pages are never overcommitted: without a limit there are none.
        "limits" if name.starts_with("hugepages-") => {
            amount_of(found.resources(), name, |r| r.limits.as_ref())
        }
        "limits" => amount_of(found.resources(), name, |r| r.limits.as_ref())
            .or_else(|| amount_of(spec_of(pod).resources.as_ref(), name, |r| r.limits.as_ref()))
            .or_else(|| facts.allocatable.get(name).and_then(|q| Amount::of(q).ok())),
        _ => return Err(unknown()),
    };
    Ok(requested.unwrap_or(Amount::ZERO).div_ceil(divisor).to_string())
}

/// A positive amount; zero stands for "not set".
fn amount_of(
    resources: Option<&ResourceRequirements>,
    name: &str,
    side: impl Fn(&ResourceRequirements) -> Option<&BTreeMap<String, Quantity>>,
) -> Option<Amount> {
    let quantity = side(resources?)?.get(name)?;
    Amount::of(quantity).ok().filter(|amount| *amount > Amount::ZERO)
}
