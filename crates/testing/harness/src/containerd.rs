//! A real containerd for tests, on paths of its own: it shares nothing with a containerd that may run on the machine, and it
//! leaves nothing behind. (Containerd and libcni also create the empty directories `/run/containerd/s` and
//! `/var/lib/cni/results`; those are shared and stay.)
//!
//! Owns: the daemon's process, its configuration, its CNI network (a bridge and a 10.x subnet of its own), and two
//! images made on the spot: [`PAUSE_IMAGE`] and [`BUSYBOX_IMAGE`]. Needs root.

mod cleanup;
mod config;
mod image;
mod tar;
mod wire;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use model::CgroupDriver;

pub use cleanup::leftovers;

use fixtures::stretched;

/// The image of sandboxes: a process that sleeps, and exits at once on SIGTERM.
pub const PAUSE_IMAGE: &str = "localhost/pause:test";
/// Busybox with all its applets, the users `root`, `app` (1000) and 65534, and `/tmp`. Its command is `sh`.
pub const BUSYBOX_IMAGE: &str = "localhost/busybox:test";

const OUR_IMAGES: [&str; 2] = [PAUSE_IMAGE, BUSYBOX_IMAGE];

/// A directory of the programs to test with instead of the machine's own: containerd, its shim, `ctr` and `runc`.
/// `scripts/runtimes` fills such directories.
pub const BIN_DIR_VARIABLE: &str = "KUBELET_TEST_CONTAINERD_BIN_DIR";

/// The cgroup driver, if it is not `cgroupfs`. `scripts/vm --cgroup-driver` sets it in the guest.
pub const CGROUP_DRIVER_VARIABLE: &str = "KUBELET_TEST_CGROUP_DRIVER";

/// The maximum length of a socket address.
const MAX_SOCKET_PATH: usize = 107;
const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// Why containerd could not be started or stopped. The text is complete.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ContainerdError(String);

type Outcome<T> = Result<T, ContainerdError>;

fn failed(what: impl std::fmt::Display, error: impl std::fmt::Display) -> ContainerdError {
    ContainerdError(format!("{what}: {error}"))
}

/// The names of everything that belongs to one containerd, derived from its directory alone, so that its leftovers can be found
/// from the directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    dir: PathBuf,
    /// Eight hex digits that identify this instance.
    tag: String,
    subnet: (u8, u8),
}

