//! A process that SIGKILL does not end yet, for tests of whoever has to wait for that; and one that nobody expects in there.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testing::stretched;

use crate::node::Node;
use crate::resources::is_v2;
use crate::small_disk::SmallDisk;

/// What a process stands still on until it is let go.
enum Holder {
    /// A freezer that is not the pod's: version 1 lets nobody who is in one come to his end.
    Freezer(PathBuf),
    /// A disk that it writes to. On version 2 the killed leave a freezer.
    Disk(SmallDisk),
}

pub(crate) struct Stubborn {
    process: Child,
    holder: Holder,
    since: Instant,
}

impl Stubborn {
    /// Stands still on a disk, in no pod yet.
    pub(crate) fn on_a_disk() -> Self {
        let disk = SmallDisk::new(16, 100);
        let place = disk.path().display().to_string();
        let frozen = Command::new("fsfreeze").args(["--freeze", &place]).status().expect("fsfreeze runs");
        assert!(frozen.success(), "fsfreeze {place}: {frozen}");
        let process = Command::new("touch").arg(disk.path().join("file")).spawn().expect("a process");
        let stubborn = Self { process, holder: Holder::Disk(disk), since: Instant::now() };
        let deadline = Instant::now() + stretched(Duration::from_secs(30));
        while !stubborn.stands_still() {
            assert!(Instant::now() < deadline, "it has come to the disk");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        stubborn
    }

    /// In the cgroups of that pod, which runs.
    pub(crate) fn inside(node: &Node, uid: &str) -> Self {
        if is_v2() {
            let stubborn = Self::on_a_disk();
            node.pod_cgroups(uid).iter().for_each(|cgroup| stubborn.enter(cgroup));
            return stubborn;
        }
        let trees = node.cgroup().find("");
        let freezer = trees.iter().find(|dir| dir.starts_with("/sys/fs/cgroup/freezer")).expect("a freezer");
        let freezer = freezer.join(format!("stubborn-{uid}"));
        std::fs::create_dir(&freezer).expect("a freezer");
        let (process, _) = stray(node, uid);
        std::fs::write(freezer.join("cgroup.procs"), process.id().to_string()).expect("moved");
        std::fs::write(freezer.join("freezer.state"), "FROZEN").expect("frozen");
        Self { process, holder: Holder::Freezer(freezer), since: Instant::now() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has stood still for less than that.
    pub(crate) fn is_younger_than(&self, age: Duration) -> bool {
        self.since.elapsed() < age
    }

    /// Goes into a cgroup of its own in there: on version 2 nobody is in one that has others inside.
    pub(crate) fn enter(&self, cgroup: &Path) {
        let own = cgroup.join("stubborn");
        std::fs::create_dir(&own).expect("a cgroup");
        std::fs::write(own.join("cgroup.procs"), self.pid().to_string()).expect("moved");
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.process.try_wait().expect("a child").is_none()
    }

    /// Returns once it has ended of the signal that it got before, or of ours.
    pub(crate) fn let_go(mut self) {
        self.release();
    }

    /// Whether it waits for the disk, and so for no signal.
    fn stands_still(&self) -> bool {
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

impl Drop for Stubborn {
    fn drop(&mut self) {
        self.release();
    }
}

/// A process that is in the pod's cgroups, and in no container of it; and whether it came in time to be in one.
pub(crate) fn stray(node: &Node, uid: &str) -> (Child, bool) {
    let sleep = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("a process");
    let mut is_inside = false;
    for cgroup in node.pod_cgroups(uid) {
        // Who comes too late finds it gone.
        is_inside |= std::fs::write(cgroup.join("cgroup.procs"), sleep.id().to_string()).is_ok();
    }
    (sleep, is_inside)
}
