//! A kubelet process that a program drives, on paths of its own. Killed when dropped; measured only through `/proc`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::PrivateCgroup;
use crate::private_cgroup::make_kernel_settings;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::outcome::{BenchError, Outcome, failed};

pub const NODE_NAME: &str = "bench";
/// The unit of processor time in `/proc`; the kernel shows 100 a second on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// For whatever is waited for; the events of a thousand pods take most of it.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The parent cgroup of pods; removed when dropped.
#[derive(Debug)]
pub struct OwnCgroup(pub PrivateCgroup);

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // A leftover is seen by an inspection of the machine afterwards.
        let _ = self.0.remove();
    }
}

/// Memory of a kubelet in bytes.
#[derive(Debug)]
pub struct Memory {
    pub resident: u64,
    /// What is no part of a file, such as the heap.
    pub anonymous: u64,
}

/// One kubelet and its directory.
#[derive(Debug)]
pub struct Node {
    pub dir: PathBuf,
    read_only_port: u16,
    /// The arguments that make it join a cluster.
    kubeconfig: Option<PathBuf>,
    bootstrap_kubeconfig: Option<PathBuf>,
    pub kubelet: Option<Child>,
    /// A program with arguments that starts the kubelet, and becomes it.
    pub wrapper: Vec<String>,
    /// Further flags of the kubelet, from the next start on.
    pub flags: Vec<String>,
}

