//! What a configuration means on this machine: what it cannot do here, and what it would do at once. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use model::Amount;

use super::finding::{Finding, FindingKind, Severity};
use crate::{KubeletConfiguration, MachineFacts, NodeFlags, validate};

/// A certificate that ends sooner is a warning.
const SOON_SECONDS: i64 = 7 * 24 * 3600;

/// The facts about the machine that settings depend on. What is missing is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    pub facts: MachineFacts,
    /// TCP ports that something listens on.
    pub ports: Vec<PortInUse>,
    /// Sockets that should answer, with the error of those that do not.
    pub sockets: BTreeMap<PathBuf, Option<String>>,
    /// Of the container runtime: `systemd` or `cgroupfs`.
    pub cgroup_driver: Option<String>,
    /// Files that must be read, with the error of those that cannot be.
    pub files: BTreeMap<PathBuf, Option<String>>,
    /// When the first certificate of a file ends, or why it cannot be read.
    pub certificates: BTreeMap<PathBuf, Result<Timestamp, String>>,
    /// The `nameserver` lines of `resolvConf`.
    pub name_servers: Option<Vec<String>>,
    /// The filesystem of the root directory.
    pub node_disk: Option<Space>,
    pub memory_bytes: Option<u64>,
    pub memory_available_bytes: Option<u64>,
    pub cpus: Option<u64>,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInUse {
    pub address: IpAddr,
    pub port: u16,
    /// `nginx (pid 812)`; empty if that is not known.
    pub holder: String,
}

/// Of a filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub bytes: u64,
    pub available_bytes: u64,
    pub inodes: u64,
    pub free_inodes: u64,
}

/// Everything that the machine has to do with the configuration.
#[must_use]
pub fn compute_machine_findings(
    config: &KubeletConfiguration,
    flags: &NodeFlags,
    machine: &Machine,
) -> Vec<Finding> {
    let mut check = Check { config, machine, found: Vec::new() };
    check.kernel();
    check.ports();
    check.runtime();
    check.files(flags);
    check.certificates();
    check.name_servers();
    check.disk();
    check.reserved();
    check.found
}

struct Check<'a> {
    config: &'a KubeletConfiguration,
    machine: &'a Machine,
    found: Vec<Finding>,
}

