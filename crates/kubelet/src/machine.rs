//! What `kubelet config check` and `kubelet doctor` find out about this machine. Decides nothing; every step has a time limit, and
//! those of the doctor run at the same time.

use std::collections::BTreeMap;
use std::fs;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cluster::kubeconfig;
use cluster::{ProxyEnv, end_of_certificate};
use config::inspect::{Machine, PortInUse, Space};
use config::{KubeletConfiguration, MachineFacts, NodeFlags};
use cri::{CriRuntime, Endpoint};
use explain_core::doctor::{DoctorFacts, RuntimeFacts, Timed};
use host::LinuxHost;
use host::process::CgroupVersion;
use jiff::Timestamp;
use ports::{Host, Runtime as _};
use tokio::net::{TcpStream, UnixStream};

use crate::boot::CGROUP_ROOT;

/// For whatever may hang: a runtime, a name server, a network, a filesystem.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct ThisMachine;

impl cli::Machine for ThisMachine {
    fn facts(&self, kubelet: &KubeletConfiguration, flags: &NodeFlags) -> Machine {
        block_on(machine(kubelet, flags)).unwrap_or_default()
    }

    fn examine(&self, kubelet: &KubeletConfiguration, flags: &NodeFlags) -> (DoctorFacts, Machine) {
        block_on(examine(kubelet, flags)).unwrap_or_default()
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let done = runtime.block_on(work);
    // A read of a dead filesystem is not waited for.
    runtime.shutdown_background();
    Some(done)
}

/// Blocking work, for as long as the limit; `None` if it takes longer.
async fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::time::timeout(LIMIT, tokio::task::spawn_blocking(work)).await.ok()?.ok()
}

async fn machine(kubelet: &KubeletConfiguration, flags: &NodeFlags) -> Machine {
    let endpoint = &kubelet.container_runtime_endpoint;
    let (machine, runtime) = tokio::join!(machine_without_runtime(kubelet, flags), query_runtime(endpoint));
    with_driver(machine, &runtime)
}

fn with_driver(machine: Machine, runtime: &Timed<RuntimeFacts>) -> Machine {
    let cgroup_driver = runtime.as_ref().ok().and_then(|(runtime, _)| runtime.cgroup_driver.clone());
    Machine { cgroup_driver, ..machine }
}

async fn machine_without_runtime(kubelet: &KubeletConfiguration, flags: &NodeFlags) -> Machine {
    let (config, node_flags) = (kubelet.clone(), flags.clone());
    let read = within(move || read_machine(&config, &node_flags));
    let host = Host::new(LinuxHost::new());
    let space = tokio::time::timeout(LIMIT, space(&host, Path::new(&flags.root_dir)));
    let (read, space, sockets) = tokio::join!(read, space, sockets(kubelet));
    let info = host.machine.info();
    Machine {
        sockets,
        node_disk: space.ok().flatten(),
        memory_bytes: Some(info.memory_bytes).filter(|bytes| *bytes > 0),
        cpus: Some(u64::from(info.cpus)).filter(|cpus| *cpus > 0),
        now: Timestamp::now(),
        ..read.unwrap_or_default()
    }
}

/// What is read from files of the machine.
fn read_machine(config: &KubeletConfiguration, flags: &NodeFlags) -> Machine {
    let version = host::process::cgroup_version(Path::new(CGROUP_ROOT));
    let cgroup_v1 = version.is_ok_and(|version| version == CgroupVersion::V1);
    let numbers = [config.port, config.read_only_port, config.healthz_port];
    let numbers: Vec<u16> =
        numbers.into_iter().filter_map(|port| u16::try_from(port).ok()).filter(|port| *port > 0).collect();
    let ports = host::listeners::tcp_listeners(&numbers).into_iter().map(|listener| PortInUse {
        address: listener.address,
        port: listener.port,
        holder: listener.holder,
    });
    let certificates = [&config.tls_cert_file, &config.authentication.x509.client_ca_file];
    Machine {
        facts: MachineFacts { cgroup_v1, swap_on: host::process::swap_on().unwrap_or(false) },
        ports: ports.collect(),
        files: given(&files(config, flags)).map(|path| (path.clone(), problem_with(&path))).collect(),
        certificates: given(&certificates).filter_map(|path| Some((path.clone(), end(&path)?))).collect(),
        name_servers: fs::read_to_string(&config.resolv_conf).ok().map(|text| name_servers(&text)),
        memory_available_bytes: available_memory(),
        ..Machine::default()
    }
}

