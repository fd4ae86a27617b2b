//! Finding and removing what a containerd under test left on the machine: processes, mounts, network devices, cgroups and files.
//! Everything is found by the instance's own names, so no other program's can be affected.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

use super::{Layout, Outcome, POLL, cgroup_driver, failed, run};
use crate::cgroup_path::cgroup_path;
use fixtures::stretched;

/// How long killed processes and dissolving network namespaces may take.
const SETTLE_TIME: Duration = Duration::from_secs(10);
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";
const CNI_CACHE: &str = "/var/lib/cni/results";

/// What a containerd that was started in `dir` left behind, one line each; empty if it cleaned up.
#[must_use]
pub fn leftovers(dir: &Path) -> Vec<String> {
    let layout = Layout::of(dir);
    let mut found = Vec::new();
    found.extend(processes(&layout).into_iter().map(|pid| format!("process {pid} {}", command_of(pid))));
    found.extend(mounts_below(dir).into_iter().map(|path| format!("mount {}", path.display())));
    found.extend(links(&layout).into_iter().map(|name| format!("network device {name}")));
    found.extend(cgroups(&layout).into_iter().map(|path| format!("cgroup {}", path.display())));
    found.extend(cached_networks(&layout).into_iter().map(|path| format!("file {}", path.display())));
    found.extend(own_files(&layout).into_iter().map(|path| format!("file {}", path.display())));
    found
}

/// Kills every process of the instance and removes what no machine has after a start.
pub(super) fn lose_power(layout: &Layout) -> Outcome<()> {
    let shim_sockets = shim_sockets(layout);
    kill_all(layout)?;
    unmount_all(layout)?;
    for name in links(layout).iter().filter(|name| **name != layout.bridge()) {
        // Removing the other end may have removed it, too.
        let _ = run("ip", &["link", "delete", name]);
    }
    for socket in shim_sockets {
        // A shim that exited by itself removed its own.
        let _ = fs::remove_file(socket);
    }
    fs::remove_dir_all(layout.state()).map_err(|e| failed(format!("remove {}", layout.state().display()), e))
}

fn unmount_all(layout: &Layout) -> Outcome<()> {
    for mount in mounts_below(&layout.dir) {
        unmount(&mount, UnmountFlags::DETACH)
            .map_err(|e| failed(format!("unmount {}", mount.display()), e))?;
    }
    Ok(())
}

pub(super) fn clean(layout: &Layout) -> Outcome<()> {
    let shim_sockets = shim_sockets(layout);
    kill_all(layout)?;
    unmount_all(layout)?;
    for name in links(layout) {
        // Removing the other end may have removed it, too.
        let _ = run("ip", &["link", "delete", &name]);
    }
    settle(|| links(layout).is_empty());
    for cgroup in cgroups(layout) {
        settle(|| fs::remove_dir(&cgroup).is_ok() || !cgroup.exists());
    }
    for file in cached_networks(layout).into_iter().chain(shim_sockets) {
        // A shim that exited by itself removed its own.
        let _ = fs::remove_file(file);
    }
    for path in own_files(layout) {
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|e| failed(format!("remove {}", path.display()), e))?;
    }
    Ok(())
}

/// Polls until a condition holds or the time is up; the next call of `leftovers` reports the result.
fn settle(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + stretched(SETTLE_TIME);
    while !done() && Instant::now() < deadline {
        std::thread::sleep(POLL);
    }
}

fn kill_all(layout: &Layout) -> Outcome<()> {
    let victims = processes(layout);
    for pid in &victims {
        match Pid::from_raw(*pid).map(|pid| kill_process(pid, Signal::KILL)) {
            None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => {}
            Some(Err(e)) => return Err(failed(format!("kill process {pid}"), e)),
        }
    }
    settle(|| victims.iter().all(|pid| is_gone(*pid)));
    Ok(())
}

/// The shims and the daemon of this instance, and all that descends from them.
fn processes(layout: &Layout) -> BTreeSet<i32> {
    let address = layout.socket();
    let config = layout.config_file();
    let all = all_processes();
    let is_ours = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| {
            argument == address.as_os_str().as_bytes() || argument == config.as_os_str().as_bytes()
        })
    };
    let mut ours: BTreeSet<i32> = all.iter().map(|(pid, _)| *pid).filter(is_ours).collect();
    loop {
        let children = all.iter().filter(|(_, parent)| ours.contains(parent)).map(|(pid, _)| *pid);
        let grown: BTreeSet<i32> = ours.iter().copied().chain(children).collect();
        if grown.len() == ours.len() {
            // A zombie only waits for its parent; it runs nothing.
            return ours.into_iter().filter(|pid| !is_gone(*pid)).collect();
        }
        ours = grown;
    }
}

