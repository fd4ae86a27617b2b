//! On the real trees of this machine, below a name of the test's own; and on directories that look like trees, for what
//! this kernel does not have.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use model::cgroup::{CgroupFile, MemoryMark, UnitProperty};

use super::*;
use crate::dbus::tests::{Answer, Systemd};

const MOUNT: &str = "/sys/fs/cgroup";

/// A cgroup of the test's own in the real trees; removed at the end.
struct Real {
    cgroups: LinuxCgroups,
    root: PathBuf,
    path: String,
}

impl Real {
    fn new(name: &str) -> Self {
        let version = crate::process::cgroup_version(Path::new(MOUNT)).unwrap();
        Self::at(PathBuf::from(MOUNT), version, name)
    }

    fn at(root: PathBuf, version: CgroupVersion, name: &str) -> Self {
        let path = format!("/kubelet-test-{}-{name}", std::process::id());
        Self { cgroups: LinuxCgroups::new(root.clone(), version), root, path }
    }

    fn cgroup(&self, below: &str) -> CgroupPath {
        CgroupPath::directory(format!("{}{below}", self.path))
    }

    fn is_v1(&self) -> bool {
        self.cgroups.trees.exists("/") && !self.root.join("cgroup.controllers").exists()
    }

    fn text(&self, below: &str, v1: &str, v2: &str) -> String {
        let cgroup = self.path.trim_start_matches('/');
        let path = match (self.is_v1(), v1.split_once('/')) {
            (true, Some((tree, file))) => self.root.join(tree).join(cgroup).join(below).join(file),
            (true, None) | (false, _) => self.root.join(cgroup).join(below).join(v2),
        };
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).trim().to_owned()
    }

    fn files(&self, limits: &[(&'static str, &str, &str, &str)]) -> CgroupSettings {
        let file = |(tree, v1, v2, text): &(&'static str, &str, &str, &str)| CgroupFile {
            controller: if self.is_v1() { tree } else { "" },
            name: (*if self.is_v1() { v1 } else { v2 }).to_owned(),
            text: (*text).to_owned(),
            is_optional: false,
        };
        CgroupSettings { files: limits.iter().map(file).collect(), properties: Vec::new() }
    }

    /// Removed, or still busy after a generous time.
    async fn removed(&self, below: &str) -> CgroupRemoval {
        for _ in 0..1000 {
            let removal = self.cgroups.remove(&self.cgroup(below)).await.unwrap();
            if removal == CgroupRemoval::Gone {
                return removal;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        self.cgroups.remove(&self.cgroup(below)).await.unwrap()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.cgroups.trees.kill(&self.path);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while self.cgroups.trees.remove(&self.path).unwrap() != CgroupRemoval::Gone {
            assert!(std::time::Instant::now() < deadline, "{} cannot be removed", self.path);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// A process in that cgroup, with a child in it too, which nothing but SIGKILL ends.
async fn stubborn(real: &Real, cgroup: &CgroupPath) -> Child {
    // It has its child only once it is where it belongs.
    let script = "trap '' TERM INT HUP; read go; sleep 1000 & while :; do sleep 1000; done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    real.cgroups.join(cgroup, child.id()).await.unwrap();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    child
}

#[tokio::test]
async fn cgroup_is_created_with_its_parents_and_limits() {
    let real = Real::new("limits");
    let pod = real.cgroup("/kubepods/burstable/pod1");
    assert!(!real.cgroups.exists(&pod).await);
    let limits = real.files(&[
        ("memory", "memory.limit_in_bytes", "memory.max", "67108864"),
        ("pids", "pids.max", "pids.max", "50"),
    ]);
    for _ in 0..2 {
        real.cgroups.ensure(&pod, &limits).await.unwrap();
    }
    assert!(real.cgroups.exists(&pod).await);
    let below = "kubepods/burstable/pod1";
    assert_eq!(real.text(below, "memory/memory.limit_in_bytes", "memory.max"), "67108864");
    assert_eq!(real.text(below, "pids/pids.max", "pids.max"), "50");
    assert_eq!(real.cgroups.children(&real.cgroup("/kubepods/burstable")).await, ["pod1"]);
    assert_eq!(real.removed("").await, CgroupRemoval::Gone);
    assert!(real.cgroups.children(&real.cgroup("")).await.is_empty());
    assert_eq!(real.removed("").await, CgroupRemoval::Gone, "what is not there is gone");
}

#[tokio::test]
async fn changed_or_removed_cgroup_is_detected() {
    let real = Real::new("compare");
    let pod = real.cgroup("/pod1");
    let settings = real.files(&[("pids", "pids.max", "pids.max", "50")]);
    let compare = async |settings: &CgroupSettings| real.cgroups.compare(&pod, settings).await.unwrap();
    assert_eq!(compare(&settings).await, CgroupState::Missing);
    real.cgroups.ensure(&pod, &settings).await.unwrap();
    assert_eq!(compare(&settings).await, CgroupState::UpToDate);
    real.cgroups.ensure(&pod, &real.files(&[("pids", "pids.max", "pids.max", "51")])).await.unwrap();
    assert_eq!(compare(&settings).await, CgroupState::Changed);
    assert_eq!(compare(&CgroupSettings::default()).await, CgroupState::UpToDate, "nothing else is set");
    real.cgroups.ensure(&pod, &settings).await.unwrap();
    let trees = real.cgroups.trees.limiting();
    let last = trees.last().unwrap().join(pod.path.trim_start_matches('/'));
    fs::remove_dir(&last).unwrap();
    assert_eq!(compare(&settings).await, CgroupState::Missing, "one of its trees is enough");
    // A parent is not a directory: unknown.
    let odd = CgroupPath::directory("/cgroup.procs/pod1");
    assert!(real.cgroups.compare(&odd, &settings).await.is_err());
}

#[tokio::test]
async fn a_period_and_a_quota_that_need_each_other_are_both_written() {
    let real = Real::new("quota");
    if !real.is_v1() {
        return; // Version 2 has both in one file.
    }
    let quota = |period, quota| {
        real.files(&[("cpu", "cpu.cfs_period_us", "", period), ("cpu", "cpu.cfs_quota_us", "", quota)])
    };
    let pod = real.cgroup("/pod");
    real.cgroups.ensure(&pod, &quota("100000", "50000")).await.unwrap();
    real.cgroups.ensure(&real.cgroup("/pod/child"), &quota("100000", "50000")).await.unwrap();
    // With the old quota the child would have more than half of a shorter period.
    real.cgroups.ensure(&real.cgroup("/pod/child"), &quota("10000", "5000")).await.unwrap();
    assert_eq!(real.text("pod/child", "cpu/cpu.cfs_quota_us", ""), "5000");
    real.cgroups.ensure(&pod, &quota("100000", "1000")).await.unwrap_err();
}

#[tokio::test]
async fn a_process_keeps_its_cgroup_until_it_is_killed() {
    let real = Real::new("kill");
    let inner = real.cgroup("/pod1/inner");
    real.cgroups.ensure(&inner, &CgroupSettings::default()).await.unwrap();
    let mut child = stubborn(&real, &inner).await;
    let pod = real.cgroup("/pod1");
    match real.cgroups.remove(&pod).await.unwrap() {
        CgroupRemoval::Busy { pids } => assert!(pids.contains(&child.id()), "{pids:?}"),
        CgroupRemoval::Gone => panic!("a process is inside"),
    }
    assert!(real.cgroups.processes(&pod).await.contains(&child.id()));
    real.cgroups.kill(&pod).await.unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(real.removed("/pod1").await, CgroupRemoval::Gone);
    real.cgroups.kill(&pod).await.unwrap();
}

#[tokio::test]
async fn cgroup_v2_kill_ends_all_processes_at_once() {
    let v2 = [MOUNT, "/sys/fs/cgroup/unified"]
        .into_iter()
        .find(|root| Path::new(root).join("cgroup.controllers").exists());
    let Some(root) = v2 else { return fixtures::skip("no cgroup v2 is mounted") };
    let real = Real::at(PathBuf::from(root), CgroupVersion::V2, "v2");
    let pod = real.cgroup("/pod1");
    real.cgroups.ensure(&pod, &CgroupSettings::default()).await.unwrap();
    let mut child = stubborn(&real, &pod).await;
    real.cgroups.kill(&pod).await.unwrap();
    assert!(!child.wait().unwrap().success());
    assert_eq!(real.removed("/pod1").await, CgroupRemoval::Gone);
}

#[tokio::test]
async fn cgroup_v2_controllers_are_enabled_down_the_hierarchy() {
    let dir = tempfile::tempdir().unwrap();
    let pod = dir.path().join("kubepods/pod1");
    fs::create_dir_all(&pod).unwrap();
    for level in [dir.path(), pod.parent().unwrap(), &pod] {
        fs::write(level.join("cgroup.controllers"), "cpu memory\n").unwrap();
        fs::write(level.join("cgroup.subtree_control"), "").unwrap();
    }
    fs::write(pod.join("memory.max"), "max\n").unwrap();
    let cgroups = LinuxCgroups::new(dir.path().to_owned(), CgroupVersion::V2);
    let file = |name: &str, is_optional| CgroupFile {
        controller: "",
        name: name.to_owned(),
        text: "4096".to_owned(),
        is_optional,
    };
    let settings = CgroupSettings {
        files: vec![file("memory.max", false), file("hugetlb.2MB.max", true)],
        properties: vec![],
    };
    cgroups.ensure(&CgroupPath::directory("/kubepods/pod1"), &settings).await.unwrap();
    let given = |dir: &Path| fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap();
    // A real file adds up what is written; this one has the latest at its front.
    assert!(given(dir.path()).contains("+memory"), "{}", given(dir.path()));
    assert!(given(pod.parent().unwrap()).contains("+memory"));
    assert_eq!(given(&pod), "", "containers are the runtime's");
    assert!(fs::read_to_string(pod.join("memory.max")).unwrap().starts_with("4096"));
    let missing = CgroupSettings { files: vec![file("memory.min", false)], properties: vec![] };
    let error = cgroups.ensure(&CgroupPath::directory("/kubepods/pod1"), &missing).await.unwrap_err();
    assert!(error.to_string().contains("memory.min"), "{error}");
}

#[tokio::test]
async fn hybrid_cgroups_use_only_the_v1_hierarchies() {
    let dir = tempfile::tempdir().unwrap();
    for tree in ["cpu,cpuacct", "memory", "unified"] {
        fs::create_dir(dir.path().join(tree)).unwrap();
    }
    fs::write(dir.path().join("unified/cgroup.controllers"), "").unwrap();
    std::os::unix::fs::symlink("cpu,cpuacct", dir.path().join("cpu")).unwrap();
    let cgroups = LinuxCgroups::new(dir.path().to_owned(), CgroupVersion::V1);
    let pods = CgroupPath::directory("/kubepods");
    cgroups.ensure(&pods, &CgroupSettings::default()).await.unwrap();
    assert!(cgroups.exists(&pods).await);
    assert!(dir.path().join("cpu,cpuacct/kubepods").is_dir());
    assert!(!dir.path().join("unified/kubepods").exists());
    // What a runtime made there goes all the same.
    fs::create_dir_all(dir.path().join("unified/kubepods/container")).unwrap();
    assert_eq!(cgroups.remove(&pods).await.unwrap(), CgroupRemoval::Gone);
    assert!(!dir.path().join("unified/kubepods").exists());
}

fn slice() -> CgroupPath {
    CgroupPath { path: "/kubepods.slice/kubepods-pod1.slice".into(), is_slice: true }
}

fn weighed() -> CgroupSettings {
    let properties = vec![UnitProperty { name: "CPUWeight", value: 20.into() }];
    CgroupSettings { files: Vec::new(), properties }
}

fn with_systemd(systemd: &Systemd, root: &Path) -> LinuxCgroups {
    LinuxCgroups::with_systemd(root.to_owned(), CgroupVersion::V2, systemd.socket.clone())
}

#[tokio::test]
async fn systemd_creates_a_slice_with_its_properties() {
    let dir = tempfile::tempdir().unwrap();
    let mut systemd = Systemd::answering(vec![Answer::Job(12, "done")]);
    let cgroups = with_systemd(&systemd, dir.path());
    cgroups.ensure(&slice(), &weighed()).await.unwrap();
    let call = systemd.call().await;
    assert!(call.contains("StartTransientUnit"), "{call}");
    for part in [
        "kubepods-pod1.slice replace",
        "Wants",
        "kubepods.slice",
        "DefaultDependencies",
        "CPUWeight",
        "TasksAccounting",
    ] {
        assert!(call.contains(part), "{part}: {call}");
    }
    assert!(cgroups.exists(&slice()).await);
}

#[tokio::test]
async fn running_slice_gets_its_properties_again() {
    let dir = tempfile::tempdir().unwrap();
    let exists = || Answer::Error("org.freedesktop.systemd1.UnitExists");
    let mut systemd = Systemd::answering(vec![exists(), Answer::Nothing, exists()]);
    let cgroups = with_systemd(&systemd, dir.path());
    cgroups.ensure(&slice(), &weighed()).await.unwrap();
    let (_start, set) = (systemd.call().await, systemd.call().await);
    assert!(set.contains("SetUnitProperties") && set.contains("CPUWeight"), "{set}");
    // Without properties nothing is sent.
    cgroups.ensure(&slice(), &CgroupSettings::default()).await.unwrap();
}

#[tokio::test]
async fn a_slice_is_stopped_and_one_that_systemd_has_forgotten_is_only_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut systemd = Systemd::answering(vec![
        Answer::Job(3, "done"),
        Answer::Error("org.freedesktop.systemd1.NoSuchUnit"),
    ]);
    let cgroups = with_systemd(&systemd, dir.path());
    let inside = dir.path().join("kubepods.slice/kubepods-pod1.slice");
    for _ in 0..2 {
        fs::create_dir_all(&inside).unwrap();
        assert_eq!(cgroups.remove(&slice()).await.unwrap(), CgroupRemoval::Gone);
        assert!(!inside.exists());
        assert!(systemd.call().await.contains("StopUnit"));
    }
    // The slice does not exist: systemd is not called.
    assert_eq!(cgroups.remove(&slice()).await.unwrap(), CgroupRemoval::Gone);
}

#[tokio::test]
async fn systemd_refusal_is_reported_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let answers = vec![Answer::Job(3, "failed"), Answer::Error("org.freedesktop.DBus.Error.AccessDenied")];
    let systemd = Systemd::answering(answers);
    let cgroups = with_systemd(&systemd, dir.path());
    let error = cgroups.ensure(&slice(), &weighed()).await.unwrap_err().to_string();
    assert_eq!(error, "start slice kubepods-pod1.slice: StartTransientUnit: the job is failed");
    let error = cgroups.ensure(&slice(), &weighed()).await.unwrap_err().to_string();
    assert!(error.contains("AccessDenied: no good reason"), "{error}");
}

/// A thousand pods, each with a cgroup inside as a runtime makes one, and with a process in every tenth. They come and go
/// side by side, and only cgroups with processes are left in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_cgroups_are_created_and_removed() {
    const PODS: usize = 1000;
    let real = Real::new("thousand");
    let limits = real.files(&[("pids", "pids.max", "pids.max", "50")]);
    let mut stubborn_ones = Vec::new();
    for n in 0..PODS {
        let pod = real.cgroup(&format!("/kubepods/burstable/pod{n}"));
        real.cgroups.ensure(&pod, &limits).await.unwrap();
        let inner = real.cgroup(&format!("/kubepods/burstable/pod{n}/container"));
        real.cgroups.ensure(&inner, &CgroupSettings::default()).await.unwrap();
        if n % 10 == 0 {
            stubborn_ones.push((n, stubborn(&real, &inner).await));
        }
        // The one of a while ago goes; its process has to be killed first.
        let Some(old) = n.checked_sub(50) else { continue };
        go(&real, old, &mut stubborn_ones).await;
    }
    for old in PODS - 50..PODS {
        go(&real, old, &mut stubborn_ones).await;
    }
    assert_eq!(real.cgroups.children(&real.cgroup("/kubepods/burstable")).await, Vec::<String>::new());
    assert!(stubborn_ones.is_empty());
}

async fn go(real: &Real, n: usize, stubborn_ones: &mut Vec<(usize, Child)>) {
    let below = format!("/kubepods/burstable/pod{n}");
    if let Some(at) = stubborn_ones.iter().position(|(pod, _)| *pod == n) {
        let (_, mut child) = stubborn_ones.remove(at);
        let busy = real.cgroups.remove(&real.cgroup(&below)).await.unwrap();
        assert!(matches!(busy, CgroupRemoval::Busy { pids } if pids.contains(&child.id())), "{n}");
        real.cgroups.kill(&real.cgroup(&below)).await.unwrap();
        assert!(!child.wait().unwrap().success());
    }
    assert_eq!(real.removed(&below).await, CgroupRemoval::Gone, "{n}");
}

fn mark(cgroup: &CgroupPath, bytes: u64) -> MemoryMark {
    MemoryMark { cgroup: cgroup.path.clone(), bytes }
}

/// A process in that cgroup that takes so many MiB, and stays.
async fn taking(real: &Real, cgroup: &CgroupPath, mebibytes: u64) -> Child {
    let script = format!("read go; x=$(head -c {mebibytes}M /dev/zero | tr '\\0' x); read end");
    let mut child = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    real.cgroups.join(cgroup, child.id()).await.unwrap();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    child
}

#[tokio::test]
async fn memory_threshold_wakes_the_waiter_also_if_it_was_passed_before() {
    let real = Real::new("alarm");
    let (all, pod) = (real.cgroup("/kubepods"), real.cgroup("/kubepods/pod1"));
    real.cgroups.ensure(&pod, &CgroupSettings::default()).await.unwrap();
    let marks = [mark(&real.cgroup(""), 1 << 40), mark(&all, 8 << 20)];
    if !real.is_v1() {
        assert!(real.cgroups.watch_memory(&marks).await.is_err());
        return;
    }
    let mut alarm = real.cgroups.watch_memory(&marks).await.unwrap();
    assert!((&mut alarm).now_or_never().is_none(), "no memory is used");
    let mut child = taking(&real, &pod, 16).await;
    tokio::time::timeout(std::time::Duration::from_secs(60), alarm).await.unwrap();
    let again = real.cgroups.watch_memory(&marks).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(60), again).await.unwrap();
    real.cgroups.kill(&pod).await.unwrap();
    child.wait().unwrap();
    let missing = [mark(&real.cgroup("/missing"), 1)];
    assert!(real.cgroups.watch_memory(&missing).await.err().unwrap().is_not_found());
}

#[test]
fn process_that_is_no_longer_in_the_cgroup_is_not_killed() {
    let root = tempfile::tempdir().unwrap();
    let (mut listed, mut elsewhere) = (sleeper(), sleeper());
    fs::create_dir_all(root.path().join("cpu/pod")).unwrap();
    fs::write(root.path().join("cpu/pod/cgroup.procs"), format!("{}\n", listed.id())).unwrap();
    let trees = Trees::new(root.path().to_path_buf(), CgroupVersion::V1);
    trees.kill_those("/pod", &[listed.id(), elsewhere.id()]).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&listed.wait().unwrap()), Some(9));
    assert!(elsewhere.try_wait().unwrap().is_none());
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
}

