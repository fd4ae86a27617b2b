//! Settings that only the command line has, and the rules for the name, addresses and labels of the node. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::duration::GoDuration;
use crate::error::{ConfigError, ConfigErrors};
use crate::kubeletconfig::configuration;

configuration! {
    /// The flags that have no field in the configuration file.
    NodeFlags {
        config, "config": String = String::new();
        config_dir, "configDir": String = String::new();
        /// Empty: the kubelet is standalone.
        kubeconfig, "kubeconfig": String = String::new();
        bootstrap_kubeconfig, "bootstrapKubeconfig": String = String::new();
        hostname_override, "hostnameOverride": String = String::new();
        /// As given; [`NodeFlags::node_ips`] parses it.
        node_ip, "nodeIp": String = String::new();
        root_dir, "rootDir": String = "/var/lib/kubelet".to_owned();
        cert_dir, "certDir": String = "/var/lib/kubelet/pki".to_owned();
        cloud_provider, "cloudProvider": String = String::new();
        node_labels, "nodeLabels": BTreeMap<String, String> = BTreeMap::new();
        /// Empty: no lock.
        lock_file, "lockFile": String = String::new();
        exit_on_lock_contention, "exitOnLockContention": bool = false;
        /// Only this kubelet has it; [`NodeFlags::local_socket_mode`] parses it.
        local_socket_mode, "localSocketMode": String = "0600".to_owned();
        /// Only this kubelet has it. Empty: that of the kubelet.
        local_socket_group, "localSocketGroup": String = String::new();
        /// Only this kubelet has it: it serves the API of this node itself.
        single_node, "singleNode": bool = false;
        /// Only this kubelet has it: the port of that API.
        single_node_port, "singleNodePort": i32 = 6443;
        /// Only this kubelet has it: the address of that API; [`NodeFlags::single_node_address`] parses it.
        single_node_address, "singleNodeAddress": String = "127.0.0.1".to_owned();
        /// Only this kubelet has it: where that API's kubeconfig for the administrator is written.
        admin_kubeconfig, "adminKubeconfig": String = "/etc/kubernetes/admin.conf".to_owned();
        /// Only this kubelet has it: the group that may read that kubeconfig. Empty: root only.
        admin_kubeconfig_group, "adminKubeconfigGroup": String = String::new();
        /// Only this kubelet has it: the file with the key that encrypts Secrets of that API on disk.
        single_node_key, "singleNodeKey": String = "/etc/kubernetes/single-node.key".to_owned();
        runtime_cgroups, "runtimeCgroups": String = String::new();
        image_credential_provider_config, "imageCredentialProviderConfig": String = String::new();
        image_credential_provider_bin_dir, "imageCredentialProviderBinDir": String = String::new();
        housekeeping_interval, "housekeepingInterval": GoDuration = GoDuration::from_secs(10);
        max_housekeeping_interval, "maxHousekeepingInterval": GoDuration = GoDuration::from_secs(15);
        minimum_container_ttl, "minimumContainerTtl": GoDuration = GoDuration::ZERO;
        /// Below 0: no limit.
        maximum_dead_containers_per_container, "maximumDeadContainersPerContainer": i32 = 1;
        /// Below 0: no limit.
        maximum_dead_containers, "maximumDeadContainers": i32 = -1;
        experimental_mounter_path, "experimentalMounterPath": String = String::new();
        experimental_allocatable_ignore_eviction, "experimentalAllocatableIgnoreEviction": bool = false;
    }
}

impl NodeFlags {
    /// Standalone mode: without an API server, only static pods run.
    #[must_use]
    pub fn standalone(&self) -> bool {
        self.kubeconfig.is_empty()
    }

    /// Where the API of a single node has its database, its certificates and the kubeconfig of the node.
    #[must_use]
    pub fn single_node_dir(&self) -> PathBuf {
        Path::new(&self.root_dir).join("single-node")
    }

    /// Where the API of a single node listens.
    #[must_use]
    pub fn single_node_address(&self) -> Option<IpAddr> {
        self.single_node_address.parse().ok().filter(|address: &IpAddr| !address.is_unspecified())
    }

    /// The kubeconfig that the API of a single node writes for this node called so.
    #[must_use]
    pub fn single_node_kubeconfig(&self) -> PathBuf {
        self.single_node_dir().join("node.kubeconfig")
    }

    /// The addresses of `--node-ip`, in the order given. Unspecified ones (`0.0.0.0`, `::`) only select a family.
    #[must_use]
    pub fn node_ips(&self) -> Vec<IpAddr> {
        self.node_ip.split(',').filter_map(|text| text.trim().parse().ok()).collect()
    }

    /// The name of the node: `--hostname-override` or the host name, trimmed and in lower case.
    ///
    /// # Errors
    /// The name is empty or not a DNS subdomain.
    pub fn node_name(&self, hostname: &str) -> Result<String, ConfigError> {
        let (given, origin) = if self.hostname_override.is_empty() {
            (hostname, "the host name")
        } else {
            (self.hostname_override.as_str(), "--hostname-override")
        };
        let name = given.trim().to_lowercase();
        if is_dns_subdomain(&name) {
            return Ok(name);
        }
        Err(ConfigError::Invalid {
            field: origin.to_owned(),
            value: format!("{given:?}"),
            allowed: "a DNS name: letters, digits, - and ., at most 253, beginning and ending with a letter or digit"
                .to_owned(),
        })
    }

