//! The node's own IP addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Addresses of the documentation ranges: no node has them, so the way to them is the default route.
const FAR_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The node's addresses, the first being the one that pods see as `status.hostIP`; never empty.
///
/// `node_ips` is the value of `--node-ip`, at most one of each family. Those that are on an interface and valid for a node
/// are used. An unspecified one (`0.0.0.0`, `::`) only names the family to prefer. Without any: the address from which
/// the default route leaves, and without a route `127.0.0.1`.
#[must_use]
pub fn host_ips(node_ips: &[IpAddr]) -> Vec<IpAddr> {
    let given: Vec<IpAddr> =
        node_ips.iter().copied().filter(|ip| is_fit_for_node(*ip) && is_on_interface(*ip)).collect();
    if !given.is_empty() {
        return given;
    }
    let prefers_v6 = node_ips.first().is_some_and(IpAddr::is_ipv6);
    vec![default_route_ip(prefers_v6).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))]
}

/// Those of the candidates that are on an interface of this machine.
pub(crate) fn own_addresses(candidates: &[IpAddr]) -> Vec<IpAddr> {
    candidates.iter().copied().filter(|ip| is_on_interface(*ip)).collect()
}

/// The address from which the default route leaves.
pub(crate) fn default_route_ip(prefers_v6: bool) -> Option<IpAddr> {
    let far = if prefers_v6 { [IpAddr::V6(FAR_V6), FAR_V4.into()] } else { [FAR_V4.into(), FAR_V6.into()] };
    far.into_iter().find_map(source_towards)
}

fn is_fit_for_node(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() || link_local)
}

/// The kernel allows binding only to addresses of this machine.
fn is_on_interface(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// The address the kernel would send from. Connecting a datagram socket chooses it without sending anything.
fn source_towards(far: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match far {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(SocketAddr::new(far, 9)).ok()?;
    socket.local_addr().ok().map(|local| local.ip()).filter(|ip| is_fit_for_node(*ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ips_are_never_empty() {
        assert_eq!(host_ips(&[]).len(), 1);
    }

    #[test]
    fn node_ip_must_be_an_address_of_the_node() {
        let own = host_ips(&[]);
        if is_fit_for_node(own[0]) {
            assert_eq!(host_ips(&own), own);
        }
        let foreign: IpAddr = "198.51.100.77".parse().unwrap();
        assert_eq!(host_ips(&[foreign]), own);
    }

    #[test]
    fn unreachable_node_addresses_are_invalid() {
        for text in ["127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "::1", "fe80::1", "ff02::1", "::"] {
            assert!(!is_fit_for_node(text.parse().unwrap()), "{text}");
        }
        assert!(is_fit_for_node("10.0.0.7".parse().unwrap()));
    }
}