impl Check<'_> {
    fn error(&mut self, setting: &str, message: String, advice: &str) {
        let finding = Finding::new(Severity::Error, FindingKind::Impossible, setting, message);
        self.found.push(finding.advising(advice));
    }

    fn warning(&mut self, setting: &str, message: String, advice: &str) {
        let finding = Finding::new(Severity::Warning, FindingKind::Impossible, setting, message);
        self.found.push(finding.advising(advice));
    }

    fn kernel(&mut self) {
        match validate::machine(self.config, &self.machine.facts) {
            Ok(warnings) => {
                for warning in warnings {
                    self.warning("failCgroupV1", warning, "Boot with systemd.unified_cgroup_hierarchy=1.");
                }
            }
            Err(errors) => {
                let impossible = |finding: Finding| Finding { kind: FindingKind::Impossible, ..finding };
                self.found.extend(errors.errors.iter().map(Finding::of_error).map(impossible));
            }
        }
    }

    fn ports(&mut self) {
        let config = self.config;
        let server = |port| if config.enable_server { port } else { 0 };
        let wanted = [
            ("port", &config.address, server(config.port)),
            ("readOnlyPort", &config.address, server(config.read_only_port)),
            ("healthzPort", &config.healthz_bind_address, config.healthz_port),
        ];
        for (setting, address, number) in wanted {
            let Some(used) = self.machine.ports.iter().find(|used| used.clashes(address, number)) else {
                continue;
            };
            let by = if used.holder.is_empty() { "another process" } else { &used.holder };
            let message = format!("{setting} {number} is in use by {by}");
            if used.holder.starts_with("kubelet ") {
                self.warning(setting, message, "Stop that kubelet before this one starts.");
            } else {
                self.error(setting, message, "Stop that process, or choose another port.");
            }
        }
    }

    fn runtime(&mut self) {
        let endpoints = [
            ("containerRuntimeEndpoint", self.config.container_runtime_endpoint.clone()),
            ("imageServiceEndpoint", self.config.image_service_endpoint.clone()),
        ];
        for (setting, endpoint) in endpoints {
            let path = PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(&endpoint));
            if let Some(Some(error)) = self.machine.sockets.get(&path) {
                let message = format!("{setting} {endpoint} does not answer: {error}");
                self.error(
                    setting,
                    message,
                    "Start the container runtime, or correct the path of its socket.",
                );
            }
        }
        let configured = &self.config.cgroup_driver;
        if let Some(driver) = self.machine.cgroup_driver.as_ref().filter(|driver| *driver != configured) {
            let message =
                format!("cgroupDriver {configured} is not used: the container runtime reports {driver}");
            self.warning("cgroupDriver", message, "Set cgroupDriver to that of the container runtime.");
        }
    }

    fn files(&mut self, flags: &NodeFlags) {
        for (path, problem) in &self.machine.files {
            let Some(problem) = problem else { continue };
            let text = path.display().to_string();
            let setting = setting_of(self.config, flags, &text);
            let message = format!("{setting} {text}: {problem}");
            match setting {
                // The kubelet watches for it.
                "staticPodPath" => self.warning(setting, message, "Make the directory, or correct its path."),
                // The kubelet writes it.
                "--kubeconfig" if !flags.bootstrap_kubeconfig.is_empty() => {}
                // Its API server writes both.
                "--kubeconfig" | "authentication.x509.clientCAFile" if flags.single_node => {}
                _ => self.error(setting, message, "Write the file, or correct its path."),
            }
        }
    }

    fn certificates(&mut self) {
        for (path, end) in &self.machine.certificates {
            let text = path.display().to_string();
            let setting = match &self.config.tls_cert_file {
                file if *file == text => "tlsCertFile",
                _ => "authentication.x509.clientCAFile",
            };
            let left = match end {
                Ok(end) => end.duration_since(self.machine.now).as_secs(),
                Err(problem) => {
                    self.error(setting, format!("{setting} {text}: {problem}"), "Replace the file.");
                    continue;
                }
            };
            match (left, end) {
                (..=0, Ok(end)) => {
                    self.error(setting, format!("{setting} {text} ended at {end}"), "Renew the certificate.");
                }
                (1..SOON_SECONDS, Ok(end)) => {
                    self.warning(
                        setting,
                        format!("{setting} {text} ends at {end}"),
                        "Renew the certificate.",
                    );
                }
                _ => {}
            }
        }
    }

    fn name_servers(&mut self) {
        let file = &self.config.resolv_conf;
        let Some(servers) = self.machine.name_servers.as_ref().filter(|_| !file.is_empty()) else { return };
        let is_loopback = |server: &String| server.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if servers.is_empty() {
            let message = format!("resolvConf {file} has no nameserver");
            self.warning(
                "resolvConf",
                message,
                "Pods with dnsPolicy Default resolve no names until it has one.",
            );
        } else if let Some(server) = servers.iter().find(|server| is_loopback(server)) {
            let message = format!("resolvConf {file} has the name server {server}, which pods cannot reach");
            self.warning(
                "resolvConf",
                message,
                "With systemd-resolved, use /run/systemd/resolve/resolv.conf.",
            );
        }
    }

    fn disk(&mut self) {
        let thresholds = self.config.effective_eviction_hard();
        let disk = self.machine.node_disk;
        let memory = self.machine.memory_bytes.zip(self.machine.memory_available_bytes);
        let amounts = [
            ("memory.available", memory, "bytes of memory"),
            ("nodefs.available", disk.map(|disk| (disk.bytes, disk.available_bytes)), "bytes of the disk"),
            ("nodefs.inodesFree", disk.map(|disk| (disk.inodes, disk.free_inodes)), "inodes of the disk"),
        ];
        for (signal, amount, what) in amounts {
            let (Some(threshold), Some((whole, free))) = (thresholds.get(signal), amount) else { continue };
            // Some filesystems have no number of inodes.
            let Some(least) = amount_of(threshold, whole).filter(|_| whole > 0) else { continue };
            if free < least {
                let message = format!(
                    "evictionHard {signal} is {threshold} ({least}), but only {free} {what} are free"
                );
                self.error("evictionHard", message, "Free some, or lower the threshold: no pod would start.");
            }
        }
        let Some(disk) = disk.filter(|disk| disk.bytes > 0) else { return };
        let used = 100_u64.saturating_sub(disk.available_bytes.saturating_mul(100) / disk.bytes);
        let high = u64::try_from(self.config.image_gc_high_threshold_percent).unwrap_or(100);
        if used > high && high < 100 {
            let message =
                format!("imageGCHighThresholdPercent is {high}, and {used} % of the disk are in use");
            self.warning(
                "imageGCHighThresholdPercent",
                message,
                "Unused images are removed as soon as the kubelet runs.",
            );
        }
    }

    /// What is kept from pods, compared with what there is.
    fn reserved(&mut self) {
        let kept = |resource: &str| {
            let amount = |kept: &BTreeMap<String, String>| {
                kept.get(resource).and_then(|text| Amount::parse(text).ok()).unwrap_or(Amount::ZERO)
            };
            amount(&self.config.system_reserved) + amount(&self.config.kube_reserved)
        };
        let (memory, cpu) = (kept("memory"), kept("cpu"));
        let whole = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
        let too_much =
            [("memory", memory, whole(self.machine.memory_bytes)), ("cpu", cpu, whole(self.machine.cpus))];
        for (resource, kept, whole) in too_much {
            let Some(whole) = whole.filter(|whole| kept >= Amount::from_units(*whole)) else { continue };
            let kept = kept.units();
            let message = format!(
                "systemReserved and kubeReserved keep {kept} of {resource} from pods, but this machine has {whole}"
            );
            self.error("systemReserved", message, "Reserve less: pods would have nothing.");
        }
    }
}

