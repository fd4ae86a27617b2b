//! From the resolved configuration to what the agent and the requests to the runtime need of it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::settings::{
    CgroupSettings, CollectionSettings, ContainerSettings, EvictionSettings, ImageSettings, LogSettings,
    MeasureSettings, NetworkSettings, NodeSettings, Paths, ProcessSettings, Settings, ShutdownSettings,
    SourceSettings,
};
use config::{Features, KubeletConfiguration, Resolved};
use cri::Endpoint;
use kubelet_core::images::access::VerificationPolicy;
use kubelet_core::images::garbage_collection::ImageGcPolicy;
use kubelet_core::node::eviction::threshold::compute_thresholds;
use kubelet_core::node::reserved_for_node;
use kubelet_core::node::shutdown::compute_periods;
use kubelet_core::pods::request::{MemoryRules, NodeFacts, Swap};
use kubelet_core::resources::cgroup::qos::MemoryReserve;
use kubelet_core::resources::cgroup::{MemoryQos, PodRules, QosCgroupRules};
use model::cgroup::CgroupPath;
use model::{Amount, CgroupDriver};
use ports::host::MachineInfo;

/// Where links to container logs are made; log collectors of all clusters read it. Tests give their own.
const CONTAINER_LINKS: &str = "/var/log/containers";
/// Where the kernel's log is read; tests write their own.
const KERNEL_LOG_VARIABLE: &str = "KUBELET_KERNEL_LOG";
const CONTAINER_LINKS_VARIABLE: &str = "KUBELET_CONTAINER_LINKS_DIR";

pub(crate) fn settings(
    resolved: &Resolved,
    facts: &NodeFacts,
    node_name: String,
    host_ips: Vec<IpAddr>,
) -> Settings {
    let kubelet = &resolved.kubelet;
    let config = Arc::new(kubelet.clone());
    let links =
        std::env::var_os(CONTAINER_LINKS_VARIABLE).map_or_else(|| CONTAINER_LINKS.into(), PathBuf::from);
    Settings {
        node_name,
        paths: Paths {
            root: resolved.flags.root_dir.clone().into(),
            pod_logs: kubelet.pod_logs_dir.clone().into(),
            system_logs: links.parent().unwrap_or(&links).to_owned(),
            container_links: links,
        },
        sources: sources(resolved),
        network: NetworkSettings {
            cluster_domain: kubelet.cluster_domain.clone(),
            // Validation has refused what is no address.
            cluster_dns: kubelet.cluster_dns_ips().collect(),
            resolv_conf: not_empty(&kubelet.resolv_conf).map(PathBuf::from),
            host_ips,
            pod_cidr: not_empty(&kubelet.pod_cidr).filter(|_| resolved.flags.standalone()).map(str::to_owned),
            firewall_chains: kubelet.make_iptables_util_chains,
        },
        images: images(resolved),
        logs: LogSettings {
            max_size_bytes: u64::try_from(kubelet.container_log_max_bytes()).unwrap_or(0),
            max_files: usize::try_from(kubelet.container_log_max_files).unwrap_or(2),
            max_workers: usize::try_from(kubelet.container_log_max_workers).unwrap_or(1).max(1),
            monitor_interval: kubelet.container_log_monitor_interval.as_std(),
            time_zone: crate::time_zone::local(),
        },
        collection: CollectionSettings {
            min_age: resolved.flags.minimum_container_ttl.as_std(),
            max_per_container: i64::from(resolved.flags.maximum_dead_containers_per_container),
            max_total: i64::from(resolved.flags.maximum_dead_containers),
        },
        containers: ContainerSettings {
            back_off_max: kubelet.crash_loop_back_off.max_container_restart_period.as_std(),
            seccomp_default: kubelet.seccomp_default,
            cpu_cfs_quota: kubelet.cpu_cfs_quota,
            cpu_cfs_quota_period: kubelet.cpu_cfs_quota_period.as_std(),
            allowed_unsafe_sysctls: kubelet.allowed_unsafe_sysctls.clone(),
            user_ids_per_pod: u32::try_from(kubelet.user_namespaces.ids_per_pod).unwrap_or(65536),
            max_pods: u32::try_from(kubelet.max_pods).unwrap_or(110),
        },
        measure: MeasureSettings {
            volume_stats_period: Some(kubelet.volume_stats_agg_period.as_std()).filter(|p| !p.is_zero()),
            kernel_log: std::env::var_os(KERNEL_LOG_VARIABLE)
                .map_or_else(|| MeasureSettings::default().kernel_log, PathBuf::from),
            ..MeasureSettings::default()
        },
        eviction: EvictionSettings {
            thresholds: compute_thresholds(kubelet),
            transition: kubelet.eviction_pressure_transition_period.as_std(),
            max_pod_grace: i64::from(kubelet.eviction_max_pod_grace_period),
            limits_storage: kubelet.local_storage_capacity_isolation,
            may_split: Features::of(&resolved.gates).separate_disk_gc,
            by_kernel: kubelet.kernel_memcg_notification,
        },
        shutdown: ShutdownSettings {
            periods: compute_periods(kubelet, facts.features),
            keeps_times: facts.features.graceful_shutdown_by_priority,
            ..ShutdownSettings::default()
        },
        cgroups: cgroups(&config, facts),
        processes: processes(resolved),
        // Validation has refused any other word.
        cgroup_driver: CgroupDriver::parse(&kubelet.cgroup_driver).unwrap_or(CgroupDriver::Cgroupfs),
        node: (!resolved.flags.standalone())
            .then(|| NodeSettings { config, flags: Arc::new(resolved.flags.clone()) }),
        sync_frequency: kubelet.sync_frequency.as_std(),
        gates: resolved.gates.clone(),
        request_timeout: kubelet.runtime_request_timeout.as_std(),
        kept_events: 0,
    }
}