    pub(crate) fn check(&self, errors: &mut ConfigErrors) {
        let mut invalid = |flag: &str, value: &str, allowed: &str| {
            let field = format!("--{flag}");
            errors.push(ConfigError::Invalid {
                field,
                value: format!("{value:?}"),
                allowed: allowed.to_owned(),
            });
        };
        if !["", "external"].contains(&self.cloud_provider.as_str()) {
            invalid("cloud-provider", &self.cloud_provider, "empty or external");
        }
        if !node_ip_fits(&self.node_ip) {
            invalid(
                "node-ip",
                &self.node_ip,
                "one IP address, or one IPv4 and one IPv6 address, neither of them unspecified",
            );
        }
        if !LOCAL_SOCKET_MODES.iter().any(|(text, _)| *text == self.local_socket_mode) {
            let allowed = "0600 (root only) or 0660 (root and the group of --local-socket-group)";
            invalid("local-socket-mode", &self.local_socket_mode, allowed);
        }
        if !(1..=65535).contains(&self.single_node_port) {
            invalid("single-node-port", &self.single_node_port.to_string(), "a port: 1 to 65535");
        }
        if self.single_node_address().is_none() {
            let allowed =
                "one IP address of this machine: pods and the kubeconfig use it, so it cannot be 0.0.0.0";
            invalid("single-node-address", &self.single_node_address, allowed);
        }
        for (flag, group) in [
            ("local-socket-group", &self.local_socket_group),
            ("admin-kubeconfig-group", &self.admin_kubeconfig_group),
        ] {
            if !is_group(group) {
                invalid(flag, group, "the name of a group of this machine, or its number");
            }
        }
        for (key, value) in &self.node_labels {
            if !is_label_key(key) {
                invalid("node-labels", key, "label keys such as example.com/name");
            } else if !may_label(key) {
                invalid("node-labels", key, ALLOWED_LABELS);
            }
            if !is_label_value(value) {
                invalid("node-labels", value, "label values: at most 63 letters, digits, -, _ and .");
            }
        }
        self.check_pairs(errors);
    }

    /// The mode of the local socket.
    #[must_use]
    pub fn local_socket_mode(&self) -> u32 {
        let known = LOCAL_SOCKET_MODES.iter().find(|(text, _)| *text == self.local_socket_mode);
        known.map_or(0o600, |(_, mode)| *mode)
    }

    fn check_pairs(&self, errors: &mut ConfigErrors) {
        let mut conflict = |problem: &str| errors.push(ConfigError::Conflict { problem: problem.to_owned() });
        if self.exit_on_lock_contention && self.lock_file.is_empty() {
            conflict("--exit-on-lock-contention needs --lock-file");
        }
        let own = self.single_node_kubeconfig();
        let has_other = Path::new(&self.kubeconfig) != own || !self.bootstrap_kubeconfig.is_empty();
        if self.single_node && has_other {
            conflict(
                "--single-node serves the API of this node and makes the kubeconfig for it: remove --kubeconfig and --bootstrap-kubeconfig",
            );
        }
        if !self.local_socket_group.is_empty() && self.local_socket_mode == "0600" {
            conflict(
                "--local-socket-group needs --local-socket-mode=0660, because with 0600 only root may open the socket",
            );
        }
        if self.image_credential_provider_config.is_empty()
            != self.image_credential_provider_bin_dir.is_empty()
        {
            conflict(
                "--image-credential-provider-config and --image-credential-provider-bin-dir must be set both or neither",
            );
        }
    }
}

/// Whoever may open the socket may read every log and run every command, so others than the group never may.
const LOCAL_SOCKET_MODES: [(&str, u32); 2] = [("0600", 0o600), ("0660", 0o660)];

fn is_group(name: &str) -> bool {
    name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

const ALLOWED_LABELS: &str = "outside kubernetes.io and k8s.io, or begin with kubelet.kubernetes.io or \
    node.kubernetes.io, or be one of kubernetes.io/hostname, kubernetes.io/os, kubernetes.io/arch, \
    topology.kubernetes.io/region, topology.kubernetes.io/zone or their beta forms";

const LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// A kubelet cannot set labels that the control plane trusts (NodeRestriction).
fn may_label(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let inside = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    let reserved = inside("kubernetes.io") || inside("k8s.io");
    !reserved || inside("kubelet.kubernetes.io") || inside("node.kubernetes.io") || LABELS.contains(&key)
}

pub(crate) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && !name.is_empty() && is_label_value(name),
        None => !key.is_empty() && is_label_value(key),
    }
}

pub(crate) fn is_label_value(value: &str) -> bool {
    let is_alphanumeric = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && is_alphanumeric(bytes.first())
        && is_alphanumeric(bytes.last())
}

/// RFC 1123 subdomain, in lower case.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let bytes = label.as_bytes();
            bytes.first().is_some_and(plain)
                && bytes.last().is_some_and(plain)
                && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
        })
}

fn node_ip_fits(text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    let ips: Result<Vec<IpAddr>, _> = text.split(',').map(|part| part.trim().parse::<IpAddr>()).collect();
    match ips.as_deref() {
        Ok([_]) => true,
        Ok([first, second]) => {
            first.is_ipv4() != second.is_ipv4() && !first.is_unspecified() && !second.is_unspecified()
        }
        Ok(_) | Err(_) => false,
    }
}