impl Node {
    /// Makes the directory and writes the configuration; starts nothing.
    pub fn new(dir: &Path, endpoint: &str, cgroup: &PrivateCgroup) -> Outcome<Self> {
        fs::create_dir_all(dir.join("manifests")).map_err(failed("make a directory for manifests"))?;
        fs::write(dir.join("resolv.conf"), "nameserver 192.0.2.1\n").map_err(failed("write resolv.conf"))?;
        cgroup.make().map_err(failed("make a cgroup"))?;
        make_kernel_settings(&dir.join("proc-sys")).map_err(failed("write kernel settings"))?;
        let read_only_port = free_port()?;
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": dir.join("manifests"),
            "containerRuntimeEndpoint": endpoint,
            "podLogsDir": dir.join("logs/pods"),
            "resolvConf": dir.join("resolv.conf"),
            "address": "127.0.0.1",
            "port": free_port()?,
            "readOnlyPort": read_only_port,
            "healthzPort": free_port()?,
            "maxPods": 2000,
            "failCgroupV1": false,
            "failSwapOn": false,
            "cgroupRoot": cgroup.path(),
            // On a machine with a full disk, neither pods nor the images that they need may be removed.
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            // The firewall is the machine's.
            "makeIPTablesUtilChains": false,
            "authentication": {"webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
        });
        fs::write(dir.join("kubelet.json"), config.to_string()).map_err(failed("write the configuration"))?;
        Ok(Self {
            dir: dir.to_path_buf(),
            read_only_port,
            kubeconfig: None,
            bootstrap_kubeconfig: None,
            kubelet: None,
            wrapper: Vec::new(),
            flags: Vec::new(),
        })
    }

    /// From the next start on, it is a member of the cluster of the kubeconfig.
    pub fn join(&mut self, kubeconfig: &str) -> Outcome<()> {
        let path = self.dir.join("kubeconfig");
        fs::write(&path, kubeconfig).map_err(failed("write the kubeconfig"))?;
        self.kubeconfig = Some(path);
        Ok(())
    }

    /// From the next start on, it requests a certificate with the token of this kubeconfig.
    pub fn bootstrap(&mut self, kubeconfig: &str) -> Outcome<()> {
        let path = self.dir.join("bootstrap-kubeconfig");
        fs::write(&path, kubeconfig).map_err(failed("write the bootstrap kubeconfig"))?;
        self.bootstrap_kubeconfig = Some(path);
        self.kubeconfig = Some(self.dir.join("kubeconfig"));
        Ok(())
    }

    pub fn start(&mut self, program: &Path) -> Outcome<()> {
        let log = fs::File::options().create(true).append(true).open(self.dir.join("kubelet.log"));
        let mut words = self.wrapper.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(program.as_os_str()));
        command.args(words).arg("--config").arg(self.dir.join("kubelet.json"));
        command.arg("--root-dir").arg(self.dir.join("root")).arg("--cert-dir").arg(self.dir.join("pki"));
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        if let Some(kubeconfig) = &self.bootstrap_kubeconfig {
            command.arg("--bootstrap-kubeconfig").arg(kubeconfig);
        }
        command.args(["--hostname-override", NODE_NAME, "-v", "2"]).args(&self.flags);
        command.env("KUBELET_PROC_SYS_DIR", self.dir.join("proc-sys"));
        command.env("KUBELET_CONTAINER_LINKS_DIR", self.dir.join("logs/containers"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.map_err(failed("open a log file"))?);
        let child = command.spawn().map_err(failed(format!("start {}", program.display())))?;
        self.kubelet = Some(child);
        Ok(())
    }

    /// Kills it with SIGKILL; pods stay.
    pub fn kill(&mut self) -> Outcome<()> {
        let Some(mut child) = self.kubelet.take() else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).map_err(failed("end the kubelet"))?;
        Ok(())
    }

    /// Adds fields to the configuration, from the next start on.
    pub fn configure(&self, fields: &Value) -> Outcome<()> {
        let path = self.dir.join("kubelet.json");
        let text = fs::read_to_string(&path).map_err(failed("read the configuration"))?;
        let mut config: Value = serde_json::from_str(&text).map_err(failed("read the configuration"))?;
        for (name, value) in fields.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        fs::write(&path, config.to_string()).map_err(failed("write the configuration"))
    }

    /// Sends SIGTERM and waits until it has exited; kills it if it does not within the time.
    pub async fn terminate(&mut self, timeout: Duration) -> Outcome<()> {
        self.signal(Signal::TERM)?;
        let exits = async {
            while !self.has_exited()? {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        let in_time = tokio::time::timeout(timeout, exits).await;
        self.kill()?;
        in_time.map_err(failed("wait for the kubelet to exit after SIGTERM"))?
    }

    /// Whether it has ended, by itself or by a signal; also if none was started.
    pub fn has_exited(&mut self) -> Outcome<bool> {
        let Some(child) = &mut self.kubelet else { return Ok(true) };
        Ok(child.try_wait().map_err(failed("check the kubelet"))?.is_some())
    }

    pub fn pid(&self) -> Option<u32> {
        self.kubelet.as_ref().map(Child::id)
    }

    /// Sends SIGSTOP: it does nothing until [`Self::resume`].
    pub fn pause(&self) -> Outcome<()> {
        self.signal(Signal::STOP)
    }

    pub fn resume(&self) -> Outcome<()> {
        self.signal(Signal::CONT)
    }

    pub fn signal(&self, signal: Signal) -> Outcome<()> {
        let pid = self.kubelet.as_ref().map(Pid::from_child);
        let pid = pid.ok_or_else(|| BenchError("no kubelet runs".to_owned()))?;
        kill_process(pid, signal).map_err(failed("signal the kubelet"))
    }

    /// Writes a manifest atomically.
    pub fn apply(&self, name: &str, manifest: &Value) -> Outcome<()> {
        let hidden = self.dir.join(format!("manifests/.{name}"));
        fs::write(&hidden, manifest.to_string())
            .and_then(|()| fs::rename(hidden, self.manifest(name)))
            .map_err(failed("write a manifest"))
    }

    pub fn delete(&self, name: &str) -> Outcome<()> {
        fs::remove_file(self.manifest(name)).map_err(failed("remove a manifest"))
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.dir.join(format!("manifests/{name}.json"))
    }

    /// Whether the runtime has opened a log of the pod's container `main`.
    pub fn has_log(&self, name: &str) -> bool {
        let prefix = format!("default_{name}-{NODE_NAME}_");
        let entries = fs::read_dir(self.dir.join("logs/pods")).into_iter().flatten().flatten();
        let mut dirs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        dirs.any(|dir| dir.path().join("main/0.log").exists())
    }

    /// Resident memory in bytes, as `ps` shows it.
    pub fn resident_bytes(&self) -> Outcome<u64> {
        self.kilobytes("status", "VmRSS:")
    }

    /// Exact: the kernel counts pages for each processor, and `VmRSS` may lack the last hundreds of kilobytes.
    pub fn exact_memory(&self) -> Outcome<Memory> {
        let bytes = |field| self.kilobytes("smaps_rollup", field);
        Ok(Memory { resident: bytes("Rss:")?, anonymous: bytes("Anonymous:")? })
    }

    fn kilobytes(&self, file: &str, field: &str) -> Outcome<u64> {
        let text = self.read_proc(file)?;
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kilobytes.map(|kb| kb * 1024).ok_or_else(|| BenchError(format!("no {field} in: {text}")))
    }

    /// Processor time so far, user and system, in seconds.
    pub fn cpu_seconds(&self) -> Outcome<f64> {
        cpu_seconds_in(&self.read_proc("stat")?)
    }

    /// Requests to the API server since the process started, as its metrics count them; without watches.
    pub async fn api_requests(&self) -> Outcome<f64> {
        let text = self.metrics().await.map_err(failed("read the kubelet's metrics"))?;
        let samples = text.lines().filter(|line| line.starts_with("rest_client_requests_total{"));
        let values = samples.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()));
        values.sum::<Option<f64>>().ok_or_else(|| BenchError(format!("no numbers in: {text}")))
    }

    async fn metrics(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.read_only_port)).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    fn read_proc(&self, file: &str) -> Outcome<String> {
        let pid = self.kubelet.as_ref().map_or(0, Child::id);
        fs::read_to_string(format!("/proc/{pid}/{file}"))
            .map_err(failed(format!("the kubelet has ended; {}", self.log_tail())))
    }

    /// A kubelet leaves its root directory as the shared mount that it made, where the machine's was not shared; a killed one
    /// also leaves the volumes of its pods below it.
    pub fn unmount_root(&self) {
        let root = self.dir.join("root");
        while Command::new("mountpoint").arg("-q").arg(&root).status().is_ok_and(|status| status.success())
            && Command::new("umount")
                .arg("--recursive")
                .arg(&root)
                .status()
                .is_ok_and(|status| status.success())
        {}
    }

    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.dir.join("kubelet.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("the end of its log:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.kill();
        self.unmount_root();
    }
}