fn sources(resolved: &Resolved) -> SourceSettings {
    let kubelet = &resolved.kubelet;
    let headers = &kubelet.static_pod_url_header;
    SourceSettings {
        manifest_path: not_empty(&kubelet.static_pod_path).map(PathBuf::from),
        file_check_frequency: kubelet.file_check_frequency.as_std(),
        manifest_url: not_empty(&kubelet.static_pod_url).map(str::to_owned),
        manifest_headers: headers
            .iter()
            .flat_map(|(name, values)| values.iter().map(|value| (name.clone(), value.clone())))
            .collect(),
        http_check_frequency: kubelet.http_check_frequency.as_std(),
    }
}

fn images(resolved: &Resolved) -> ImageSettings {
    let kubelet = &resolved.kubelet;
    let limit = kubelet.max_parallel_image_pulls.and_then(|n| usize::try_from(n).ok());
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    let places =
        [Some(resolved.flags.root_dir.clone().into()), Some(".".into()), home, Some("/.docker".into())];
    ImageSettings {
        qps: u32::try_from(kubelet.registry_pull_qps).unwrap_or(0),
        burst: u32::try_from(kubelet.registry_burst).unwrap_or(1),
        max_parallel: if kubelet.serialize_image_pulls { Some(1) } else { limit },
        credential_dirs: places.into_iter().flatten().collect(),
        verification: Features::of(&resolved.gates).pull_records.then(|| {
            VerificationPolicy::parse(
                &kubelet.image_pull_credentials_verification_policy,
                &kubelet.preloaded_images_verification_allowlist,
            )
        }),
        providers: resolved.credential_providers.clone(),
        provider_dir: resolved.flags.image_credential_provider_bin_dir.clone().into(),
        collection: ImageGcPolicy {
            high_percent: u64::try_from(kubelet.image_gc_high_threshold_percent).unwrap_or(100),
            low_percent: u64::try_from(kubelet.image_gc_low_threshold_percent).unwrap_or(100),
            age_min: kubelet.image_minimum_gc_age.as_std(),
            age_max: Some(kubelet.image_maximum_gc_age.as_std()).filter(|age| !age.is_zero()),
        },
    }
}

