//! A runtime under test, with what a case needs to use it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fakes::{Exec, FakeRuntime, Program};
use harness::containerd::BUSYBOX_IMAGE;
use model::annotations as keys;
use model::observation::NamespaceMode;
use model::request::{
    ContainerRequest, ContainerSecurity, DnsRequest, ImageRequest, LinuxResources, Namespaces,
    SandboxRequest, SandboxSecurity,
};
use model::{ContainerId, ContainerObservation, ContainerState, PodRef, SandboxId};
use ports::Runtime;

/// What is under test. Cloned into each case.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) runtime: Arc<dyn Runtime>,
    /// The directory of the pods' log directories.
    pub(crate) logs: PathBuf,
    pub(crate) cgroup_root: String,
    /// Whether its containers are processes of this machine.
    pub(crate) has_processes: bool,
    /// For scripting, where the runtime is (in the end) the fake.
    pub(crate) fake: Option<FakeRuntime>,
}

/// A case, ready to be run in a world.
pub(crate) type Case = fn(World) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// The program of a container: a command for a real runtime, a program for the fake.
#[derive(Clone, Copy)]
pub(crate) enum Does {
    Sleep,
    ExitWith(i32),
    ObeyTerm,
    IgnoreTerm,
    Print(&'static str, &'static str),
}

/// A script that cases run in containers, and its result.
pub(crate) const SPEAK: &str = "echo out; echo err >&2; exit 3";

impl Does {
    fn command(self) -> String {
        match self {
            // PID 1 ignores signals that it has no handler for.
            Self::Sleep | Self::IgnoreTerm => "while :; do sleep 1000; done".to_owned(),
            Self::ExitWith(code) => format!("exit {code}"),
            Self::ObeyTerm => {
                "trap 'exit 5' TERM; : >/tmp/ready; while :; do sleep 1000 & wait $!; done".to_owned()
            }
            Self::Print(first, second) => format!("echo {first}; echo {second}; sleep 1000"),
        }
    }

    fn program(self) -> Program {
        let short = Duration::from_millis(50);
        let program = match self {
            Self::Sleep => Program::runs(),
            Self::IgnoreTerm => Program::runs().ignoring_term(),
            Self::ExitWith(code) => Program::exits(code, short),
            Self::ObeyTerm => Program::runs().stopping(short, 5),
            Self::Print(first, second) => Program::runs().printing(&[first, second]),
        };
        program.on_exec(|command| match command.last().map(String::as_str) {
            Some(SPEAK) => Exec::exits(3).printing("out\n").complaining("err\n"),
            Some("sleep 1000") => Exec::exits(0).taking(Duration::from_secs(1000)),
            Some(_) | None => Exec::exits(0),
        })
    }
}