impl Layout {
    fn of(dir: &Path) -> Self {
        // FNV-1a: stable between processes and releases, unlike the standard library's hasher.
        let hash = dir
            .as_os_str()
            .as_encoded_bytes()
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        let [high, low, ..] = hash.to_be_bytes();
        Self { dir: dir.to_path_buf(), tag: format!("{hash:08x}"), subnet: (200 + high % 50, low) }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    fn ttrpc_socket(&self) -> PathBuf {
        self.dir.join("containerd.sock.ttrpc")
    }

    fn config_file(&self) -> PathBuf {
        self.dir.join("containerd.toml")
    }

    fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    fn cni_conf_dir(&self) -> PathBuf {
        self.dir.join("cni")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// Linux allows 15 characters.
    fn bridge(&self) -> String {
        format!("ktb-{}", self.tag)
    }

    fn network(&self) -> String {
        format!("kubelet-test-{}", self.tag)
    }

    fn cgroup_root(&self) -> String {
        format!("/kubelet-test-{}", self.tag)
    }
}

/// The cgroup for a test's work in `dir`: a containerd that was started there removes it at its end.
#[must_use]
pub fn cgroup_root_of(dir: &Path) -> String {
    Layout::of(dir).cgroup_root()
}

/// Its directories in all hierarchies, the innermost first.
pub(crate) fn cgroup_dirs_of(dir: &Path) -> Vec<PathBuf> {
    cleanup::cgroups(&Layout::of(dir))
}

/// A running containerd. Stopped and cleaned up when dropped.
#[derive(Debug)]
pub struct Containerd {
    layout: Layout,
    child: Option<Child>,
}

impl Containerd {
    /// What this machine lacks to run a containerd under test, as a message; `None` if nothing.
    #[must_use]
    pub fn missing() -> Option<String> {
        let mut lacks: Vec<String> = Vec::new();
        if !rustix::process::geteuid().is_root() {
            lacks.push("root privileges".to_owned());
        }
        let binaries = ["containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "sha256sum"];
        lacks.extend(binaries.into_iter().filter(|name| find(name).is_none()).map(|n| format!("`{n}`")));
        if config::cni_bin_dir().is_none() {
            lacks.push(
                "the CNI plugins bridge, host-local and loopback (/usr/lib/cni or /opt/cni/bin)".to_owned(),
            );
        }
        if image::busybox().is_none() {
            lacks.push("a static /bin/busybox (package busybox-static)".to_owned());
        }
        (!lacks.is_empty()).then(|| {
            format!("tests on a real container runtime need {}; see `scripts/test`", lacks.join(", "))
        })
    }

    /// Starts containerd on paths below `dir` (keep it short: a socket's path may have 107 characters) and waits until it
    /// answers and has both images.
    pub async fn start(dir: &Path) -> Outcome<Self> {
        Self::start_with(dir, cgroup_driver()).await
    }

    /// Does the same with this cgroup driver.
    pub async fn start_with(dir: &Path, driver: CgroupDriver) -> Outcome<Self> {
        if let Some(missing) = Self::missing() {
            return Err(ContainerdError(missing));
        }
        let layout = Layout::of(dir);
        let longest = layout.ttrpc_socket();
        if longest.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(failed(
                format!("{} is too long for a socket", longest.display()),
                "choose a shorter directory",
            ));
        }
        // From here on, whatever fails, dropping cleans up.
        let mut containerd = Self { layout, child: None };
        config::write(&containerd.layout, driver)?;
        config::make_bridge(&containerd.layout)?;
        containerd.child = Some(spawn(&containerd.layout)?);
        containerd.wait_until_ready().await?;
        image::import(&containerd.layout)?;
        containerd.wait_for_images(&OUR_IMAGES).await?;
        Ok(containerd)
    }

    /// Creates an image like [`BUSYBOX_IMAGE`] that is larger by so much, and waits until CRI lists it.
    pub async fn import_image(&self, name: &str, mebibytes: usize) -> Outcome<()> {
        image::import_large(&self.layout, name, mebibytes)?;
        self.wait_for_images(&[name]).await
    }

    /// The socket that serves CRI.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.layout.socket()
    }

    /// `unix://…`, the format of the kubelet's configuration.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// A cgroup that is removed with this containerd: put pods below it.
    #[must_use]
    pub fn cgroup_root(&self) -> String {
        self.layout.cgroup_root()
    }

    /// The daemon's process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the daemon without warning; its containers keep running. Follow with [`Self::resume`].
    pub fn crash(&mut self) -> Outcome<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).map_err(|e| failed("kill containerd", e))?;
        Ok(())
    }

    /// Kills the daemon, its shims and all containers, and removes what is in memory on a usual machine: mounts, network devices and
    /// the directory of the state. Images, containers and layers stay. Follow with [`Self::resume`].
    pub fn lose_power(&mut self) -> Outcome<()> {
        self.crash()?;
        cleanup::lose_power(&self.layout)
    }

    /// Starts the daemon again after [`Self::crash`] or [`Self::lose_power`], on the same paths.
    pub async fn resume(&mut self) -> Outcome<()> {
        self.child = Some(spawn(&self.layout)?);
        self.wait_until_ready().await?;
        self.wait_for_images(&OUR_IMAGES).await
    }

    /// [`Self::crash`] and [`Self::resume`].
    pub async fn restart(&mut self) -> Outcome<()> {
        self.crash()?;
        self.resume().await
    }

    /// Labels and annotations of each container, by ID, as a client that is not ours reads them.
    pub async fn labels_of_containers(&self) -> Outcome<BTreeMap<String, [BTreeMap<String, String>; 2]>> {
        wire::labels(&self.layout.socket()).await.map_err(|error| failed("list containers", error))
    }

    /// Removes all pods, stops the daemon and everything it started, and removes what it created on the machine.
    pub fn stop(mut self) -> Outcome<()> {
        self.tear_down()
    }

    fn tear_down(&mut self) -> Outcome<()> {
        if let Some(mut child) = self.child.take() {
            // Best effort: whatever the runtime does not remove itself is removed by force below.
            wire::remove_all_pods(&self.layout.socket());
            end(&mut child)?;
        }
        cleanup::clean(&self.layout)
    }

    async fn wait_until_ready(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + stretched(START_TIMEOUT);
        loop {
            let state = match wire::is_ready(&self.layout.socket()).await {
                Ok(()) => return Ok(()),
                Err(state) => state,
            };
            let exited = match self.child.as_mut() {
                Some(child) => child.try_wait().map_err(|e| failed("check containerd", e))?,
                None => return Err(ContainerdError("containerd is not running".to_owned())),
            };
            if exited.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.layout.log_file()).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(15).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                return Err(failed(format!("containerd is not ready ({state})"), tail.join("\n")));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// CRI hears of imported images through events, a little after the import.
    async fn wait_for_images(&self, images: &[&str]) -> Outcome<()> {
        let deadline = Instant::now() + stretched(START_TIMEOUT);
        for image in images {
            while !wire::has_image(&self.layout.socket(), image).await {
                if Instant::now() > deadline {
                    return Err(ContainerdError(format!(
                        "containerd never listed the imported image {image}"
                    )));
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // A failed test must leave nothing behind either; `leftovers` names what cannot be removed.
        let _ = self.tear_down();
    }
}

fn spawn(layout: &Layout) -> Outcome<Child> {
    let log = File::options().create(true).append(true).open(layout.log_file());
    let log = log.map_err(|e| failed(format!("open {}", layout.log_file().display()), e))?;
    let log_too = log.try_clone().map_err(|e| failed("share containerd's log file", e))?;
    command("containerd")
        .arg("--config")
        .arg(layout.config_file())
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_too)
        .spawn()
        .map_err(|e| failed("start containerd", e))
}

/// Sends SIGTERM to the process, and SIGKILL if it does not exit.
fn end(child: &mut Child) -> Outcome<()> {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have exited by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let deadline = Instant::now() + stretched(STOP_TIMEOUT);
    while child.try_wait().map_err(|e| failed("wait for containerd", e))?.is_none() {
        if Instant::now() > deadline {
            child.kill().and_then(|()| child.wait()).map_err(|e| failed("kill containerd", e))?;
            break;
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Runs a command to its end; its output is part of the error.
fn run(program: &str, arguments: &[&str]) -> Outcome<String> {
    let what = || format!("{program} {}", arguments.join(" "));
    let output =
        command(program).args(arguments).stdin(Stdio::null()).output().map_err(|e| failed(what(), e))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(what(), String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// The cgroup driver that a containerd under test uses. Older ones do not report it, so kubelets that use them must be
/// configured.
#[must_use]
pub fn cgroup_driver() -> CgroupDriver {
    let named = std::env::var(CGROUP_DRIVER_VARIABLE).ok();
    named.and_then(|name| CgroupDriver::parse(&name)).unwrap_or(CgroupDriver::Cgroupfs)
}

/// A program, such as `ctr`, of the version under test; programs that it starts are searched in the same directories.
#[must_use]
pub fn command(program: &str) -> Command {
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    if let Ok(path) = std::env::join_paths(search_path()) {
        command.env("PATH", path);
    }
    command
}

/// The directory under test first, if there is one, and the system's directories always.
fn search_path() -> Vec<PathBuf> {
    let first = std::env::var_os(BIN_DIR_VARIABLE).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    first.into_iter().chain(std::env::split_paths(&path)).chain(system).collect()
}

fn find(program: &str) -> Option<PathBuf> {
    search_path().into_iter().map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}
