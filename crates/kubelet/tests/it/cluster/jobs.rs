//! Short pods that follow each other as fast as the node has capacity: a scheduler that knows only the API sends the next one
//! when one has ended, none is ever rejected, and nothing of them remains, even of processes that resist SIGKILL.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use fakes::{FakeRuntime, Program};
use fixtures::{reduced, stretched};
use harness::containerd::cgroup_driver;
use model::CgroupDriver;
use serde_json::{Value, json};

use super::many_pods::mounts_of;
use super::rejections::allocatable;
use super::watch::Watch;
use super::{Cluster, bound};
use crate::node::{FOREVER, IMAGE, Node, free_port, names_in, once_pod, shell_pod, uid};
use crate::unkillable::{Unkillable, stray};

/// Longer than all jobs take on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long a killed process continues.
const UNKILLABLE_FOR: Duration = Duration::from_secs(4);

/// A client of the API over plain HTTP: a kubectl for each of so many pods would cost more than the pods.
struct Proxy {
    kubectl: Child,
    port: u16,
}

impl Proxy {
    fn start(cluster: &Cluster) -> Self {
        let port = free_port();
        let out = std::fs::File::create(cluster.node.path("proxy.log")).expect("a file");
        let kubectl = cluster.kubectl.start_into(&["proxy", &format!("--port={port}")], out);
        let proxy = Self { kubectl, port };
        cluster.node.eventually("the proxy serves", |_| proxy.call("GET", "/version", "").map(|_| ()));
        proxy
    }

    fn call(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(stretched(Duration::from_secs(20)))).map_err(|e| e.to_string())?;
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).map_err(|e| e.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|e| e.to_string())?;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        if status.starts_with('2') { Ok(answer) } else { Err(answer) }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

/// The results of all jobs.
#[derive(Debug, Default)]
struct JobResults {
    /// How many ended like this: `Succeeded`, `Failed DeadlineExceeded`.
    ends: BTreeMap<String, usize>,
    max_concurrent: usize,
}

/// Creates jobs as long as fewer than `max_active` in the API have not ended; deletes those that have. `seen` is called with each
/// running job.
fn run_jobs(
    cluster: &Cluster,
    jobs: Vec<Value>,
    max_active: usize,
    mut seen: impl FnMut(&Node, &Value),
) -> JobResults {
    let mut watch = Watch::pods(&cluster.kubectl, cluster.node.path("watch.json"));
    let api = Proxy::start(cluster);
    let pods = "/api/v1/namespaces/default/pods";
    let (mut results, mut waiting) = (JobResults::default(), jobs.into_iter());
    let mut open: BTreeMap<String, bool> = BTreeMap::new();
    let (mut left, began) = (waiting.len(), Instant::now());
    while left > 0 {
        while open.len() < max_active
            && let Some(job) = waiting.next()
        {
            api.call("POST", pods, &job.to_string()).expect("the job is created");
            open.insert(job["metadata"]["name"].as_str().expect("a name").to_owned(), false);
        }
        results.max_concurrent = results.max_concurrent.max(open.len());
        for event in watch.new_events() {
            let pod = &event["object"];
            let name = pod["metadata"]["name"].as_str().expect("a name");
            left -= usize::from(event["type"] == "DELETED");
            match pod["status"]["phase"].as_str() {
                Some("Running") if open.get_mut(name).is_some_and(|runs| !std::mem::replace(runs, true)) => {
                    seen(&cluster.node, pod);
                }
                Some(phase @ ("Succeeded" | "Failed")) if open.remove(name).is_some() => {
                    let reason = pod["status"]["reason"].as_str().unwrap_or_default();
                    *results.ends.entry(format!("{phase} {reason}")).or_default() += 1;
                    api.call("DELETE", &format!("{pods}/{name}"), "").expect("the job is deleted");
                }
                _ => {}
            }
        }
        assert!(
            began.elapsed() < stretched(TIMEOUT),
            "{left} left, {open:?} open\n{}",
            cluster.node.kubelet_log()
        );
        std::thread::park_timeout(Duration::from_millis(5));
    }
    eprintln!("{results:?} in {:?}", began.elapsed());
    results
}

