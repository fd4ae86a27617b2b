//! Starts the kubelet in order, and stops it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ::cluster::X509;
use agent::{Agent, Ports};
use config::{Features, KubeletConfiguration, MachineFacts, Resolved};
use cri::{CriRuntime, Endpoint};
use host::node_lock::{self, NodeLock, NodeLockError};
use host::process::{CgroupVersion, Contention, LockFile};
use host::{LinuxCgroups, LinuxHost, Logind};
use model::CgroupDriver;
use net::LinuxNet;
use plugins::UnixPlugins;
use ports::{Cgroups, Clock, Cluster, Host, HostError};
use resources_core::cgroup::CgroupNames;
use tokio_util::sync::CancellationToken;

use crate::build::BUILD;
use crate::own_process::release_free_memory;
use crate::process::{self, Signals, set_limits, share_root_dir};
use crate::start_error::StartError;
use crate::systemd::{notify_ready, notify_watchdog};
use crate::traces::{self, Finished};
use crate::{cluster, serve, settings, single_node};

pub(crate) const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Runs until a signal, a lost lock or (run once) the end of the work.
pub(crate) async fn run(resolved: &Resolved, spans: Option<Finished>) -> Result<ExitCode, StartError> {
    let signals = Signals::listen().map_err(StartError::Signals)?;
    announce(resolved);
    check_standalone(resolved)?;
    let cgroup_v2 = check_machine(resolved)?;
    check_providers(resolved)?;
    check_kernel(resolved).map_err(StartError::Host)?;
    let lock = acquire_lock(resolved, &signals).await?;
    let Some((_lock, contention)) = lock else { return Ok(ExitCode::SUCCESS) };
    let locks = tokio::select! {
        () = signals.first() => return Ok(ExitCode::SUCCESS),
        locks = lock_node(resolved) => locks?,
    };
    set_limits(resolved);
    let Started { agent, reviews, must_exit } = tokio::select! {
        () = signals.first() => return Ok(ExitCode::SUCCESS),
        agent = start_agent(resolved, cgroup_v2) => agent?,
    };
    let tasks = &agent.context().tasks;
    if let Some(spans) = spans {
        let host_name = agent.context().machine.info().hostname;
        tasks.spawn_to_end("traces", traces::export(spans, host_name, tasks.cancelled()));
    }
    let stop = CancellationToken::new();
    if resolved.kubelet.run_once {
        let outcome = run_once(resolved, &agent, &signals, &must_exit).await;
        drop(locks);
        return outcome;
    }
    let api = agent.api();
    let requests = serve::start(resolved, &agent, &api, reviews, &stop).await?;
    let watchdog = notify_watchdog(api, agent.context().clock, stop.clone());
    agent.context().tasks.spawn("watchdog", watchdog);
    let release = release_free_memory(agent.pods().clone(), requests, agent.context().clock);
    agent.context().tasks.spawn_isolated("release of memory", release);
    notify_ready();
    if let Err(error) = host::process::keep_program_in_memory() {
        tracing::warn!(err = %error, "Failed to read the program into memory");
    }
    let failed = agent.context().tasks.failed();
    let code = wait_for_end(&signals, contention.as_ref(), &must_exit, &failed).await;
    stop.cancel();
    agent.stop().await;
    drop(locks);
    Ok(code)
}

fn announce(resolved: &Resolved) {
    tracing::info!(
        kubeletVersion = config::KUBERNETES_VERSION,
        implementation = "kubelet-rs",
        build = %BUILD,
        "Kubelet version"
    );
    for warning in &resolved.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(warning) = resolved.not_yet_warning() {
        tracing::warn!("{warning}");
    }
}

/// Webhook authentication and authorization need an API server.
fn check_standalone(resolved: &Resolved) -> Result<(), StartError> {
    let kubelet = &resolved.kubelet;
    let mut problems = Vec::new();
    if kubelet.authentication.webhook.enabled {
        problems
            .push("authentication.webhook.enabled: true needs an API server (--kubeconfig); set it to false");
    }
    if kubelet.authorization.mode == "Webhook" {
        problems
            .push("authorization.mode: Webhook needs an API server (--kubeconfig); set it to AlwaysAllow");
    }
    if problems.is_empty() || !resolved.flags.standalone() {
        return Ok(());
    }
    Err(StartError::Standalone(problems.into_iter().map(str::to_owned).collect()))
}

/// Checks the settings that depend on the machine. Returns whether it has cgroup v2.
fn check_machine(resolved: &Resolved) -> Result<bool, StartError> {
    let version = host::process::cgroup_version(Path::new(CGROUP_ROOT))
        .map_err(|error| StartError::Host(format!("detect the cgroup version at {CGROUP_ROOT}: {error}")))?;
    let swap_on = host::process::swap_on().unwrap_or(false);
    let facts = MachineFacts { cgroup_v1: version == CgroupVersion::V1, swap_on };
    for warning in resolved.check_machine(&facts).map_err(StartError::Config)? {
        tracing::warn!("{warning}");
    }
    Ok(!facts.cgroup_v1)
}

