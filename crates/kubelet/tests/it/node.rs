//! One node under test: a containerd (or a fake runtime behind a socket), a kubelet process, and queries of both.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cri::CriRuntime;
use fakes::{FakeCri, FakeRuntime};
use fixtures::stretched;
use harness::PrivateCgroup;
use harness::containerd::{BUSYBOX_IMAGE, Containerd, leftovers};
use harness::private_cgroup::make_kernel_settings;
use model::{CgroupDriver, ContainerState};
use ports::runtime::Scope;
use ports::{Runtime, RuntimeError};
use serde_json::{Value, json};

use harness::SmallDisk;

/// Long enough for a loaded machine with two cores; a passing test never waits this long.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long a terminating pod may take before the runtime is checked for a stuck container.
const LOST_TASK_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two polls: four times the duration of a poll or a sixteenth of the time waited so far, within these bounds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Node {
    dir: tempfile::TempDir,
    /// For the calls to the runtime that tests make themselves.
    tokio: tokio::runtime::Runtime,
    containerd: Option<Containerd>,
    fakes: Vec<FakeCri>,
    kubelet: Option<Child>,
    kubelet_started: Instant,
    main_port: u16,
    port: u16,
    health_port: u16,
    extra: Value,
    flags: Vec<String>,
    variables: Vec<(&'static str, PathBuf)>,
    /// A program with arguments that starts the kubelet.
    wrapper: Vec<String>,
    program: PathBuf,
}

impl Node {
    /// A node with a running kubelet.
    pub(crate) fn start() -> Self {
        Self::start_with(json!({}))
    }

    /// A node with a running kubelet and further configuration fields.
    pub(crate) fn start_with(extra: Value) -> Self {
        let mut node = Self::on_containerd(extra);
        node.start_kubelet();
        node
    }

    /// A node with a containerd; its kubelet is not started yet.
    pub(crate) fn on_containerd(extra: Value) -> Self {
        Self::on_containerd_with(harness::containerd::cgroup_driver(), extra)
    }

    /// Does the same with a containerd of this cgroup driver.
    pub(crate) fn on_containerd_with(driver: CgroupDriver, extra: Value) -> Self {
        let mut node = Self::without_runtime(extra);
        node.start_runtime(driver);
        node
    }

    /// A node whose images and container layers are on a disk of so many MiB. Its kubelet is not started yet.
    pub(crate) fn with_image_disk(extra: Value, mebibytes: u64) -> (Self, SmallDisk) {
        let mut node = Self::without_runtime(extra);
        let disk = SmallDisk::at(node.path("containerd/root"), mebibytes, 20_000);
        node.start_runtime(harness::containerd::cgroup_driver());
        (node, disk)
    }

    fn start_runtime(&mut self, driver: CgroupDriver) {
        let containerd = self.tokio.block_on(Containerd::start_with(&self.path("containerd"), driver));
        self.containerd = Some(containerd.expect("containerd starts"));
    }

    /// Imports a busybox image that is larger by so many MiB.
    pub(crate) fn import_image(&self, name: &str, mebibytes: usize) {
        let imported = self.tokio.block_on(self.containerd().import_image(name, mebibytes));
        imported.expect("an image is imported");
    }

    /// Names of the images that the runtime has, with their ids.
    pub(crate) fn images(&self) -> std::collections::BTreeMap<String, String> {
        let images = self.call_runtime(|runtime| async move { runtime.list_images().await });
        let images = images.expect("the runtime answers").into_iter();
        images.flat_map(|image| image.repo_tags.into_iter().map(move |tag| (tag, image.id.clone()))).collect()
    }

    /// Names of the images that the runtime reports as pinned.
    pub(crate) fn pinned_images(&self) -> BTreeSet<String> {
        let images = self.call_runtime(|runtime| async move { runtime.list_images().await });
        let images = images.expect("the runtime answers").into_iter();
        images.filter(|image| image.pinned).flat_map(|image| image.repo_tags).collect()
    }

    /// A node with a fake runtime, for what a real one does not show: which calls it gets.
    pub(crate) fn on_fake(runtime: &FakeRuntime, extra: Value) -> Self {
        let mut node = Self::with_fake(runtime, extra);
        node.start_kubelet();
        node
    }

    /// The span ids in the trace headers of its calls to the fake runtime.
    pub(crate) fn spans_sent_to_the_fake(&self) -> BTreeSet<String> {
        self.fakes.iter().flat_map(FakeCri::traces).collect()
    }

    /// A node with a fake runtime; its kubelet is not started yet.
    pub(crate) fn with_fake(runtime: &FakeRuntime, extra: Value) -> Self {
        runtime.set_cgroup_driver(harness::containerd::cgroup_driver());
        let mut node = Self::without_runtime(extra);
        let endpoint = node.serve(runtime, "runtime.sock");
        node.configure(json!({"containerRuntimeEndpoint": endpoint}));
        node
    }

    fn without_runtime(extra: Value) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir_all(dir.path().join("manifests")).expect("a directory for manifests");
        // The worker thread serves what the test process serves.
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let node = Self {
            dir,
            tokio: tokio.expect("a tokio runtime"),
            containerd: None,
            fakes: Vec::new(),
            kubelet: None,
            kubelet_started: Instant::now(),
            main_port: free_port(),
            port: free_port(),
            health_port: free_port(),
            extra,
            flags: Vec::new(),
            variables: Vec::new(),
            wrapper: Vec::new(),
            program: env!("CARGO_BIN_EXE_kubelet").into(),
        };
        node.cgroup().make().expect("a cgroup");
        make_kernel_settings(&node.path("proc-sys")).expect("settings");
        node
    }

    /// The parent of all cgroups of this node.
    pub(crate) fn cgroup(&self) -> PrivateCgroup {
        PrivateCgroup::of(&self.path("containerd"))
    }

    /// Sets further configuration fields for kubelets that are started from now on.
    pub(crate) fn configure(&mut self, extra: Value) {
        let (Value::Object(fields), Value::Object(more)) = (&mut self.extra, extra) else {
            panic!("configuration fields are an object");
        };
        fields.extend(more);
    }

    /// Adds flags for kubelets that are started from now on.
    pub(crate) fn add_flags(&mut self, flags: &[&str]) {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
    }

    /// Sets an environment variable for kubelets that are started from now on.
    pub(crate) fn set_variable(&mut self, name: &'static str, value: PathBuf) {
        self.variables.push((name, value));
    }

    /// Gives kubelets that are started from now on these DNS servers, in a mount namespace of their own.
    pub(crate) fn set_resolver(&mut self, resolv_conf: &str) {
        let path = self.path("machine-resolv.conf");
        std::fs::write(&path, resolv_conf).expect("resolv.conf is written");
        let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
        let arguments = ["unshare", "--mount", "sh", "-c", script, path.to_str().expect("a path")];
        self.wrapper = arguments.map(str::to_owned).to_vec();
    }

    /// Runs kubelets that are started from now on in a user namespace, in which only root exists.
    pub(crate) fn enter_user_namespace(&mut self) {
        let arguments = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "unchanged"];
        self.wrapper = arguments.map(str::to_owned).to_vec();
    }

    /// Starts another kubelet if the last one has died. Returns whether it had.
    pub(crate) fn restart_dead_kubelet(&mut self) -> bool {
        let died = self.kubelet.as_mut().is_none_or(|child| child.try_wait().expect("a child").is_some());
        if died {
            self.spawn_kubelet();
        }
        died
    }

    /// Serves a fake runtime at a socket of this node until the node is dropped; returns the endpoint.
    pub(crate) fn serve(&mut self, runtime: &FakeRuntime, socket: &str) -> String {
        let _inside = self.tokio.enter();
        let server = FakeCri::serve(Arc::new(runtime.clone()), &self.path(socket)).expect("it serves");
        let endpoint = server.endpoint();
        self.fakes.push(server);
        endpoint
    }

    /// Runs code of the test process that must be started inside a tokio runtime.
    pub(crate) fn enter_runtime<T>(&self, start: impl FnOnce() -> T) -> T {
        let _inside = self.tokio.enter();
        start()
    }

    /// Waits for a future of the test process.
    pub(crate) fn finish<T>(&self, work: impl Future<Output = T>) -> T {
        self.tokio.block_on(work)
    }

    pub(crate) fn containerd(&self) -> &Containerd {
        self.containerd.as_ref().expect("containerd belongs to the node until its end")
    }

    /// SIGKILL for the runtime; its shims and containers keep running.
    pub(crate) fn kill_runtime(&mut self) {
        self.containerd.as_mut().expect("containerd").crash().expect("containerd is killed");
    }

    /// Ends the kubelet, the runtime and all containers at once, and unmounts everything: what is on disk stays. Follow with
    /// [`Self::resume_runtime`] and [`Self::start_kubelet`].
    pub(crate) fn lose_power(&mut self) {
        self.kill_kubelet();
        self.containerd.as_mut().expect("containerd").lose_power().expect("everything is killed");
        assert_eq!(self.unmount_all(), Vec::<String>::new(), "everything is unmounted");
    }

    pub(crate) fn resume_runtime(&mut self) {
        let containerd = self.containerd.as_mut().expect("containerd");
        self.tokio.block_on(containerd.resume()).expect("containerd starts again");
    }

    /// Calls the runtime itself, without the kubelet.
    pub(crate) fn call_runtime<T, F>(&self, call: impl FnOnce(CriRuntime) -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, RuntimeError>>,
    {
        self.tokio.block_on(async {
            let endpoint = self.containerd().endpoint();
            let runtime = CriRuntime::new(&endpoint, &endpoint, stretched(Duration::from_secs(10)))
                .map_err(|e| e.to_string())?;
            call(runtime).await.map_err(|error| error.to_string())
        })
    }

    /// All sandboxes and containers of the pod in the runtime.
    pub(crate) fn runtime_ids(&self, uid: &str) -> Result<Vec<String>, String> {
        let scope = Scope::Pod(uid.into());
        self.call_runtime(|runtime| async move {
            let sandboxes = runtime.list_sandboxes(&scope).await?.into_iter().map(|s| s.id.to_string());
            let containers = runtime.list_containers(&scope).await?.into_iter().map(|c| c.id.to_string());
            Ok(sandboxes.chain(containers).collect())
        })
    }

    /// The runtime handlers of the pod's sandboxes.
    pub(crate) fn handlers(&self, uid: &str) -> Vec<String> {
        let scope = Scope::Pod(uid.into());
        let handlers = self.call_runtime(|runtime| async move {
            let mut handlers = Vec::new();
            for sandbox in runtime.list_sandboxes(&scope).await? {
                handlers.push(runtime.sandbox_status(&sandbox.id).await?.runtime_handler);
            }
            Ok(handlers)
        });
        handlers.expect("the runtime answers")
    }

    /// How many containers of the pod run.
    pub(crate) fn running_containers(&self, uid: &str) -> usize {
        let scope = Scope::Pod(uid.into());
        let containers = self.call_runtime(|runtime| async move { runtime.list_containers(&scope).await });
        let containers = containers.expect("the runtime answers");
        containers.iter().filter(|c| c.state == ContainerState::Running).count()
    }

    /// The reason that the runtime reports for the exit of a container.
    pub(crate) fn reason_of(&self, pod: &Value, name: &str) -> String {
        let id = container(pod, name)["containerID"].as_str().unwrap_or_default().to_owned();
        let id = model::ContainerId::from(without_runtime(&id));
        let status = self.call_runtime(|runtime| async move { runtime.container_status(&id).await });
        status.expect("the runtime answers").reason
    }

    /// Stops the pod's sandboxes without the kubelet.
    pub(crate) fn stop_sandboxes(&self, uid: &str) {
        let scope = Scope::Pod(uid.into());
        let stopped = self.call_runtime(|runtime| async move {
            for sandbox in runtime.list_sandboxes(&scope).await? {
                runtime.stop_sandbox(&sandbox.id).await?;
            }
            Ok(())
        });
        stopped.expect("the sandboxes are stopped");
    }

    /// Whether the runtime sends events: containerd does since 1.7. This is not tested by a request, because 1.7 sends each event
    /// to one client only, which must be the kubelet.
    pub(crate) fn supports_container_events(&self) -> bool {
        let version =
            self.call_runtime(|runtime| async move { runtime.version().await }).expect("the runtime answers");
        !version.version.trim_start_matches('v').starts_with("1.6.")
    }

    /// Whether the runtime takes the names of CDI devices: containerd does since 1.7.
    pub(crate) fn supports_cdi(&self) -> bool {
        self.supports_container_events()
    }

    /// The cgroup driver that the runtime reports.
    pub(crate) fn cgroup_driver(&self) -> Option<CgroupDriver> {
        self.call_runtime(|runtime| async move {
            match runtime.cgroup_driver().await {
                Ok(driver) => Ok(Some(driver)),
                Err(RuntimeError::Unimplemented { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .expect("the runtime answers")
    }

    /// Whether the runtime is new enough to mount images as volumes, or parts of them.
    pub(crate) fn supports_image_volumes(&self, part: bool) -> bool {
        let version =
            self.call_runtime(|runtime| async move { runtime.version().await }).expect("the runtime answers");
        volumes_core::image::check_runtime(&version.name, &version.version, part).is_ok()
    }

    /// Whether the runtime reports support of recursive read-only mounts.
    pub(crate) fn supports_recursive_read_only(&self) -> bool {
        let status =
            self.call_runtime(|runtime| async move { runtime.status().await }).expect("the runtime answers");
        status.handlers.iter().any(|handler| handler.recursive_read_only_mounts)
    }

    /// Whether the runtime reports support of user namespaces.
    pub(crate) fn supports_user_namespaces(&self) -> bool {
        let status =
            self.call_runtime(|runtime| async move { runtime.status().await }).expect("the runtime answers");
        status.handlers.iter().any(|handler| handler.name.is_empty() && handler.user_namespaces)
    }

    /// Runs `ctr` of this node's containerd.
    pub(crate) fn ctr(&self, args: &[&str]) {
        let output = self.ctr_command().args(args).output().expect("ctr runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn ctr_command(&self) -> Command {
        let mut ctr = harness::containerd::command("ctr");
        ctr.arg("--address").arg(self.containerd().socket()).args(["--namespace", "k8s.io"]);
        ctr
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn main_port(&self) -> u16 {
        self.main_port
    }

    /// The read-only port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn health_port(&self) -> u16 {
        self.health_port
    }

    pub(crate) fn write_config(&self) -> PathBuf {
        let mut config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": self.path("manifests"),
            "containerRuntimeEndpoint": self.containerd.as_ref().map(Containerd::endpoint),
            "podLogsDir": self.path("logs/pods"),
            "volumePluginDir": self.path("flex-volume-drivers"),
            "port": self.main_port,
            "readOnlyPort": self.port,
            "healthzPort": self.health_port,
            "failCgroupV1": false,
            "cgroupRoot": self.cgroup().path(),
            "cgroupDriver": harness::containerd::cgroup_driver().to_string(),
            "failSwapOn": false,
            "address": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "resolvConf": self.resolv_conf(),
            // The disk usage of this machine must not change any test.
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            // The network is the machine's.
            "makeIPTablesUtilChains": false,
        });
        for (key, value) in self.extra.as_object().expect("an object of fields") {
            config[key] = value.clone();
        }
        let path = self.path("kubelet.json");
        std::fs::write(&path, config.to_string()).expect("the configuration is written");
        path
    }

    fn resolv_conf(&self) -> PathBuf {
        let path = self.path("resolv.conf");
        std::fs::write(&path, "nameserver 192.0.2.1\nsearch example.test\n").expect("resolv.conf is written");
        path
    }

    /// From the next start on, this program is the kubelet.
    pub(crate) fn run_program(&mut self, program: &Path) {
        self.program = program.to_path_buf();
    }

    /// The command line of this node's kubelet.
    pub(crate) fn kubelet_command(&self) -> Command {
        let config = self.write_config();
        let mut arguments = self.wrapper.iter().map(OsStr::new).chain([self.program.as_os_str()]);
        let mut command = Command::new(arguments.next().expect("a program"));
        command.args(arguments);
        command.arg("--config").arg(config);
        command.arg("--root-dir").arg(self.path("root"));
        command.arg("--cert-dir").arg(self.path("pki"));
        command.args(["--hostname-override", "node", "-v", "4"]).args(&self.flags);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env("KUBELET_CONTAINER_LINKS_DIR", self.path("logs/containers"));
        command.env("KUBELET_PROC_SYS_DIR", self.path("proc-sys"));
        // A test may give the node its own certificate authorities and programs.
        let authorities = self.path("authorities.pem");
        if authorities.exists() {
            command.env("SSL_CERT_FILE", authorities);
        }
        let programs = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{programs}", self.path("bin").display()));
        command
    }

    pub(crate) fn start_kubelet(&mut self) {
        self.spawn_kubelet();
        self.eventually("the kubelet serves /pods", |node| node.get("/pods").map(|_| ()));
    }

    /// Starts the kubelet without waiting for anything.
    pub(crate) fn spawn_kubelet(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path("kubelet.log"));
        self.spawn_kubelet_logging_to(log.expect("a log file"));
    }

    /// Does the same with another reader of its log.
    pub(crate) fn spawn_kubelet_logging_to(&mut self, log: impl Into<Stdio>) {
        let child = self.kubelet_command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.kubelet = Some(child.expect("the kubelet starts"));
        self.kubelet_started = Instant::now();
    }

    /// Kills the kubelet with SIGKILL, whatever it was doing.
    pub(crate) fn kill_kubelet(&mut self) {
        if let Some(mut child) = self.kubelet.take() {
            child.kill().expect("the kubelet is killed");
            child.wait().expect("the kubelet has exited");
        }
    }

    pub(crate) fn restart_kubelet(&mut self) {
        self.kill_kubelet();
        self.start_kubelet();
    }

    /// Kills the kubelet with SIGKILL and starts it again as soon as the log of any kubelet so far has the text.
    #[track_caller]
    pub(crate) fn kill_at(&mut self, text: &str) {
        let began = Instant::now();
        while !self.kubelet_log().contains(text) {
            assert!(
                began.elapsed() < stretched(TIMEOUT),
                "{text:?} was never logged:\n{}",
                self.kubelet_log()
            );
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.restart_kubelet();
    }

    /// Kills the kubelet with SIGKILL after the delay and starts it again. Tests vary the moment; they do not need the wait.
    pub(crate) fn kill_after(&mut self, delay: Duration) {
        let began = Instant::now();
        while let Some(left) = delay.checked_sub(began.elapsed()) {
            std::thread::park_timeout(left);
        }
        self.restart_kubelet();
    }

    /// How long the current kubelet has been running.
    pub(crate) fn kubelet_age(&self) -> Duration {
        self.kubelet_started.elapsed()
    }

    pub(crate) fn kubelet_pid(&self) -> u32 {
        self.kubelet.as_ref().expect("the kubelet runs").id()
    }

    pub(crate) fn wait_for_exit(&mut self) -> std::process::ExitStatus {
        let mut child = self.kubelet.take().expect("the kubelet runs");
        child.wait().expect("the kubelet ends")
    }

    pub(crate) fn kubelet_log(&self) -> String {
        std::fs::read_to_string(self.path("kubelet.log")).unwrap_or_default()
    }

    /// Writes a manifest into the directory atomically.
    pub(crate) fn apply(&self, name: &str, manifest: &Value) {
        let hidden = self.path("manifests").join(format!(".{name}.tmp"));
        std::fs::write(&hidden, manifest.to_string()).expect("a manifest is written");
        std::fs::rename(hidden, self.manifest(name)).expect("a manifest is put in place");
    }

    pub(crate) fn manifest(&self, name: &str) -> PathBuf {
        self.path("manifests").join(format!("{name}.json"))
    }

    pub(crate) fn delete(&self, name: &str) {
        std::fs::remove_file(self.manifest(name)).expect("a manifest is removed");
    }

    /// A GET on the read-only port.
    pub(crate) fn get(&self, path: &str) -> Result<String, String> {
        http_get("127.0.0.1", self.port, path)
    }

    pub(crate) fn healthz(&self) -> Result<String, String> {
        http_get("127.0.0.1", self.health_port, "/healthz")
    }

    pub(crate) fn pods(&self) -> Vec<Value> {
        let Ok(text) = self.get("/pods") else { return Vec::new() };
        let list: Value = serde_json::from_str(&text).expect("/pods is JSON");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// The pod of that manifest name (without the node's suffix).
    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        let full = format!("{name}-node");
        self.pods().into_iter().find(|pod| pod["metadata"]["name"] == full.as_str())
    }

    /// Waits until the query succeeds and returns its result; fails with the last reason and the kubelet's log.
    #[track_caller]
    pub(crate) fn eventually<T>(&self, what: &str, mut query: impl FnMut(&Self) -> Result<T, String>) -> T {
        let began = Instant::now();
        loop {
            let started = Instant::now();
            match query(self) {
                Ok(answer) => return answer,
                Err(why) if began.elapsed() > stretched(TIMEOUT) => {
                    let log = self.kubelet_log();
                    let tail = log.lines().rev().take(60).collect::<Vec<_>>();
                    let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
                    panic!(
                        "timed out waiting for: {what}\nlast error: {why}\n--- end of the kubelet log\n{tail}"
                    );
                }
                // Where queries are slow, the machine should spend its time on the kubelet and not on them.
                Err(_) => {
                    let pause = (started.elapsed() * 4).max(began.elapsed() / 16);
                    std::thread::park_timeout(pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
                }
            }
        }
    }

    /// Waits until the pod passes the check.
    #[track_caller]
    pub(crate) fn pod_when(&self, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Value {
        self.eventually(&format!("pod {name} {what}"), |node| {
            let pod = node.pod(name).ok_or("no such pod in /pods")?;
            if check(&pod) { Ok(pod) } else { Err(pod["status"].to_string()) }
        })
    }

    #[track_caller]
    pub(crate) fn running(&self, name: &str) -> Value {
        self.pod_when(name, "is running and ready", |pod| {
            pod["status"]["phase"] == "Running" && condition(pod, "Ready") == "True"
        })
    }

    /// Waits until the pod has left /pods, the runtime and the disk.
    #[track_caller]
    pub(crate) fn wait_until_gone(&self, name: &str, uid: &str) {
        let began = Instant::now();
        self.eventually(&format!("pod {name} is fully removed"), |node| {
            if began.elapsed() > stretched(LOST_TASK_TIMEOUT) {
                node.kill_lost_tasks();
            }
            match node.pod(name) {
                Some(_) => Err("still in /pods".to_owned()),
                None => node.has_no_trace_of(uid),
            }
        });
    }

    /// Does what an operator does where containerd 1.6 refuses forever to remove a container: in rare cases, a start whose client
    /// dies leaves a task of a container that containerd reports as exited, and no CRI call ends that task. The kubelet reports
    /// it (`FailedKillPod`) and tries again.
    fn kill_lost_tasks(&self) {
        const REFUSAL: &str = "cannot delete running task ";
        let log = self.kubelet_log();
        let tasks = log.split(REFUSAL).skip(1).filter_map(|rest| rest.split(':').next());
        for task in tasks.collect::<BTreeSet<_>>() {
            let mut ctr = self.ctr_command();
            // If it is gone by now, there is nothing to end.
            let ended = ctr.args(["tasks", "delete", "--force", task]).output().expect("ctr runs");
            if ended.status.success() {
                eprintln!("containerd had lost the task {task}, which is killed");
            }
        }
    }

    /// Fails with what is left of a pod: in /pods, in the runtime, or on disk.
    pub(crate) fn has_no_trace_of(&self, uid: &str) -> Result<(), String> {
        if self.pods().iter().any(|pod| pod["metadata"]["uid"] == uid) {
            return Err("still in /pods".to_owned());
        }
        if self.containerd.is_some() {
            let listed = self.runtime_ids(uid)?;
            if !listed.is_empty() {
                return Err(format!("still in the runtime: {listed:?}"));
            }
        }
        let left = self.pod_cgroups(uid);
        if !left.is_empty() {
            return Err(format!("left of its cgroup: {left:?}"));
        }
        for dir in ["root/pods", "logs/pods", "logs/containers"].map(|dir| self.path(dir)) {
            // Symlinks to logs have the UID in their target.
            let target = |name: &str| std::fs::read_link(dir.join(name)).unwrap_or_default();
            let mut left = names_in(&dir);
            left.retain(|name| name.contains(uid) || target(name).to_string_lossy().contains(uid));
            if !left.is_empty() {
                return Err(format!("left in {}: {left:?}", dir.display()));
            }
        }
        Ok(())
    }

    /// The directories of the pod's own cgroup, in every hierarchy.
    pub(crate) fn pod_cgroups(&self, uid: &str) -> Vec<PathBuf> {
        let qos_cgroups = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];
        qos_cgroups.iter().flat_map(|parent| self.cgroup().find(&format!("{parent}/pod{uid}"))).collect()
    }

    /// Waits until the pod has succeeded; returns the logs of its container `main`.
    #[track_caller]
    pub(crate) fn output(&self, name: &str) -> String {
        let pod = self.pod_when(name, "has succeeded", |pod| pod["status"]["phase"] == "Succeeded");
        self.logs(&pod, "main")
    }

    /// The logs of a container, without the time stamps and tags of the CRI log format.
    pub(crate) fn logs(&self, pod: &Value, container: &str) -> String {
        let log = self.container_log(pod, container);
        log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(|line| format!("{line}\n")).collect()
    }

    /// Waits until the kubelet's log has this text.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        self.eventually(&format!("the kubelet logs {text:?}"), |node| {
            if node.kubelet_log().contains(text) { Ok(()) } else { Err("it did not".to_owned()) }
        });
    }

    /// The process id of the container's first process in the namespace of the node.
    #[track_caller]
    pub(crate) fn container_pid(&self, pod: &Value, name: &str) -> u32 {
        let id = container(pod, name)["containerID"].as_str().unwrap_or_default().to_owned();
        let id = without_runtime(&id).to_owned();
        let mut ctr = harness::containerd::command("ctr");
        ctr.arg("--address").arg(self.containerd().socket()).args(["--namespace", "k8s.io", "tasks", "ls"]);
        let output = ctr.output().expect("ctr runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line =
            text.lines().find(|line| line.starts_with(&id)).unwrap_or_else(|| panic!("no {id}: {text}"));
        line.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()).expect("a process id")
    }

    /// Sends a signal to the container's first process, without the kubelet.
    #[track_caller]
    pub(crate) fn signal_container(&self, pod: &Value, name: &str, signal: &str) {
        let pid = self.container_pid(pod, name).to_string();
        let status = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        assert!(status.expect("kill runs").success());
    }

    /// The log file of a container's newest instance.
    pub(crate) fn container_log(&self, pod: &Value, container: &str) -> String {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        let dir = format!("logs/pods/{}_{}_{}/{container}", text("namespace"), text("name"), text("uid"));
        let mut files = names_in(&self.path(&dir));
        files.sort();
        let Some(newest) = files.last() else { return String::new() };
        std::fs::read_to_string(self.path(&dir).join(newest)).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = &mut self.kubelet {
            let _ = child.kill();
            let _ = child.wait();
        }
        let left = self.stop_runtime();
        if std::thread::panicking() {
            eprintln!("--- kubelet log\n{}", self.kubelet_log());
        }
        if !std::thread::panicking() {
            assert_eq!(left, Vec::<String>::new(), "everything is cleaned up");
        }
    }
}

impl Node {
    /// Stops containerd and everything it ran, and unmounts what the kubelet mounted; reports what could not be cleaned up.
    fn stop_runtime(&mut self) -> Vec<String> {
        let stopped = self.containerd.take().map(Containerd::stop);
        let mut left: Vec<String> =
            stopped.and_then(Result::err).map(|e| e.to_string()).into_iter().collect();
        left.extend(self.unmount_all());
        left.extend(self.cgroup().remove().iter().map(|dir| format!("cgroup {}", dir.display())));
        left.extend(leftovers(&self.dir.path().join("containerd")));
        left
    }
}

impl Node {
    /// Unmounts everything below the node's directory; returns what stays mounted.
    fn unmount_all(&self) -> Vec<String> {
        // The second of two mounts at one place is hidden, and can be unmounted with the first one, if they are shared.
        for mount in self.mounts_below() {
            let _ = Command::new("umount").arg(mount).stderr(Stdio::null()).status();
        }
        self.mounts_below().into_iter().map(|mount| format!("mounted: {mount}")).collect()
    }

    /// The last one first.
    fn mounts_below(&self) -> Vec<String> {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let below = format!("{}/", self.dir.path().display());
        let points = table.lines().filter_map(|line| line.split(' ').nth(1));
        let mut ours: Vec<String> = points.filter(|at| at.starts_with(&below)).map(str::to_owned).collect();
        ours.sort_unstable_by(|a, b| b.cmp(a));
        ours
    }
}

pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The status of a condition, `""` if it does not exist.
pub(crate) fn condition<'a>(pod: &'a Value, kind: &str) -> &'a str {
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|c| c["type"] == kind).and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// The id of a container without the name of its runtime.
pub(crate) fn without_runtime(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

/// The status of a container, from any of the three lists; `Null` if it is in none.
pub(crate) fn container(pod: &Value, name: &str) -> Value {
    ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten()
        .find(|status| status["name"] == name)
        .cloned()
        .unwrap_or(Value::Null)
}

pub(crate) fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().expect("a UID").to_owned()
}