/// Every process with its parent.
fn all_processes() -> Vec<(i32, i32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, stat_of(pid)?.1))).collect()
}

/// State and parent of a process.
fn stat_of(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain any of them itself.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

fn is_gone(pid: i32) -> bool {
    stat_of(pid).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
}

fn command_of(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Mount points below a directory, innermost first.
fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let targets = table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let mut below: Vec<PathBuf> = targets.filter(|path| path.starts_with(dir) && path != dir).collect();
    // Later mounts may cover earlier ones.
    below.reverse();
    below
}

/// `\040` and its like, as the kernel writes blanks in a mount table.
fn unescape(field: &str) -> PathBuf {
    let plain = field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
    PathBuf::from(plain.replace("\\134", "\\"))
}

/// The bridge and the veth ends attached to it; the ends first.
fn links(layout: &Layout) -> Vec<String> {
    let bridge = layout.bridge();
    let device = Path::new("/sys/class/net").join(&bridge);
    if !device.exists() {
        return Vec::new();
    }
    let ports = fs::read_dir(device.join("brif")).into_iter().flatten().flatten();
    let mut names: Vec<String> = ports.map(|port| port.file_name().to_string_lossy().into_owned()).collect();
    names.push(bridge);
    names
}

/// The instance's cgroups in every hierarchy, innermost first.
pub(super) fn cgroups(layout: &Layout) -> Vec<PathBuf> {
    let relative = cgroup_path(cgroup_driver(), &layout.cgroup_root());
    let hierarchies = fs::read_dir(CGROUP_MOUNT).into_iter().flatten().flatten().map(|entry| entry.path());
    let tops = hierarchies.map(|path| path.join(&relative)).chain([Path::new(CGROUP_MOUNT).join(&relative)]);
    let mut found = Vec::new();
    for top in tops.filter(|top| top.is_dir()) {
        collect_directories(&top, &mut found);
    }
    found
}

fn collect_directories(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_directories(&entry.path(), found);
        }
    }
    found.push(dir.to_path_buf());
}

/// Results that libcni keeps outside our directory until a sandbox is removed properly: those of our network by its name, those
/// of the loopback, which all containerds name alike, by the network namespace.
fn cached_networks(layout: &Layout) -> Vec<PathBuf> {
    let prefix = format!("{}-", layout.network());
    let namespaces = format!("{}/", layout.state().display());
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
            || fs::read_to_string(path).is_ok_and(|content| content.contains(&namespaces))
    };
    let entries = fs::read_dir(CNI_CACHE).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}

/// The sockets of running shims, which are in a directory shared by all containerds of the machine.
fn shim_sockets(layout: &Layout) -> Vec<PathBuf> {
    let tasks = layout.state().join("io.containerd.runtime.v2.task/k8s.io");
    let bundles = fs::read_dir(tasks).into_iter().flatten().flatten();
    bundles
        .filter_map(|bundle| address_of(&bundle.path()))
        .filter_map(|address| address.trim().strip_prefix("unix://").map(PathBuf::from))
        .collect()
}

/// The socket of a bundle's shim: in a file of its own, since containerd 2 among its start parameters.
fn address_of(bundle: &Path) -> Option<String> {
    fs::read_to_string(bundle.join("address")).ok().or_else(|| {
        let text = fs::read_to_string(bundle.join("bootstrap.json")).ok()?;
        let bootstrap: serde_json::Value = serde_json::from_str(&text).ok()?;
        bootstrap["address"].as_str().map(str::to_owned)
    })
}

/// What the instance created in its directory; files of other programs in there are not removed.
fn own_files(layout: &Layout) -> Vec<PathBuf> {
    let socket = layout.socket();
    let ttrpc = layout.ttrpc_socket();
    let below = ["cdi", "images", "ipam", "opt", "runc"].map(|name| layout.dir.join(name));
    let made =
        [layout.root(), layout.state(), layout.cni_conf_dir(), layout.config_file(), layout.log_file()];
    made.into_iter().chain(below).chain([socket, ttrpc]).filter(|path| path.exists()).collect()
}
