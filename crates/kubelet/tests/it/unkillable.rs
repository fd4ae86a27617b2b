//! A process that SIGKILL does not end at once, for tests of code that waits for that; and a stray process in a pod's cgroup.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fixtures::stretched;
use serde_json::json;

use crate::node::Node;
use crate::resources::is_v2;
use harness::SmallDisk;

/// What keeps a process from exiting until it is released.
enum Holder {
    /// A freezer that is not the pod's: on version 1 a process in a frozen cgroup cannot exit.
    Freezer(PathBuf),
    /// A disk that it writes to. On version 2, killed processes leave a freezer.
    Disk(SmallDisk),
}

pub(crate) struct Unkillable {
    process: Child,
    holder: Holder,
    since: Instant,
}

impl Unkillable {
    /// A process that is blocked on a disk, in no pod yet.
    pub(crate) fn on_a_disk() -> Self {
        let disk = SmallDisk::new(16, 100);
        let place = disk.path().display().to_string();
        let frozen = Command::new("fsfreeze").args(["--freeze", &place]).status().expect("fsfreeze runs");
        assert!(frozen.success(), "fsfreeze {place}: {frozen}");
        let process = Command::new("touch").arg(disk.path().join("file")).spawn().expect("a process");
        let unkillable = Self { process, holder: Holder::Disk(disk), since: Instant::now() };
        let deadline = Instant::now() + stretched(Duration::from_secs(30));
        while !unkillable.is_blocked() {
            assert!(Instant::now() < deadline, "it has reached the disk");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        unkillable
    }

    /// A process in the cgroups of that running pod.
    pub(crate) fn in_cgroups_of(node: &Node, uid: &str) -> Self {
        if is_v2() {
            let unkillable = Self::on_a_disk();
            node.pod_cgroups(uid).iter().for_each(|cgroup| unkillable.enter(cgroup));
            return unkillable;
        }
        let trees = node.cgroup().find("");
        let freezer = trees.iter().find(|dir| dir.starts_with("/sys/fs/cgroup/freezer")).expect("a freezer");
        let freezer = freezer.join(format!("unkillable-{uid}"));
        std::fs::create_dir(&freezer).expect("a freezer");
        let (process, _) = stray(node, uid);
        std::fs::write(freezer.join("cgroup.procs"), process.id().to_string()).expect("moved");
        std::fs::write(freezer.join("freezer.state"), "FROZEN").expect("frozen");
        Self { process, holder: Holder::Freezer(freezer), since: Instant::now() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has been blocked for less than that.
    pub(crate) fn is_younger_than(&self, age: Duration) -> bool {
        self.since.elapsed() < age
    }

    /// Enters a cgroup of its own below it: on version 2 a cgroup with children may hold no process.
    pub(crate) fn enter(&self, cgroup: &Path) {
        let own = cgroup.join("unkillable");
        std::fs::create_dir(&own).expect("a cgroup");
        std::fs::write(own.join("cgroup.procs"), self.pid().to_string()).expect("moved");
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("a child").is_none()
    }

    /// Returns once it has exited by the signal that it got before, or by ours.
    pub(crate) fn let_exit(mut self) {
        self.release();
    }

    /// Whether it waits for the disk, in uninterruptible sleep.
    fn is_blocked(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        stat.contains(") D ")
    }

    fn release(&mut self) {
        match &self.holder {
            Holder::Freezer(freezer) => {
                let _ = std::fs::write(freezer.join("freezer.state"), "THAWED");
            }
            Holder::Disk(disk) => {
                let _ = Command::new("fsfreeze")
                    .arg("--unfreeze")
                    .arg(disk.path())
                    .stderr(Stdio::null())
                    .status();
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Holder::Freezer(freezer) = &self.holder {
            let _ = std::fs::remove_dir(freezer);
        }
    }
}

impl Drop for Unkillable {
    fn drop(&mut self) {
        self.release();
    }
}

/// A disk on which every write waits until this is dropped; a process that writes cannot be killed meanwhile.
pub(crate) struct FrozenDisk<'a>(&'a SmallDisk);

impl<'a> FrozenDisk<'a> {
    pub(crate) fn new(disk: &'a SmallDisk) -> Self {
        let frozen = Command::new("fsfreeze").arg("--freeze").arg(disk.path()).status();
        assert!(frozen.expect("fsfreeze runs").success(), "{}", disk.path().display());
        Self(disk)
    }
}

impl Drop for FrozenDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(self.0.path()).stderr(Stdio::null()).status();
    }
}

/// A pod whose container writes to that disk all the time.
pub(crate) fn writing_to(disk: &SmallDisk, mut pod: serde_json::Value) -> serde_json::Value {
    let script = "while :; do echo > /disk/file; sleep 0.1; done";
    let container = &mut pod["spec"]["containers"][0];
    container["command"] = json!(["/bin/sh", "-c", script]);
    container["volumeMounts"] = json!([{"name": "disk", "mountPath": "/disk"}]);
    pod["spec"]["volumes"] = json!([{"name": "disk", "hostPath": {"path": disk.path()}}]);
    pod
}

/// Moves a process that the runtime does not know into the cgroup of a pod. On cgroup v2, a cgroup whose children have controllers takes
/// no process, so that it gets a child.
pub(crate) fn enter(cgroup: &Path, pid: u32) -> io::Result<()> {
    let move_into = |cgroup: &Path| std::fs::write(cgroup.join("cgroup.procs"), pid.to_string());
    match move_into(cgroup) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let child = cgroup.join("stray");
            match std::fs::create_dir(&child) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                Ok(()) | Err(_) => move_into(&child),
            }
        }
        result => result,
    }
}

/// A process in the pod's cgroups, but in none of its containers; and whether it was in time to enter one.
pub(crate) fn stray(node: &Node, uid: &str) -> (Child, bool) {
    let sleep = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("a process");
    let mut is_inside = false;
    for cgroup in node.pod_cgroups(uid) {
        // Too late: the cgroup is already gone.
        is_inside |= enter(&cgroup, sleep.id()).is_ok();
    }
    (sleep, is_inside)
}
