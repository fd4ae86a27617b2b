//! The addresses of a node (docs/behaviour/node-status.md): which one is used, and what is left to a cloud provider. Never
//! resolves a name or inspects an interface.

use std::net::IpAddr;

use model::k8s::NodeAddress;

use super::NodeInputs;

/// The addresses and the annotation that the Node gets.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAddresses {
    pub addresses: Vec<NodeAddress>,
    /// The value of the annotation for cloud providers; `None` removes it.
    pub provided_ip: Option<String>,
}

/// Why the node has no address. The Node keeps its previous addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("failed to validate nodeIP: {0}")]
    InvalidNodeIp(String),
    #[error(
        "can't get ip address of node {node}: set --node-ip, make the name resolvable, or add a default route"
    )]
    None { node: String },
}

/// Computes the addresses; `existing` are those that the Node has.
///
/// # Errors
/// The configured address does not belong to this host, or no address can be found.
pub fn compute_addresses(
    inputs: &NodeInputs<'_>,
    existing: &[NodeAddress],
) -> Result<NodeAddresses, AddressError> {
    let node_ips = inputs.flags.node_ips();
    let given: Vec<IpAddr> = match node_ips.first() {
        Some(first) if !first.is_unspecified() => node_ips.clone(),
        Some(_) | None => Vec::new(),
    };
    for ip in &given {
        if let Some(problem) = invalid_node_ip(*ip, inputs.interface_ips) {
            return Err(AddressError::InvalidNodeIp(problem));
        }
    }
    let is_external = inputs.flags.cloud_provider == "external";
    let list = |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let provided_ip = (is_external && !given.is_empty()).then(|| list(&given));
    if is_external && !existing.is_empty() {
        return Ok(NodeAddresses { addresses: existing.to_vec(), provided_ip });
    }
    let internal = if !given.is_empty() {
        given
    } else if is_external && node_ips.is_empty() {
        // The cloud provider sets the addresses.
        Vec::new()
    } else {
        // `0.0.0.0` and `::` request an address of that family, also until a cloud provider sets another.
        vec![found(inputs, node_ips.first().copied())?]
    };
    let mut addresses: Vec<_> = internal.iter().map(|ip| address("InternalIP", &ip.to_string())).collect();
    addresses.push(address("Hostname", inputs.hostname));
    Ok(NodeAddresses { addresses, provided_ip })
}

fn address(kind: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: kind.to_owned(), address: address.to_owned() }
}

/// The address of a node without `--node-ip`: its name if that is an address, what its name resolves to, or the address of
/// the default route.
fn found(inputs: &NodeInputs<'_>, family: Option<IpAddr>) -> Result<IpAddr, AddressError> {
    if let Ok(ip) = inputs.hostname.parse() {
        return Ok(ip);
    }
    let wants_ipv4 = family.is_none_or(|ip| ip.is_ipv4());
    let fit =
        || inputs.resolved_ips.iter().filter(|ip| invalid_node_ip(**ip, inputs.interface_ips).is_none());
    fit()
        .find(|ip| ip.is_ipv4() == wants_ipv4)
        .or_else(|| fit().next())
        .copied()
        .or(inputs.default_route_ip)
        .ok_or_else(|| AddressError::None { node: inputs.name.to_owned() })
}

/// Why an address cannot be the node's; `None` if it can.
#[must_use]
pub fn invalid_node_ip(ip: IpAddr, interface_ips: &[IpAddr]) -> Option<String> {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if ip.is_loopback() {
        Some("nodeIP can't be loopback address".to_owned())
    } else if ip.is_multicast() {
        Some("nodeIP can't be a multicast address".to_owned())
    } else if is_link_local {
        Some("nodeIP can't be a link-local unicast address".to_owned())
    } else if ip.is_unspecified() {
        Some("nodeIP can't be an all zeros address".to_owned())
    } else if !interface_ips.contains(&ip) {
        Some(format!("node IP: {:?} not found in the host's network interfaces", ip.to_string()))
    } else {
        None
    }
}
