//! From the resolved configuration and the machine to what the agent and the requests to the runtime need.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base_agent::settings::{Paths, ProcessSettings, Settings};
use base_core::node_facts::{MemoryQos, MemoryRules, NodeFacts, Swap};
use config::{Features, KubeletConfiguration, Resolved};
use cri::Endpoint;
use kubelet_core::node::reserved_for_node;
use model::Amount;
use model::cgroup::CgroupPath;
use ports::host::MachineInfo;

use crate::private_paths;

pub(crate) fn settings(resolved: &Resolved, node_name: String, host_ips: Vec<IpAddr>) -> Settings {
    let paths = paths(resolved);
    Settings {
        node_name,
        build: crate::build::BUILD,
        flags: resolved.flags.clone(),
        gates: resolved.gates.clone(),
        credential_providers: resolved.credential_providers.clone(),
        credential_dirs: credential_dirs(&paths.root),
        paths,
        host_ips,
        time_zone: crate::time_zone::local(),
        processes: processes(resolved),
        kept_events: 0,
    }
}

fn paths(resolved: &Resolved) -> Paths {
    let defaults = Paths::default();
    let container_links =
        private_paths::path(private_paths::CONTAINER_LINKS).unwrap_or(defaults.container_links);
    Paths {
        root: resolved.flags.root_dir.clone().into(),
        system_logs: container_links.parent().unwrap_or(&container_links).to_owned(),
        container_links,
        kernel_log: kernel_log(),
        ..defaults
    }
}

/// The kernel log of the machine.
pub(crate) fn kernel_log() -> PathBuf {
    private_paths::path(private_paths::KERNEL_LOG).unwrap_or(Paths::default().kernel_log)
}

/// As in the Go kubelet: the root directory, the working directory, and the `.docker` directories of the user and of `/`.
fn credential_dirs(root: &Path) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    [Some(root.to_owned()), Some(".".into()), home, Some("/.docker".into())].into_iter().flatten().collect()
}

fn processes(resolved: &Resolved) -> ProcessSettings {
    let kubelet = &resolved.kubelet;
    let named = |text: &str| {
        let path = || CgroupPath::directory(format!("/{}", text.trim_matches('/')));
        (!text.is_empty()).then(path)
    };
    // An endpoint that cannot be parsed has ended the start already.
    let socket =
        Endpoint::parse(&kubelet.container_runtime_endpoint).map(|endpoint| endpoint.path().to_owned());
    ProcessSettings {
        own_pid: std::process::id(),
        kubelet: named(&kubelet.kubelet_cgroups),
        runtime: named(&resolved.flags.runtime_cgroups),
        system: named(&kubelet.system_cgroups),
        runtime_socket: socket.unwrap_or_default(),
    }
}

/// The memory that all pods together may use.
fn allocatable_memory(config: &KubeletConfiguration, capacity_bytes: u64) -> i64 {
    let whole = Amount::from_units(i64::try_from(capacity_bytes).unwrap_or(i64::MAX));
    let reserved = reserved_for_node(config).get("memory").copied().unwrap_or(Amount::ZERO);
    (whole - reserved).max(Amount::ZERO).units()
}

/// What the cgroup files of containers get from their memory requests; cgroup v1 has no files for it.
fn memory_rules(resolved: &Resolved, machine: &MachineInfo, cgroup_v2: bool) -> MemoryRules {
    let config = &resolved.kubelet;
    let is_on = Features::of(&resolved.gates).memory_qos && cgroup_v2;
    let qos = match (is_on, config.memory_reservation_policy == "TieredReservation") {
        (false, _) => MemoryQos::Off,
        (true, false) => MemoryQos::Throttling,
        (true, true) => MemoryQos::Reservation,
    };
    let allocatable = allocatable_memory(config, machine.memory_bytes);
    MemoryRules {
        qos,
        allocatable_bytes: u64::try_from(allocatable).unwrap_or(0),
        page_bytes: machine.page_bytes,
    }
}

/// The facts about this node that requests to the runtime are computed from. `limits_swap`: the kernel can limit swap.
pub(crate) fn node_facts(
    resolved: &Resolved,
    machine: MachineInfo,
    cgroup_v2: bool,
    limits_swap: bool,
) -> NodeFacts {
    let kubelet = &resolved.kubelet;
    let memory = memory_rules(resolved, &machine, cgroup_v2);
    NodeFacts {
        config: Arc::new(kubelet.clone()),
        memory_capacity_bytes: machine.memory_bytes,
        thermal_throttle_paths: machine.thermal_throttle_paths,
        selinux_enabled: machine.selinux_enabled,
        selinux_file_label: machine.selinux_file_label,
        seccomp_dir: PathBuf::from(&resolved.flags.root_dir).join("seccomp").display().to_string(),
        cgroup_v2,
        swap: match (limits_swap, kubelet.memory_swap.swap_behavior == "LimitedSwap") {
            (false, _) => Swap::Uncontrolled,
            (true, false) => Swap::NoSwap,
            (true, true) => Swap::Limited { node_swap_bytes: machine.swap_bytes },
        },
        memory,
        hugepage_sizes: machine.hugepage_sizes,
        features: Features::of(&resolved.gates),
    }
}
