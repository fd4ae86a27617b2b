//! A pod's DNS configuration (docs/behaviour/pod-environment.md): the node's resolv.conf, the cluster's servers, the pod's
//! `dnsConfig`, and the limits of resolvers. Never reads the file itself.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::PodRef;
use model::containers::spec_of;
use model::k8s::{Pod, PodDNSConfig};
use model::request::DnsRequest;

use crate::pods::request::describe;

const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
const MAX_DOMAIN_CHARS: usize = 253;

/// The DNS configuration of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDns {
    /// `clusterDNS`.
    pub cluster_dns: Vec<IpAddr>,
    /// `clusterDomain`; may be empty.
    pub cluster_domain: String,
    /// The content of `resolvConf`; `None` if that is empty, which disables lookups.
    pub resolv_conf: Option<String>,
    pub node_ips: Vec<IpAddr>,
}

/// A pod's DNS configuration, and the warnings for its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDns {
    pub dns: DnsRequest,
    pub warnings: Vec<DnsWarning>,
}

/// A Warning event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsWarning {
    pub reason: DnsWarningReason,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsWarningReason {
    /// Entries were omitted to fit the limits of resolvers.
    DnsConfigForming,
    /// The pod requests cluster DNS and the node has no cluster DNS server.
    MissingClusterDns,
    /// The node's own file exceeds the limits.
    CheckLimitsForResolvConf,
}

impl DnsWarningReason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DnsConfigForming => "DNSConfigForming",
            Self::MissingClusterDns => "MissingClusterDNS",
            Self::CheckLimitsForResolvConf => "CheckLimitsForResolvConf",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resolv.conf line {line}: nameserver without an address")]
pub struct ResolvConfError {
    pub line: usize,
}

/// Parses a resolv.conf: all name servers, the last `search` line, options (the last one of a name is used). Lines that a
/// resolver would not understand are skipped.
///
/// # Errors
/// A `nameserver` line has no address.
pub fn parse_resolv_conf(text: &str) -> Result<DnsRequest, ResolvConfError> {
    let (mut dns, mut options) = (DnsRequest::default(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                let server = words.next().ok_or(ResolvConfError { line: index + 1 })?;
                dns.servers.push(server.to_owned());
            }
            Some("search") => {
                // A single dot is the root, which every resolver tries anyway.
                dns.searches = words.filter(|domain| *domain != ".").map(without_dot).collect();
            }
            Some("options") => options.extend(words.map(str::to_owned)),
            Some(_) | None => {}
        }
    }
    set_options(&mut dns.options, options);
    Ok(dns)
}

/// A domain is equal with or without a dot at its end.
fn without_dot(domain: &str) -> String {
    domain.strip_suffix('.').unwrap_or(domain).to_owned()
}

