//! The addresses in a pod's status: their choice and order. They are inputs here and not queried.

use std::net::IpAddr;

use model::containers::spec_of;
use model::k8s::{HostIP, PodIP, PodStatus};
use model::{PodObservation, SandboxState};

use super::{StatusInputs, not_empty};

#[derive(Default)]
pub(super) struct Addresses {
    pub(super) host_ip: Option<String>,
    pub(super) host_ips: Option<Vec<HostIP>>,
    pub(super) pod_ip: Option<String>,
    pub(super) pod_ips: Option<Vec<PodIP>>,
}

pub(super) fn compute_addresses(inputs: &StatusInputs<'_>) -> Addresses {
    if inputs.is_rejected {
        return Addresses::default();
    }
    let last = inputs.last_status();
    let node_ips = inputs.host_ips;
    let is_host_network = spec_of(inputs.pod).host_network == Some(true);
    let pod_ips = if is_host_network {
        host_network_ips(last, node_ips)
    } else {
        sandbox_ips(inputs.observed, last, node_ips.first())
    };
    let (host_ip, host_ips) = match node_ips.first() {
        Some(first) => {
            let all = node_ips.iter().take(2).map(|ip| HostIP { ip: ip.to_string() }).collect();
            (Some(first.to_string()), Some(all))
        }
        None => (last.and_then(|s| s.host_ip.clone()), last.and_then(|s| s.host_ips.clone())),
    };
    Addresses {
        host_ip,
        host_ips,
        pod_ip: pod_ips.first().cloned(),
        pod_ips: not_empty(pod_ips.into_iter().map(|ip| PodIP { ip }).collect()),
    }
}

/// The primary address of the node has another IP family than the one in the pod's status: the message of the event
/// `HostIPsIPFamilyMismatch`.
#[must_use]
pub fn host_ip_family_mismatch(last: Option<&PodStatus>, node_ips: &[IpAddr]) -> Option<String> {
    let reported: IpAddr = last?.host_ip.as_deref()?.parse().ok()?;
    let now = node_ips.first()?;
    let family = |ip: &IpAddr| if ip.is_ipv4() { 4 } else { 6 };
    (family(&reported) != family(now)).then(|| {
        format!(
            "Kubelet detected an IPv{} node IP ({reported}), but the cloud provider selected an IPv{} node IP ({now}); pass an \
             explicit `--node-ip` to kubelet to fix this.",
            family(&reported),
            family(now)
        )
    })
}

/// The node's own addresses; reported ones stay, but a node that becomes dual-stack adds its second family.
fn host_network_ips(last: Option<&PodStatus>, node_ips: &[IpAddr]) -> Vec<String> {
    let mut ips = said_ips(last);
    if ips.is_empty() {
        ips.extend(node_ips.first().map(ToString::to_string));
    }
    if let ([only], [_, second]) = (ips.as_slice(), node_ips) {
        let is_other_family = only.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4() != second.is_ipv4());
        if is_other_family {
            ips.push(second.to_string());
        }
    }
    ips
}

/// What the newest sandbox reports: one address a family, the node's family first. A stopped sandbox has lost its
/// addresses, but the pod keeps showing the ones it had.
fn sandbox_ips(
    observed: Option<&PodObservation>,
    last: Option<&PodStatus>,
    primary: Option<&IpAddr>,
) -> Vec<String> {
    let newest = observed.and_then(|o| o.sandboxes.first());
    let reported = newest.filter(|s| s.state == SandboxState::Ready).map_or(&[][..], |s| s.ips.as_slice());
    if reported.is_empty() {
        let has_ready = observed.is_some_and(|o| o.ready_sandboxes().next().is_some());
        return if has_ready { Vec::new() } else { said_ips(last) };
    }
    let first_of = |v4: bool| reported.iter().find(|ip| ip.is_ipv4() == v4);
    let v4_first = primary.or(reported.first()).is_none_or(IpAddr::is_ipv4);
    [first_of(v4_first), first_of(!v4_first)].into_iter().flatten().map(ToString::to_string).collect()
}

fn said_ips(last: Option<&PodStatus>) -> Vec<String> {
    let Some(last) = last else { return Vec::new() };
    let all: Vec<String> = last.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    if all.is_empty() { last.pod_ip.iter().filter(|ip| !ip.is_empty()).cloned().collect() } else { all }
}