pub(crate) fn restarts(pod: &Value, name: &str) -> i64 {
    container(pod, name)["restartCount"].as_i64().unwrap_or(-1)
}

/// The image that every test runs: Debian's busybox.
pub(crate) const IMAGE: &str = BUSYBOX_IMAGE;

/// A pod manifest of one container that runs a shell script.
pub(crate) fn shell_pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [shell("main", script)]},
    })
}

/// A pod that runs a script once.
pub(crate) fn once_pod(name: &str, script: &str) -> Value {
    let mut pod = shell_pod(name, script);
    pod["spec"]["restartPolicy"] = "Never".into();
    pod
}

/// A container that runs a shell script.
pub(crate) fn shell(name: &str, script: &str) -> Value {
    json!({"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script]})
}

/// A script that exits at once on SIGTERM and otherwise never.
pub(crate) const FOREVER: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.expect("kill runs").success());
}

/// A port that no process listens on, never the same twice.
pub(crate) fn free_port() -> u16 {
    harness::free_port().expect("a free port")
}

pub(crate) fn http_get(address: &str, port: u16, path: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect((address, port)).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(stretched(Duration::from_secs(10)))).map_err(|e| e.to_string())?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|e| e.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    if head.split(' ').nth(1) == Some("200") { Ok(body.to_owned()) } else { Err(answer) }
}