/// A pod of one container `main` that exits at once on SIGTERM and otherwise never.
pub fn sleeping_pod(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [{
            "name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"],
        }]},
    })
}

/// Polls every `pause` until the query succeeds; the error names the log of the process.
pub async fn until<T, F>(node: &Node, what: &str, pause: Duration, mut query: F) -> Outcome<T>
where
    F: AsyncFnMut() -> Outcome<Option<T>>,
{
    let poll = async {
        loop {
            if let Some(answer) = query().await? {
                return Ok(answer);
            }
            tokio::time::sleep(pause).await;
        }
    };
    match tokio::time::timeout(TIMEOUT, poll).await {
        Ok(answer) => answer,
        Err(_) => Err(BenchError(format!("timed out waiting for {what}; {}", node.log_tail()))),
    }
}

/// User and system time in the text of `/proc/…/stat`.
pub fn cpu_seconds_in(stat: &str) -> Outcome<f64> {
    // The command name before the bracket may hold anything. After it, utime and stime are the 12th and 13th.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(vec![], |(_, rest)| rest.split_whitespace().collect());
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok((user + system) / TICKS_PER_SECOND),
        _ => Err(BenchError(format!("no processor time in: {stat}"))),
    }
}

fn free_port() -> Outcome<u16> {
    crate::free_port().ok_or_else(|| BenchError("every port is taken".to_owned()))
}