/// Options are `name` or `name:value`; a later one replaces an earlier one of that name. The API server limits name servers
/// and search domains of a pod, but not its options.
fn set_options(options: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    let name = |option: &str| option.split_once(':').map_or(option, |(name, _)| name).to_owned();
    let mut positions: BTreeMap<String, usize> =
        options.iter().enumerate().map(|(position, option)| (name(option), position)).collect();
    for option in more {
        match positions.entry(name(&option)) {
            Entry::Occupied(position) => options[*position.get()] = option,
            Entry::Vacant(position) => {
                position.insert(options.len());
                options.push(option);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cluster,
    Host,
    None,
}

/// The effective DNS policy of a pod. In the node's network namespace `ClusterFirst` means `Default`.
fn kind_of(pod: &Pod) -> Kind {
    let spec = spec_of(pod);
    match spec.dns_policy.as_deref() {
        Some("None") => Kind::None,
        Some("ClusterFirstWithHostNet") => Kind::Cluster,
        Some("Default") => Kind::Host,
        Some("ClusterFirst") | None if spec.host_network == Some(true) => Kind::Host,
        Some(_) | None => Kind::Cluster,
    }
}

/// Computes the content of a pod's resolv.conf.
///
/// # Errors
/// The node's file cannot be read, and the pod's policy needs it.
pub fn compute_pod_dns(pod: &Pod, node: &NodeDns) -> Result<PodDns, ResolvConfError> {
    let mut warnings = Vec::new();
    let kind = kind_of(pod);
    let host = match (&node.resolv_conf, kind) {
        (_, Kind::None) => DnsRequest::default(),
        (Some(text), _) => parse_resolv_conf(text)?,
        (None, _) => DnsRequest::default(),
    };
    let mut dns = match kind {
        Kind::None => host,
        Kind::Cluster if !node.cluster_dns.is_empty() => cluster_dns(pod, node, host),
        Kind::Cluster => {
            warnings.push(missing_cluster_dns(pod));
            host_dns(node, host)
        }
        Kind::Host => host_dns(node, host),
    };
    if let Some(wishes) = &spec_of(pod).dns_config {
        add_dns_config(&mut dns, wishes);
    }
    limit_servers(&mut dns, &mut warnings);
    limit_searches(&mut dns, &mut warnings);
    Ok(PodDns { dns, warnings })
}

fn cluster_dns(pod: &Pod, node: &NodeDns, host: DnsRequest) -> DnsRequest {
    let domain = &node.cluster_domain;
    let namespace = PodRef::of(pod).namespace;
    let mut searches = match domain.as_str() {
        "" => Vec::new(),
        domain => vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()],
    };
    add_new(&mut searches, &host.searches);
    DnsRequest {
        servers: node.cluster_dns.iter().map(ToString::to_string).collect(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

/// The node's own configuration; without one, a server that does not exist, so that no other default applies.
fn host_dns(node: &NodeDns, host: DnsRequest) -> DnsRequest {
    if node.resolv_conf.is_some() {
        return host;
    }
    let loopback = |ip: &IpAddr| if ip.is_ipv6() { "::1" } else { "127.0.0.1" }.to_owned();
    let mut servers: Vec<_> = node.node_ips.iter().map(loopback).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    DnsRequest { servers, searches: vec![".".to_owned()], options: Vec::new() }
}

/// The message of the event about the node if a pod requests cluster DNS and the node has no cluster DNS server.
pub const MISSING_CLUSTER_DNS: &str = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                                       \"ClusterFirst\" policy. Falling back to \"Default\" policy.";

fn missing_cluster_dns(pod: &Pod) -> DnsWarning {
    let message = format!("pod: {:?}. {MISSING_CLUSTER_DNS}", describe(pod));
    DnsWarning { reason: DnsWarningReason::MissingClusterDns, message }
}

fn add_dns_config(dns: &mut DnsRequest, wishes: &PodDNSConfig) {
    add_new(&mut dns.servers, wishes.nameservers.as_deref().unwrap_or_default());
    add_new(&mut dns.searches, wishes.searches.as_deref().unwrap_or_default());
    let options = wishes.options.iter().flatten().map(|option| {
        let name = option.name.as_deref().unwrap_or_default();
        match option.value.as_deref() {
            Some(value) if !value.is_empty() => format!("{name}:{value}"),
            Some(_) | None => name.to_owned(),
        }
    });
    set_options(&mut dns.options, options);
}

/// Adds new entries, and removes duplicates.
fn add_new(list: &mut Vec<String>, more: &[String]) {
    let mut seen = BTreeSet::new();
    list.extend_from_slice(more);
    list.retain(|item| seen.insert(item.clone()));
}

fn limit_servers(dns: &mut DnsRequest, warnings: &mut Vec<DnsWarning>) {
    if dns.servers.len() <= MAX_SERVERS {
        return;
    }
    dns.servers.truncate(MAX_SERVERS);
    let message = format!(
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
        dns.servers.join(" ")
    );
    warnings.push(DnsWarning { reason: DnsWarningReason::DnsConfigForming, message });
}

fn limit_searches(dns: &mut DnsRequest, warnings: &mut Vec<DnsWarning>) {
    let before = dns.searches.len();
    dns.searches.truncate(MAX_SEARCHES);
    // Some resolvers abort on longer ones.
    dns.searches.retain(|domain| domain.len() <= MAX_DOMAIN_CHARS);
    while dns.searches.join(" ").len() > MAX_SEARCH_CHARS {
        dns.searches.pop();
    }
    if dns.searches.len() == before {
        return;
    }
    let message = format!(
        "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
        dns.searches.join(" ")
    );
    warnings.push(DnsWarning { reason: DnsWarningReason::DnsConfigForming, message });
}

/// Whether the node's own file leaves space for the three domains that a cluster adds.
#[must_use]
pub fn check_resolv_conf(path: &str, text: &str, cluster_domain: &str) -> Option<DnsWarning> {
    let warning = |message| Some(DnsWarning { reason: DnsWarningReason::CheckLimitsForResolvConf, message });
    let searches = match parse_resolv_conf(text) {
        Ok(dns) => dns.searches,
        Err(error) => return warning(error.to_string()),
    };
    let for_cluster = if cluster_domain.is_empty() { 0 } else { 3 };
    let max_searches = MAX_SEARCHES - for_cluster;
    if searches.len() > max_searches {
        return warning(format!(
            "Resolv.conf file '{path}' contains search line consisting of more than {max_searches} domains!"
        ));
    }
    if searches.iter().any(|domain| domain.len() > MAX_DOMAIN_CHARS) {
        return warning(format!(
            "Resolv.conf file {path:?} contains a search path which length is more than allowed {MAX_DOMAIN_CHARS} \
             chars!"
        ));
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARS {
        return warning(format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed {MAX_SEARCH_CHARS} chars!"
        ));
    }
    None
}

#[cfg(test)]
mod tests;
