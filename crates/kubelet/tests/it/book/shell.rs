//! A shell in which a node under test looks like the node of the machine: the commands of a page run as they are written.
//!
//! Each block has a mount namespace of its own, so that nothing of the machine changes: `/etc` is a directory of the test, and
//! `/var/lib/kubelet`, `/run/kubelet` and `/run/containerd` lead to the files of the node.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fixtures::stretched;

use crate::node::Node;

/// How long a block is tried.
const TIMEOUT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_BEFORE_THE_NEXT_TRY: Duration = Duration::from_millis(300);

/// What programs need of the machine's `/etc`.
const OF_THE_MACHINE: &[&str] = &[
    "alternatives",
    "group",
    "hosts",
    "ld.so.cache",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "resolv.conf",
];

/// Makes the mounts, then becomes the shell that reads the block. The host name is a part of the names of static pods.
const ENTER: &str = "
hostname node
mount --bind \"$BOOK/etc\" /etc
mount --bind \"$BOOK/run\" /run
mount --bind \"$BOOK/lib\" /var/lib
mount --rbind \"$BOOK_ROOT\" /var/lib/kubelet
mount --bind \"$BOOK_MANIFESTS\" /etc/kubernetes/manifests
exec sh -eu \"$BOOK/block\"
";

/// The test waits for the file, restarts the kubelet outside of the namespace, and removes the file.
const SYSTEMCTL: &str = "#!/bin/sh
[ \"$*\" = 'restart kubelet' ] || { echo \"systemctl $*: not in these tests\" >&2; exit 1; }
touch \"$BOOK/restart\"
while [ -e \"$BOOK/restart\" ]; do sleep 0.05; done
";

/// How blocks reach the API server.
pub(crate) struct Client {
    pub(crate) kubectl: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) port: u16,
}

pub(crate) struct Shell<'a> {
    node: &'a mut Node,
    client: Option<Client>,
}

impl<'a> Shell<'a> {
    /// Where the node has the files that a block finds below `/` under this name.
    pub(crate) fn path(node: &Node, name: &str) -> PathBuf {
        node.path("book").join(name)
    }

    pub(crate) fn of(node: &'a mut Node, client: Option<Client>) -> Self {
        let shell = Self { node, client };
        for name in [
            "etc/kubernetes/manifests",
            "etc/kubernetes/kubelet.conf.d",
            "run/kubelet",
            "run/containerd",
            "lib/kubelet",
            "bin",
        ] {
            std::fs::create_dir_all(shell.at(name)).expect("a directory");
        }
        std::fs::create_dir_all(shell.node.path("root")).expect("a directory");
        let wanted =
            OF_THE_MACHINE.iter().map(|name| Path::new("/etc").join(name)).filter(|path| path.exists());
        let copied =
            Command::new("cp").args(["-a", "--target-directory"]).arg(shell.at("etc")).args(wanted).status();
        assert!(copied.expect("cp runs").success());
        let link = |target: &Path, name: &str| symlink(target, shell.at(name)).expect("a link");
        link(&shell.node.path("root/kubelet.sock"), "run/kubelet/kubelet.sock");
        link(&shell.node.containerd().socket(), "run/containerd/containerd.sock");
        link(Path::new(env!("CARGO_BIN_EXE_kubelet")), "bin/kubelet");
        if let Some(client) = &shell.client {
            link(&client.kubectl, "bin/kubectl");
        }
        std::fs::write(shell.at("bin/systemctl"), SYSTEMCTL).expect("a script");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(shell.at("bin/systemctl"), executable).expect("its mode");
        let config = shell.node.write_config();
        std::fs::copy(config, shell.at("etc/kubernetes/kubelet.yaml")).expect("the configuration is copied");
        shell
    }

    fn at(&self, name: &str) -> PathBuf {
        Self::path(self.node, name)
    }

    /// Runs the block until it ends with one of these codes, `0|3`; without any, with 0.
    pub(crate) fn run(&mut self, place: &str, codes: &str, text: &str) {
        let codes: Vec<&str> = if codes.is_empty() { vec!["0"] } else { codes.split('|').collect() };
        std::fs::write(self.at("block"), text).expect("the block is written");
        let began = Instant::now();
        loop {
            let status = self.run_once();
            let code = status.code().map(|code| code.to_string()).unwrap_or_default();
            if codes.contains(&&*code) {
                return;
            }
            let output = std::fs::read_to_string(self.at("output")).unwrap_or_default();
            let is_late = began.elapsed() > stretched(TIMEOUT);
            assert!(
                !is_late,
                "docs/operate/{place} ends with {status}, not with {codes:?}:\n{text}---\n{output}"
            );
            std::thread::park_timeout(PAUSE_BEFORE_THE_NEXT_TRY);
        }
    }

    fn run_once(&mut self) -> ExitStatus {
        let output = std::fs::File::create(self.at("output")).expect("a file for the output");
        let errors = output.try_clone().expect("a second handle");
        let mut child =
            self.command().stdin(Stdio::null()).stdout(output).stderr(errors).spawn().expect("a shell");
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status;
            }
            if self.at("restart").exists() {
                self.node.kill_kubelet();
                self.node.spawn_kubelet();
                std::fs::remove_file(self.at("restart")).expect("the answer");
            }
            std::thread::park_timeout(PAUSE);
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--uts", "sh", "-eu", "-c", ENTER]).env_clear();
        command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.at("bin").display()));
        command.env("HOME", self.node.path("home")).env("BOOK", self.at(""));
        command.env("BOOK_ROOT", self.node.path("root")).env("BOOK_MANIFESTS", self.node.path("manifests"));
        if let Some(client) = &self.client {
            command.env("KUBECONFIG", &client.kubeconfig);
            command.env("API_SERVER", format!("https://127.0.0.1:{}", client.port));
        }
        command
    }

    /// Removes manifests and drop-ins.
    pub(crate) fn clean(&self) {
        for directory in [self.node.path("manifests"), self.at("etc/kubernetes/kubelet.conf.d")] {
            for name in crate::node::names_in(&directory) {
                std::fs::remove_file(directory.join(name)).expect("removed");
            }
        }
    }
}