/// Sleeps until it is killed.
fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().unwrap()
}

async fn facts(cgroups: &LinuxCgroups, pid: u32) -> ProcessFacts {
    cgroups.facts_of(&[pid]).await.pop().unwrap()
}

#[tokio::test]
async fn moved_process_is_listed_in_its_cgroup_with_its_oom_score_adj() {
    let real = Real::new("moved");
    let (above, cgroup) = (real.cgroup(""), real.cgroup("/daemons"));
    real.cgroups.ensure(&cgroup, &CgroupSettings::default()).await.unwrap();
    let mut child = sleeper();
    let pid = child.id();
    let was = facts(&real.cgroups, pid).await;
    assert!(!was.cgroups.contains(&*cgroup.path) && was.is_on_node, "{was:?}");
    assert!(was.executable.is_some_and(|path| path.contains('/')));
    real.cgroups.join(&cgroup, pid).await.unwrap();
    let score = (was.oom_score_adj + 7).min(1000);
    real.cgroups.set_oom_score_adj(pid, score).await.unwrap();
    let now = facts(&real.cgroups, pid).await;
    assert_eq!((now.pid, now.oom_score_adj), (pid, score));
    // On version 1 nothing of ours is in an empty tree of version 2.
    let mut trees = now.cgroups.lines().filter(|line| !real.is_v1() || !line.starts_with("0:"));
    assert!(trees.all(|line| line.ends_with(&*cgroup.path)), "{}", now.cgroups);
    assert_eq!(real.cgroups.members(&cgroup).await.unwrap(), [pid]);
    assert!(real.cgroups.members(&above).await.unwrap().is_empty(), "it is below");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(real.cgroups.facts_of(&[pid]).await.is_empty(), "it is gone");
    assert!(real.cgroups.set_oom_score_adj(pid, score).await.unwrap_err().is_not_found());
}

