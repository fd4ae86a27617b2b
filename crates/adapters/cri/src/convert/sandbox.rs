//! Converts sandboxes: requests to CRI messages, listings and statuses back.

use std::net::IpAddr;

use cri_api::v1 as wire;
use model::observation::NamespaceMode;
use model::request::{PortMapping, Protocol, SandboxRequest};
use model::{PodRef, SandboxId, SandboxObservation, SandboxState};

use super::{created_at, resources, security};

pub(crate) fn config(from: &SandboxRequest) -> wire::PodSandboxConfig {
    wire::PodSandboxConfig {
        metadata: Some(wire::PodSandboxMetadata {
            name: from.pod.name.to_string(),
            uid: from.pod.uid.as_str().to_owned(),
            namespace: from.pod.namespace.to_string(),
            attempt: from.attempt,
        }),
        hostname: from.hostname.clone(),
        log_directory: from.log_directory.clone(),
        dns_config: Some(wire::DnsConfig {
            servers: from.dns.servers.clone(),
            searches: from.dns.searches.clone(),
            options: from.dns.options.clone(),
        }),
        port_mappings: from.port_mappings.iter().map(port_mapping).collect(),
        labels: from.labels.clone(),
        annotations: from.annotations.clone(),
        linux: Some(wire::LinuxPodSandboxConfig {
            cgroup_parent: from.cgroup_parent.clone(),
            security_context: Some(security::sandbox_security(&from.security)),
            sysctls: from.sysctls.clone(),
            overhead: from.overhead.as_ref().map(resources::resources),
            resources: from.resources.as_ref().map(resources::resources),
        }),
    }
}

fn port_mapping(from: &PortMapping) -> wire::PortMapping {
    let protocol = match from.protocol {
        Protocol::Tcp => wire::Protocol::Tcp,
        Protocol::Udp => wire::Protocol::Udp,
        Protocol::Sctp => wire::Protocol::Sctp,
    };
    wire::PortMapping {
        protocol: protocol.into(),
        container_port: from.container_port,
        host_port: from.host_port,
        host_ip: from.host_ip.clone(),
    }
}

/// A status, or `None` without metadata.
pub(crate) fn observation(from: wire::PodSandboxStatus) -> Option<SandboxObservation> {
    let (pod, attempt) = identity(from.metadata?);
    let options = from.linux.and_then(|linux| linux.namespaces).and_then(|n| n.options);
    let network = security::network_mode(options.as_ref());
    let ips = match network {
        // With `hostNetwork` the sandbox has no address, even if the runtime returns the node's.
        NamespaceMode::Node => Vec::new(),
        NamespaceMode::Pod | NamespaceMode::Container | NamespaceMode::Target(_) => {
            from.network.map(addresses).unwrap_or_default()
        }
    };
    Some(SandboxObservation {
        id: SandboxId::from(from.id),
        pod,
        attempt,
        state: state(from.state),
        created_at: created_at(from.created_at),
        ips,
        network,
        runtime_handler: from.runtime_handler,
    })
}

pub(crate) fn identity(from: wire::PodSandboxMetadata) -> (PodRef, u32) {
    (PodRef::new(&from.namespace, &from.name, from.uid), from.attempt)
}

/// An unknown state counts as not ready: no container is started in such a sandbox.
pub(crate) fn state(from: i32) -> SandboxState {
    match wire::PodSandboxState::try_from(from) {
        Ok(wire::PodSandboxState::SandboxReady) => SandboxState::Ready,
        Ok(wire::PodSandboxState::SandboxNotready) | Err(_) => SandboxState::NotReady,
    }
}

fn addresses(from: wire::PodSandboxNetworkStatus) -> Vec<IpAddr> {
    let further = from.additional_ips.into_iter().map(|additional| additional.ip);
    std::iter::once(from.ip).chain(further).filter_map(|ip| ip.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ip: &str, further: &[&str], network: wire::NamespaceMode) -> SandboxObservation {
        let additional_ips = further.iter().map(|ip| wire::PodIp { ip: (*ip).to_owned() }).collect();
        let options = wire::NamespaceOption { network: network.into(), ..Default::default() };
        let wire = wire::PodSandboxStatus {
            id: "s1".to_owned(),
            metadata: Some(wire::PodSandboxMetadata {
                name: "web".to_owned(),
                uid: "u1".to_owned(),
                namespace: "default".to_owned(),
                attempt: 3,
            }),
            network: Some(wire::PodSandboxNetworkStatus { ip: ip.to_owned(), additional_ips }),
            linux: Some(wire::LinuxPodSandboxStatus {
                namespaces: Some(wire::Namespace { options: Some(options) }),
            }),
            ..Default::default()
        };
        observation(wire).unwrap()
    }

    #[test]
    fn primary_address_comes_first() {
        let seen = status("10.0.0.7", &["fd00::7"], wire::NamespaceMode::Pod);
        let texts: Vec<String> = seen.ips.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.7", "fd00::7"]);
        assert_eq!(seen.attempt, 3);
        assert_eq!(seen.pod, PodRef::new("default", "web", "u1"));
    }

    #[test]
    fn invalid_addresses_are_left_out() {
        assert!(status("", &["not an address"], wire::NamespaceMode::Pod).ips.is_empty());
    }

    #[test]
    fn pod_on_the_host_network_has_no_address() {
        let seen = status("192.0.2.1", &[], wire::NamespaceMode::Node);
        assert!(seen.ips.is_empty());
        assert_eq!(seen.network, NamespaceMode::Node);
    }

    #[test]
    fn sandbox_without_metadata_is_ignored() {
        assert_eq!(observation(wire::PodSandboxStatus::default()), None);
    }

    #[test]
    fn unknown_sandbox_state_is_not_ready() {
        assert_eq!(state(0), SandboxState::Ready);
        assert_eq!(state(1), SandboxState::NotReady);
        assert_eq!(state(77), SandboxState::NotReady);
    }
}