/// Sets kernel settings. What a user namespace refuses ends the start, unless the gate for that is enabled.
fn check_kernel(resolved: &Resolved) -> Result<(), String> {
    let namespace = process::user_namespace(Features::of(&resolved.gates).in_user_namespace);
    process::tune_kernel(resolved.kubelet.protect_kernel_defaults, namespace)?;
    process::check_kernel_log(&settings::kernel_log(), namespace)
}

/// Otherwise a missing program would show only when an image is pulled.
fn check_providers(resolved: &Resolved) -> Result<(), StartError> {
    let dir = Path::new(&resolved.flags.image_credential_provider_bin_dir);
    for provider in &resolved.credential_providers.providers {
        let path = dir.join(&provider.name);
        if !host::process::is_program(&path) {
            let path = path.display();
            return Err(StartError::Host(format!(
                "credential provider {:?}: {path} is not an executable file",
                provider.name
            )));
        }
    }
    Ok(())
}

/// `None`: a signal was received while waiting for the lock.
async fn acquire_lock(
    resolved: &Resolved,
    signals: &Signals,
) -> Result<Option<(Option<LockFile>, Option<Contention>)>, StartError> {
    let path = PathBuf::from(&resolved.flags.lock_file);
    if path.as_os_str().is_empty() {
        return Ok(Some((None, None)));
    }
    tracing::info!(path = %path.display(), "Acquiring file lock");
    tokio::select! {
        () = signals.first() => Ok(None),
        lock = LockFile::acquire(&path, resolved.flags.exit_on_lock_contention) => match lock {
            Ok((lock, contention)) => Ok(Some((Some(lock), contention))),
            Err(source) => Err(StartError::Lock { path, source }),
        }
    }
}

/// Refuses to start next to another kubelet of the same runtime or root directory; nothing has been made in them yet. Without locks on
/// their filesystems the kubelet starts all the same.
async fn lock_node(resolved: &Resolved) -> Result<[Option<NodeLock>; 2], StartError> {
    let endpoint =
        Endpoint::parse(&resolved.kubelet.container_runtime_endpoint).map_err(StartError::Endpoint)?;
    let (socket, root) = (endpoint.path(), Path::new(&resolved.flags.root_dir));
    let runtime = node_lock::lock_runtime(socket, root).await;
    let runtime = checked_lock(format!("container runtime {}", socket.display()), runtime)?;
    let root_dir = node_lock::lock_root_dir(root).await;
    let root_dir = checked_lock(format!("root directory {}", root.display()), root_dir)?;
    Ok([runtime, root_dir])
}

fn checked_lock(what: String, lock: Result<NodeLock, NodeLockError>) -> Result<Option<NodeLock>, StartError> {
    match lock {
        Ok(lock) => Ok(Some(lock)),
        Err(NodeLockError::Held(holder)) => Err(StartError::InUse { what, holder }),
        Err(NodeLockError::Unavailable(error)) => {
            tracing::warn!(what, err = %error, "Failed to lock, another kubelet that uses the same would not be noticed");
            Ok(None)
        }
    }
}

/// The agent and what the server needs.
struct Started {
    agent: Agent,
    /// For token and access reviews of clients of the main port.
    reviews: Option<Arc<dyn Cluster>>,
    /// Cancelled when the node cannot connect to its cluster any more, or cannot run pods.
    must_exit: CancellationToken,
}

/// This machine. Volumes on other filesystems than the kubelet's are accessed by this program, started as a volume helper process.
fn machine(resolved: &Resolved) -> LinuxHost {
    let own = vec![PathBuf::from("/"), PathBuf::from(&resolved.flags.root_dir)];
    let (pods, pod_logs) = (Path::new(&resolved.flags.root_dir).join("pods"), &resolved.kubelet.pod_logs_dir);
    let manifests = Some(&resolved.kubelet.static_pod_path).filter(|path| !path.is_empty());
    LinuxHost::new()
        .with_directories(pods, PathBuf::from(pod_logs), manifests.map(PathBuf::from))
        .with_volume_helpers(PathBuf::from("/proc/self/exe"), own)
}