#[test]
fn kernel_threads_and_container_processes_are_distinguished() {
    let proc = tempfile::tempdir().unwrap();
    let process = |pid: u32, exe: Option<&str>, status: &str| {
        let dir = proc.path().join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup"), "0::/\n").unwrap();
        fs::write(dir.join("oom_score_adj"), "-5\n").unwrap();
        fs::write(dir.join("status"), format!("Name:\ta\n{status}")).unwrap();
        if let Some(exe) = exe {
            std::os::unix::fs::symlink(exe, dir.join("exe")).unwrap();
        }
    };
    process(1, Some("/sbin/init"), "NSpid:\t1\n");
    process(2, None, "NSpid:\t2\n");
    process(3, Some("/bin/contained"), "NSpid:\t3\t1\n");
    process(4, Some("/bin/old"), "");
    let all = processes::facts_of(proc.path(), &[1, 2, 3, 4, 5]);
    let seen: Vec<_> = all.iter().map(|f| (f.pid, f.executable.as_deref(), f.is_on_node)).collect();
    let contained = [(3, Some("/bin/contained"), false), (4, Some("/bin/old"), false)];
    assert_eq!(seen[..2], [(1, Some("/sbin/init"), true), (2, None, true)]);
    assert_eq!(seen[2..], contained, "and processes that look the same");
    assert!(all.iter().all(|f| f.cgroups == "0::/\n" && f.oom_score_adj == -5));
}

#[tokio::test]
async fn listener_of_a_socket_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let cgroups = LinuxCgroups::new(dir.path().to_owned(), CgroupVersion::V2);
    assert!(cgroups.listener(&socket).await.unwrap_err().is_not_found());
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(cgroups.listener(&socket).await.unwrap(), Some(std::process::id()));
}

/// Only a directory that looks like the trees: nothing of the real root is moved.
#[tokio::test]
async fn root_cgroup_members_come_from_a_hierarchy_with_a_controller() {
    let dir = tempfile::tempdir().unwrap();
    for (tree, pids) in [("cpu", "1\n0\n7\n"), ("memory", "1\n9\n"), ("cpu/below", "8\n")] {
        fs::create_dir_all(dir.path().join(tree)).unwrap();
        fs::write(dir.path().join(tree).join("cgroup.procs"), pids).unwrap();
    }
    fs::write(dir.path().join("cgroup.procs"), "3\n").unwrap();
    let root = CgroupPath::directory("/");
    let members =
        async |version| LinuxCgroups::new(dir.path().to_owned(), version).members(&root).await.unwrap();
    assert_eq!(members(CgroupVersion::V1).await, [1, 7]);
    assert_eq!(members(CgroupVersion::V2).await, [3]);
}