fn files<'a>(config: &'a KubeletConfiguration, flags: &'a NodeFlags) -> [&'a String; 7] {
    [
        &config.static_pod_path,
        &config.tls_cert_file,
        &config.tls_private_key_file,
        &config.authentication.x509.client_ca_file,
        &config.resolv_conf,
        &flags.kubeconfig,
        &flags.bootstrap_kubeconfig,
    ]
}

fn given(paths: &[&String]) -> impl Iterator<Item = PathBuf> {
    paths.iter().filter(|path| !path.is_empty()).map(PathBuf::from).collect::<Vec<_>>().into_iter()
}

/// Why a file or directory cannot be read.
fn problem_with(path: &Path) -> Option<String> {
    let read = if path.is_dir() { fs::read_dir(path).map(drop) } else { fs::File::open(path).map(drop) };
    read.err().map(|error| error.to_string())
}

/// `None` for a file that cannot be read, which is reported as such.
fn end(path: &Path) -> Option<Result<Timestamp, String>> {
    let text = fs::read(path).ok()?;
    Some(end_of_certificate(&text).map_err(|error| error.to_string()))
}

fn name_servers(text: &str) -> Vec<String> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next().map(str::to_owned)).flatten()
    };
    text.lines().filter_map(server).collect()
}

fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// Of the filesystem of the directory, or of the nearest one above it that exists.
async fn space(host: &Host, dir: &Path) -> Option<Space> {
    for dir in dir.ancestors() {
        if let Ok(found) = host.files.filesystem_space(dir).await {
            return Some(Space {
                bytes: found.capacity_bytes,
                available_bytes: found.available_bytes,
                inodes: found.inodes,
                free_inodes: found.inodes_free,
            });
        }
    }
    None
}

/// The sockets of the container runtime, with the error of those that refuse a connection.
async fn sockets(config: &KubeletConfiguration) -> BTreeMap<PathBuf, Option<String>> {
    let mut found = BTreeMap::new();
    for endpoint in [&config.container_runtime_endpoint, &config.image_service_endpoint] {
        let Ok(endpoint) = Endpoint::parse(endpoint) else { continue };
        let path = endpoint.path().to_owned();
        let problem = match tokio::time::timeout(LIMIT, UnixStream::connect(&path)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(no_answer()),
        };
        found.insert(path, problem);
    }
    found
}

fn no_answer() -> String {
    format!("no answer within {} s", LIMIT.as_secs())
}

#[expect(clippy::disallowed_methods, reason = "how long something takes is what is reported")]
fn start() -> Instant {
    Instant::now()
}

async fn query_runtime(endpoint: &str) -> Timed<RuntimeFacts> {
    tokio::time::timeout(LIMIT, runtime_facts(endpoint)).await.unwrap_or_else(|_| Err(no_answer()))
}

async fn runtime_facts(endpoint: &str) -> Timed<RuntimeFacts> {
    let runtime = CriRuntime::new(endpoint, "", LIMIT).map_err(|error| error.to_string())?;
    let began = start();
    let version = runtime.version().await.map_err(|error| error.to_string())?;
    let took = began.elapsed();
    let (status, driver) = tokio::join!(runtime.status(), runtime.cgroup_driver());
    let status = status.map_err(|error| error.to_string())?;
    let problem = |condition: &ports::runtime::RuntimeCondition| {
        (!condition.status).then(|| format!("{}: {}", condition.reason, condition.message))
    };
    let facts = RuntimeFacts {
        name: version.name,
        version: version.version,
        cgroup_driver: driver.ok().map(|driver| driver.to_string()),
        problem: problem(&status.runtime_ready),
        network_problem: problem(&status.network_ready),
    };
    Ok((facts, took))
}