impl PortInUse {
    fn clashes(&self, address: &str, port: i32) -> bool {
        let is_same = i32::from(self.port) == port;
        let wanted: Option<IpAddr> = address.parse().ok();
        let overlaps = |wanted: IpAddr| {
            wanted == self.address || wanted.is_unspecified() || self.address.is_unspecified()
        };
        is_same && wanted.is_some_and(overlaps)
    }
}

/// Which setting names the file.
fn setting_of(config: &KubeletConfiguration, flags: &NodeFlags, path: &str) -> &'static str {
    let names = [
        ("staticPodPath", &config.static_pod_path),
        ("tlsCertFile", &config.tls_cert_file),
        ("tlsPrivateKeyFile", &config.tls_private_key_file),
        ("authentication.x509.clientCAFile", &config.authentication.x509.client_ca_file),
        ("resolvConf", &config.resolv_conf),
        ("--kubeconfig", &flags.kubeconfig),
        ("--bootstrap-kubeconfig", &flags.bootstrap_kubeconfig),
    ];
    names.iter().find(|(_, value)| *value == path).map_or("", |(name, _)| name)
}

/// A threshold as a number: `10%` or a quantity.
fn amount_of(threshold: &str, whole: u64) -> Option<u64> {
    match threshold.strip_suffix('%') {
        Some(percent) => {
            let percent: u64 = percent.split('.').next()?.parse().ok()?;
            Some(whole / 100 * percent.min(100))
        }
        None => u64::try_from(Amount::parse(threshold).ok()?.units()).ok(),
    }
}