async fn start_agent(resolved: &Resolved, cgroup_v2: bool) -> Result<Started, StartError> {
    let kubelet = &resolved.kubelet;
    let host = Host::new(machine(resolved));
    let machine = host.machine.info();
    let node_name =
        resolved.node_name(&machine.hostname).map_err(|error| StartError::Host(error.to_string()))?;
    let host_ips = host::host_ips(&resolved.flags.node_ips());
    let runtime = CriRuntime::new(
        &kubelet.container_runtime_endpoint,
        kubelet.image_endpoint(),
        kubelet.runtime_request_timeout.as_std(),
    )
    .map_err(StartError::Endpoint)?
    .traced(traces::context(kubelet.tracing.as_ref()))
    .streaming_lists(Features::of(&resolved.gates).cri_list_streaming);
    let version = if cgroup_v2 { CgroupVersion::V2 } else { CgroupVersion::V1 };
    let own_cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits_swap = host::process::limits_swap(Path::new(CGROUP_ROOT), &own_cgroup, version);
    let node_facts = settings::node_facts(resolved, host.machine.info(), cgroup_v2, limits_swap);
    let settings = settings::settings(resolved, node_name, host_ips);
    let seed = seed(&machine.boot_id);
    let cgroups = Arc::new(LinuxCgroups::new(CGROUP_ROOT.into(), version));
    check_cgroup_root(kubelet, &*cgroups).await?;
    let api_server = single_node::start(resolved, &settings.node_name).await?;
    let connected = cluster::connect(resolved, &settings.node_name, &host, seed).await?;
    let reviews = connected.as_ref().map(|connected| connected.reviews.clone());
    share_root_dir(&*host.files, &settings.paths.root).await.map_err(host_error)?;
    let net = Arc::new(LinuxNet::new());
    let cluster = connected.as_ref().map(|connected| connected.clients.clone());
    let (shutdown, plugins) = (Arc::new(Logind::new()), Arc::new(UnixPlugins));
    let (runtime, clock, certificates) = (Arc::new(runtime), Clock::system(), Arc::new(X509));
    let ports = Ports { runtime, host, cgroups, net, shutdown, plugins, clock, certificates, cluster };
    let agent = Agent::start(ports, settings, node_facts, seed).await.map_err(host_error)?;
    let must_exit = agent.must_exit().clone();
    if let Some(api_server) = api_server {
        agent.context().tasks.spawn("API server", api_server.keep());
    }
    if let Some(connected) = connected {
        connected.keep(resolved, agent.context(), must_exit.clone());
    }
    Ok(Started { agent, reviews, must_exit })
}

/// Without their parent cgroup no pod can run, so the kubelet must not register such a node.
async fn check_cgroup_root(kubelet: &KubeletConfiguration, cgroups: &dyn Cgroups) -> Result<(), StartError> {
    if !kubelet.cgroups_per_qos {
        return Ok(());
    }
    // The runtime has not reported the cgroup driver yet, and each has its own form of the name.
    for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
        match CgroupNames::new(driver, &kubelet.cgroup_root).root() {
            Some(root) if !cgroups.exists(&root).await => {}
            Some(_) | None => return Ok(()),
        }
    }
    let root = &kubelet.cgroup_root;
    Err(StartError::Host(format!("invalid configuration: cgroup-root {root} doesn't exist")))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn host_error(error: HostError) -> StartError {
    StartError::Host(base_agent::error_chain::chain(&error))
}

/// Different on every machine and in every process: it only spreads load.
fn seed(boot_id: &str) -> u64 {
    boot_id.bytes().fold(u64::from(std::process::id()), |seed, byte| {
        seed.wrapping_mul(1_099_511_628_211) ^ u64::from(byte)
    })
}

async fn wait_for_end(
    signals: &Signals,
    contention: Option<&Contention>,
    must_exit: &CancellationToken,
    failed: &CancellationToken,
) -> ExitCode {
    let lost_lock = async {
        match contention {
            Some(contention) => contention.wait().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.first() => tracing::info!("Received signal, stopping the kubelet while containers continue"),
        lost = lost_lock => match lost {
            Ok(()) => tracing::info!("Lock file contended, exiting"),
            Err(error) => tracing::error!(err = %error, "Failed to watch the lock file, exiting"),
        },
        // The reason was logged.
        () = must_exit.cancelled() => return ExitCode::FAILURE,
        // The task that panicked was logged with its name.
        () = failed.cancelled() => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

async fn run_once(
    resolved: &Resolved,
    agent: &Agent,
    signals: &Signals,
    must_exit: &CancellationToken,
) -> Result<ExitCode, StartError> {
    let kubelet = &resolved.kubelet;
    if kubelet.static_pod_path.is_empty() && kubelet.static_pod_url.is_empty() {
        return Err(StartError::NothingToRun);
    }
    let failed = agent.context().tasks.failed();
    let outcome = tokio::select! {
        () = failed.cancelled() => return Ok(ExitCode::FAILURE),
        () = signals.first() => {
            agent.stop().await;
            return Ok(ExitCode::SUCCESS);
        }
        () = must_exit.cancelled() => return Ok(ExitCode::FAILURE),
        outcome = agent::run_once::run(agent) => outcome,
    };
    let is_success = outcome.report();
    agent.stop().await;
    Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
