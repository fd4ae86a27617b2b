//! The request for a pod sandbox.

use base_core::node_facts::NodeFacts;
use std::collections::BTreeMap;

use logs_core::log_paths;
use model::containers::{init_containers, regular_containers, spec_of};
use model::k8s::{ContainerPort, Pod};
use model::request::{DnsRequest, PortMapping, Protocol, SandboxRequest};
use model::{ContainerKind, PodRef};

use super::{ConfigError, PodFacts, labels, resources, security};
use crate::pods::hostname::compute_hostname;

/// The inputs of a sandbox request.
#[derive(Clone, Copy, Debug)]
pub struct SandboxInputs<'a> {
    pub pod: &'a Pod,
    pub node: &'a NodeFacts,
    pub facts: &'a PodFacts,
    /// 0 for the first sandbox of the pod, incremented for each further one.
    pub attempt: u32,
    /// From [`crate::pods::dns::compute_pod_dns`].
    pub dns: &'a DnsRequest,
    /// The pod's cgroup, in the notation of the cgroup driver; empty without cgroups per QoS class.
    pub cgroup_parent: &'a str,
}

/// Computes the request for a pod's sandbox.
///
/// # Errors
/// The pod's hostname is invalid, or the required user namespace is missing.
pub fn compute_sandbox_request(inputs: &SandboxInputs<'_>) -> Result<SandboxRequest, ConfigError> {
    let SandboxInputs { pod, node, facts, attempt, dns, cgroup_parent } = *inputs;
    let spec = spec_of(pod);
    let who = PodRef::of(pod);
    // A pod in the node's network namespace has the node's name.
    let hostname = if spec.host_network == Some(true) {
        String::new()
    } else {
        compute_hostname(pod, &node.config.cluster_domain, node.features)?
            .kernel_name(spec.set_hostname_as_fqdn.unwrap_or(false))?
    };
    Ok(SandboxRequest {
        attempt,
        hostname,
        log_directory: log_paths::pod_log_dir(&node.config.pod_logs_dir, &who),
        dns: dns.clone(),
        port_mappings: port_mappings(pod),
        labels: labels::sandbox_labels(pod),
        annotations: labels::sandbox_annotations(pod),
        cgroup_parent: cgroup_parent.to_owned(),
        sysctls: sysctls(pod),
        security: security::sandbox_security(pod, facts)?,
        overhead: Some(resources::overhead_resources(pod, node)),
        resources: Some(resources::sandbox_resources(pod, node)),
        runtime_handler: facts.runtime_handler.clone(),
        pod: who,
    })
}

/// The ports of all regular containers and sidecars. Those without a host port are listed too; the runtime skips them.
fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    let sidecars = init_containers(pod).filter(|c| c.kind == ContainerKind::Sidecar);
    regular_containers(pod).chain(sidecars).flat_map(|c| c.ports()).map(port_mapping).collect()
}

fn port_mapping(port: &ContainerPort) -> PortMapping {
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    PortMapping {
        protocol,
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or_default(),
        host_ip: port.host_ip.clone().unwrap_or_default(),
    }
}

/// Names in the kernel's dotted form; the other accepted form separates by slashes.
fn sysctls(pod: &Pod) -> BTreeMap<String, String> {
    let context = spec_of(pod).security_context.as_ref();
    context
        .and_then(|c| c.sysctls.as_ref())
        .into_iter()
        .flatten()
        .map(|sysctl| (base_core::sysctl::dotted(&sysctl.name), sysctl.value.clone()))
        .collect()
}