/// A job that fits the node so many times. It needs no network of its own.
fn job(name: &str, script: &str, cpu_milli: i64) -> Value {
    let mut pod = bound(once_pod(name, script));
    pod["spec"]["hostNetwork"] = true.into();
    pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": format!("{cpu_milli}m")}});
    pod
}

/// Waits until no cgroup, mount or directory of any pod is left.
fn wait_until_clean(node: &Node, mounts: &[String]) {
    node.eventually("nothing is left of any pod", |node| {
        let qos_cgroups = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];
        let cgroups = qos_cgroups.iter().flat_map(|cgroup| node.cgroup().find(cgroup));
        let mut left: Vec<String> = cgroups.flat_map(|dir| names_in(&dir)).collect();
        left.retain(|name| name.starts_with("pod") || name.contains("-pod"));
        let dirs = ["root/pods", "logs/pods", "logs/containers"];
        left.extend(dirs.iter().flat_map(|dir| names_in(&node.path(dir))));
        left.extend(mounts_of(node).into_iter().filter(|mount| !mounts.contains(mount)));
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// Slices of pods of this node, including units whose cgroup is gone. None where systemd does not manage cgroups.
fn systemd_pod_units(node: &Node) -> String {
    if cgroup_driver() == CgroupDriver::Cgroupfs {
        return String::new();
    }
    let qos_cgroups = node.cgroup().find("kubepods/besteffort");
    assert!(!qos_cgroups.is_empty(), "the QoS cgroup exists as long as the node runs");
    let names = qos_cgroups.iter().filter_map(|cgroup| cgroup.file_stem()?.to_str());
    let patterns = names.map(|name| format!("{name}-pod*"));
    let list = ["list-units", "--all", "--plain", "--no-legend"].map(str::to_owned);
    let output =
        Command::new("systemctl").args(list.into_iter().chain(patterns)).output().expect("systemctl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn job_pods_on_containerd_reuse_freed_resources_and_leave_nothing() {
    const MAX_ACTIVE: usize = 6;
    let count = reduced(100);
    let late = (0..count).filter(|n| n % 50 == 10).count();
    let cluster = Cluster::start();
    cluster.wait_until_ready();
    let mounts = mounts_of(&cluster.node);
    let cpu = allocatable(&cluster, "cpu") / i64::try_from(MAX_ACTIVE).expect("a count");
    // One in fifty ignores SIGTERM and exceeds its deadline; another leaves a process that does not exit.
    let script = |n: usize| match n % 50 {
        10 => "trap '' TERM; while :; do sleep 1; done",
        20 => "sleep 2",
        _ => "exit 0",
    };
    let jobs = (0..count).map(|n| {
        let mut job = job(&format!("job-{n:04}"), script(n), cpu);
        if n % 50 == 10 {
            job["spec"]["activeDeadlineSeconds"] = 1.into();
        }
        job
    });
    let mut unkillable = Vec::new();
    let results = run_jobs(&cluster, jobs.collect(), MAX_ACTIVE, |node, pod| {
        let sleeps = pod["spec"]["containers"][0]["command"][2] == "sleep 2";
        if sleeps {
            unkillable.push(Unkillable::in_cgroups_of(node, &uid(pod)));
        }
        unkillable.retain(|process: &Unkillable| process.is_younger_than(UNKILLABLE_FOR));
    });
    drop(unkillable);
    assert_eq!(results.ends.get("Failed DeadlineExceeded"), Some(&late), "{results:?}");
    assert_eq!(results.ends.get("Succeeded "), Some(&(count - late)), "{results:?}");
    assert_eq!(results.max_concurrent, MAX_ACTIVE);
    wait_until_clean(&cluster.node, &mounts);
}

#[test]
fn job_pods_leave_no_process_in_their_cgroups() {
    const MAX_ACTIVE: usize = 20;
    let count = reduced(100);
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    runtime.program("main", Program::exits(0, stretched(Duration::from_millis(300))));
    let cluster = Cluster::on_fake(&runtime);
    cluster.wait_until_ready();
    let mounts = mounts_of(&cluster.node);
    let cpu = allocatable(&cluster, "cpu") / i64::try_from(MAX_ACTIVE).expect("a count");
    let jobs = (0..count).map(|n| {
        let mut job = job(&format!("job-{n:04}"), "", cpu);
        job["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
        job
    });
    let (mut unkillable, mut strays): (Vec<Unkillable>, Vec<(Child, bool)>) = (Vec::new(), Vec::new());
    let results = run_jobs(&cluster, jobs.collect(), MAX_ACTIVE, |node, pod| {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        match name.ends_with("50") {
            true => unkillable.push(Unkillable::in_cgroups_of(node, &uid(pod))),
            false => strays.push(stray(node, &uid(pod))),
        }
        unkillable.retain(|process| process.is_younger_than(UNKILLABLE_FOR));
    });
    drop(unkillable);
    assert_eq!(results.ends, [("Succeeded ".to_owned(), count)].into());
    assert_eq!(results.max_concurrent, MAX_ACTIVE);
    wait_until_clean(&cluster.node, &mounts);
    assert!(strays.iter().any(|(_, is_inside)| *is_inside), "no process was in time to enter a cgroup");
    for (mut stray, is_inside) in strays {
        let is_ended = stray.try_wait().expect("a child").is_some();
        // A process that came too late is ended by the test.
        let _ = stray.kill();
        let _ = stray.wait();
        assert_eq!(is_ended, is_inside, "processes in the pod's cgroup have exited with it");
    }
}

/// Without the API client, whose share would be larger than that of the node.
#[test]
fn thousand_pods_leave_no_process_and_no_cgroup() {
    const PODS: usize = 25;
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    runtime.image(IMAGE);
    let node = Node::on_fake(&runtime, json!({"maxPods": 2 * PODS}));
    let mounts = mounts_of(&node);
    let (mut unkillable, mut strays): (Vec<Unkillable>, Vec<(Child, bool)>) = (Vec::new(), Vec::new());
    for wave in 0..reduced(40) {
        let began = Instant::now();
        let uid = |n: usize| format!("wave-{wave}-{n}");
        let pods: Vec<Value> = (0..PODS).map(|n| running_pod(&uid(n))).collect();
        // The pods of the last wave terminate while those of this one start.
        node.apply("wave", &json!({"apiVersion": "v1", "kind": "List", "items": pods}));
        node.eventually("all pods of this wave run, and no others", |_| {
            let of_this = format!("wave-{wave}-");
            let (mine, others): (Vec<_>, Vec<_>) =
                runtime.running().into_iter().partition(|title| title.starts_with(&of_this));
            if mine.len() == PODS && others.is_empty() {
                return Ok(());
            }
            Err(format!("{} run, and {} others", mine.len(), others.len()))
        });
        for n in (0..PODS).step_by(5) {
            match (n, wave % 2) {
                (10, 0) => unkillable.push(Unkillable::in_cgroups_of(&node, &uid(n))),
                _ => strays.push(stray(&node, &uid(n))),
            }
        }
        unkillable.retain(|process| process.is_younger_than(UNKILLABLE_FOR));
        eprintln!("wave {wave} took {:?}", began.elapsed());
    }
    node.delete("wave");
    node.eventually("no process runs, except the one that cannot exit", |_| {
        let running = runtime.running();
        if running.is_empty() { Ok(()) } else { Err(format!("{} run", running.len())) }
    });
    drop(unkillable);
    wait_until_clean(&node, &mounts);
    assert_eq!(systemd_pod_units(&node), "");
    for (mut stray, is_inside) in strays {
        let is_ended = stray.try_wait().expect("a child").is_some();
        let _ = stray.kill();
        let _ = stray.wait();
        assert!(is_inside && is_ended, "processes in the pod's cgroup have exited with it");
    }
}

/// A pod of that UID, which runs until it is removed.
fn running_pod(uid: &str) -> Value {
    let mut pod = shell_pod(uid, FOREVER);
    pod["metadata"]["uid"] = uid.into();
    pod["spec"]["hostNetwork"] = true.into();
    pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod
}