impl World {
    pub(crate) fn sandbox_request(&self, name: &str) -> SandboxRequest {
        let pod = PodRef::new("contract", name, format!("uid-of-{name}"));
        SandboxRequest {
            attempt: 0,
            hostname: name.to_owned(),
            log_directory: self.logs.join(name).display().to_string(),
            dns: DnsRequest::default(),
            port_mappings: Vec::new(),
            labels: [
                (keys::POD_NAME_LABEL, &*pod.name),
                (keys::POD_NAMESPACE_LABEL, &*pod.namespace),
                (keys::POD_UID_LABEL, pod.uid.as_str()),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            annotations: [].into(),
            cgroup_parent: format!("{}/{name}", self.cgroup_root),
            sysctls: [].into(),
            security: SandboxSecurity {
                namespaces: Namespaces { pid: NamespaceMode::Container, ..Default::default() },
                ..Default::default()
            },
            overhead: None,
            resources: None,
            runtime_handler: String::new(),
            pod,
        }
    }

    pub(crate) fn container_request(
        &self,
        sandbox: &SandboxRequest,
        name: &str,
        does: Does,
    ) -> ContainerRequest {
        if let Some(fake) = &self.fake {
            fake.program(name, does.program());
        }
        let mut labels = sandbox.labels.clone();
        labels.insert(keys::CONTAINER_NAME_LABEL.to_owned(), name.to_owned());
        ContainerRequest {
            name: name.to_owned(),
            attempt: 0,
            image: BUSYBOX_IMAGE.to_owned(),
            user_specified_image: BUSYBOX_IMAGE.to_owned(),
            command: ["/bin/sh", "-c", &does.command()].map(str::to_owned).into(),
            args: Vec::new(),
            working_dir: String::new(),
            env: Vec::new(),
            mounts: Vec::new(),
            devices: Vec::new(),
            cdi_devices: Vec::new(),
            labels,
            annotations: [].into(),
            log_path: format!("{name}/0.log"),
            stdin: false,
            stdin_once: false,
            tty: false,
            resources: LinuxResources::default(),
            security: ContainerSecurity {
                namespaces: Namespaces { pid: NamespaceMode::Container, ..Default::default() },
                ..Default::default()
            },
            stop_signal: None,
        }
    }

    /// CRI-O answers some calls differently. Each case says how.
    pub(crate) async fn is_crio(&self) -> bool {
        self.runtime.version().await.unwrap().name == "cri-o"
    }

    /// As the kubelet does before it creates a container: CRI-O opens the log then, containerd later.
    pub(crate) fn make_log_directory(&self, sandbox: &SandboxRequest, container: &str) {
        std::fs::create_dir_all(PathBuf::from(&sandbox.log_directory).join(container)).unwrap();
    }

    /// A ready sandbox and its request.
    pub(crate) async fn run_sandbox(&self, name: &str) -> (SandboxId, SandboxRequest) {
        let request = self.sandbox_request(name);
        std::fs::create_dir_all(&request.log_directory).unwrap();
        (self.runtime.run_sandbox(&request).await.unwrap(), request)
    }

    /// A container, created in that sandbox and started.
    pub(crate) async fn start(
        &self,
        sandbox: &(SandboxId, SandboxRequest),
        name: &str,
        does: Does,
    ) -> ContainerId {
        let request = self.container_request(&sandbox.1, name, does);
        let log = PathBuf::from(&sandbox.1.log_directory).join(&request.log_path);
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        let id = self.runtime.create_container(&sandbox.0, &request, &sandbox.1).await.unwrap();
        self.runtime.start_container(&id).await.unwrap();
        id
    }

    /// Waits until the shell of a container runs: its start returns while runc, which ends at a signal, is about to become the shell.
    pub(crate) async fn shell_runs(&self) {
        let began = Instant::now();
        while self.has_processes && !has_shell(&self.cgroup_root) {
            assert!(began.elapsed() < Duration::from_secs(30), "no shell runs in {}", self.cgroup_root);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn status(&self, id: &ContainerId) -> ContainerObservation {
        self.runtime.container_status(id).await.unwrap()
    }

    /// The container's status once it has exited.
    pub(crate) async fn exited(&self, id: &ContainerId) -> ContainerObservation {
        let mut last = None;
        let ended = async {
            loop {
                let status = self.status(id).await;
                if status.state == ContainerState::Exited {
                    return status;
                }
                last = Some(status);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(30), ended).await {
            Ok(status) => status,
            Err(_) => panic!("never ended: {last:?}"),
        }
    }
}

/// Whether a shell runs in this cgroup or below it.
fn has_shell(cgroup: &str) -> bool {
    let read = |process: &Path, file| std::fs::read_to_string(process.join(file)).unwrap_or_default();
    let is_one = |process: PathBuf| {
        read(&process, "comm") == "sh\n" && read(&process, "cgroup").contains(&format!("{cgroup}/"))
    };
    std::fs::read_dir("/proc").unwrap().any(|process| process.is_ok_and(|process| is_one(process.path())))
}

pub(crate) fn image(name: &str) -> ImageRequest {
    ImageRequest { image: name.to_owned(), ..Default::default() }
}

pub(crate) fn command(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).into()
}