async fn examine(kubelet: &KubeletConfiguration, flags: &NodeFlags) -> (DoctorFacts, Machine) {
    let server = api_server(flags).await;
    let api = async {
        let (address, host, port) = server.clone()?;
        Some((address, connect(&host, port).await))
    };
    let name = server.clone().map_or_else(own_name, |(_, host, _)| host);
    let (machine, read, runtime, dns, api) = tokio::join!(
        machine_without_runtime(kubelet, flags),
        within(read_kernel),
        query_runtime(&kubelet.container_runtime_endpoint),
        resolve(name),
        api
    );
    let machine = with_driver(machine, &runtime);
    let facts = DoctorFacts {
        endpoint: kubelet.container_runtime_endpoint.clone(),
        runtime: Some(runtime),
        configured_driver: kubelet.cgroup_driver.clone(),
        wanted_open_files: u64::try_from(kubelet.max_open_files).unwrap_or(0),
        dns: Some(dns),
        api,
        now: Timestamp::now(),
        ..read.unwrap_or_default()
    };
    (facts, machine)
}

/// `host:port`, the host and the port of the API server.
async fn api_server(flags: &NodeFlags) -> Option<(String, String, u16)> {
    let paths = [&flags.kubeconfig, &flags.bootstrap_kubeconfig];
    let paths: Vec<PathBuf> = given(&paths).collect();
    let access =
        within(move || paths.iter().find_map(|path| kubeconfig::read(path, &ProxyEnv::from_env()).ok()));
    let server = access.await.flatten()?.server;
    Some((server.authority, server.host, server.port))
}

async fn connect(host: &str, port: u16) -> Timed<()> {
    let began = start();
    match tokio::time::timeout(LIMIT, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Ok(((), began.elapsed())),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(no_answer()),
    }
}

fn own_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}

async fn resolve(name: String) -> (String, Timed<usize>) {
    let began = start();
    let wanted = name.clone();
    let found = within(move || (wanted.as_str(), 0).to_socket_addrs().map(Iterator::count)).await;
    let answer = match found {
        Some(Ok(count)) => Ok((count, began.elapsed())),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(no_answer()),
    };
    (name, answer)
}

const SETTINGS: [&str; 4] = [
    "net/ipv4/ip_forward",
    "net/bridge/bridge-nf-call-iptables",
    "fs/inotify/max_user_instances",
    "kernel/pid_max",
];

fn read_kernel() -> DoctorFacts {
    let version = host::process::cgroup_version(Path::new(CGROUP_ROOT)).ok();
    let setting = |path: &'static str| {
        let text = fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?;
        Some((path, text.trim().to_owned()))
    };
    let controllers = fs::read_to_string(Path::new(CGROUP_ROOT).join("cgroup.controllers")).ok();
    let configurations = fs::read_dir("/etc/cni/net.d").map(|files| {
        let is_one = |path: PathBuf| {
            path.extension().is_some_and(|end| ["conf", "conflist", "json"].iter().any(|name| end == *name))
        };
        files.flatten().filter(|file| is_one(file.path())).count()
    });
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has_overlay =
        filesystems.lines().any(|line| line.trim_start().trim_start_matches("nodev").trim() == "overlay");
    DoctorFacts {
        is_root: host::process::is_root(),
        is_cgroup_v2: version.map(|version| version == CgroupVersion::V2),
        controllers: controllers.map(|text| text.split_whitespace().map(str::to_owned).collect()),
        network_configurations: Some(configurations.unwrap_or(0)),
        kernel_features: [
            ("overlay", has_overlay),
            ("br_netfilter", Path::new("/proc/sys/net/bridge").exists()),
        ]
        .into(),
        settings: SETTINGS.into_iter().filter_map(setting).collect(),
        open_files: Some(host::process::max_open_files().unwrap_or(u64::MAX)),
        is_clock_synchronized: Path::new("/run/systemd/timesync/synchronized").exists().then_some(true),
        ..DoctorFacts::default()
    }
}