fn cgroups(config: &Arc<KubeletConfiguration>, facts: &NodeFacts) -> CgroupSettings {
    // Validation has seen the percentage.
    let percent = config.qos_reserved.get("memory").and_then(|share| share.strip_suffix('%')?.parse().ok());
    let memory_reserve = percent.filter(|_| facts.features.qos_reserved).map(|percent| MemoryReserve {
        percent,
        allocatable_bytes: allocatable_memory(config, facts.memory_capacity_bytes),
    });
    CgroupSettings {
        per_qos: config.cgroups_per_qos,
        root: config.cgroup_root.clone(),
        pods: PodRules {
            cpu_quota_period: facts.cpu_quota_period,
            pids_limit: Some(config.pod_pids_limit).filter(|most| *most > 0),
            hugepage_sizes: facts.hugepage_sizes.clone(),
            memory_qos: facts.memory.qos,
        },
        qos: QosCgroupRules {
            hugepage_sizes: facts.hugepage_sizes.clone(),
            memory_qos: facts.memory.qos,
            memory_reserve,
        },
        config: config.clone(),
    }
}

fn processes(resolved: &Resolved) -> ProcessSettings {
    let kubelet = &resolved.kubelet;
    let named = |text: &str| {
        not_empty(text).map(|text| CgroupPath::directory(format!("/{}", text.trim_matches('/'))))
    };
    // An endpoint that cannot be read has ended the start already.
    let socket =
        Endpoint::parse(&kubelet.container_runtime_endpoint).map(|endpoint| endpoint.path().to_owned());
    ProcessSettings {
        own_pid: std::process::id(),
        oom_score_adj: kubelet.oom_score_adj,
        kubelet: named(&kubelet.kubelet_cgroups),
        runtime: named(&resolved.flags.runtime_cgroups),
        system: named(&kubelet.system_cgroups),
        runtime_socket: socket.unwrap_or_default(),
    }
}

/// What all pods together may use of the memory.
fn allocatable_memory(config: &KubeletConfiguration, capacity_bytes: u64) -> i64 {
    let whole = Amount::from_units(i64::try_from(capacity_bytes).unwrap_or(i64::MAX));
    let reserved = reserved_for_node(config).get("memory").copied().unwrap_or(Amount::ZERO);
    (whole - reserved).max(Amount::ZERO).units()
}

/// What is decided from memory requests of containers; version 1 has no files for it.
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
        throttling_millionths: config.throttling_millionths(),
        allocatable_bytes: u64::try_from(allocatable).unwrap_or(0),
        page_bytes: machine.page_bytes,
    }
}

/// What requests to the runtime need to know of this machine, which may be able to limit swap.
pub(crate) fn node_facts(
    resolved: &Resolved,
    machine: MachineInfo,
    cgroup_v2: bool,
    limits_swap: bool,
) -> NodeFacts {
    let kubelet = &resolved.kubelet;
    let memory = memory_rules(resolved, &machine, cgroup_v2);
    let period = kubelet.cpu_cfs_quota.then(|| kubelet.cpu_cfs_quota_period.as_std());
    NodeFacts {
        memory_capacity_bytes: machine.memory_bytes,
        thermal_throttle_paths: machine.thermal_throttle_paths,
        selinux_enabled: machine.selinux_enabled,
        cluster_domain: kubelet.cluster_domain.clone(),
        pod_logs_dir: kubelet.pod_logs_dir.clone(),
        seccomp_dir: PathBuf::from(&resolved.flags.root_dir).join("seccomp").display().to_string(),
        seccomp_default: kubelet.seccomp_default,
        cpu_quota_period: period.map(micros),
        cgroup_v2,
        single_process_oom_kill: kubelet.single_process_oom_kill.unwrap_or(!cgroup_v2),
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

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn not_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
