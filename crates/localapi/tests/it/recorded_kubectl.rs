//! Runs the kubectl commands that were recorded against a real kube-apiserver 1.36.2 with its controllers (`tests/recorded/kubectl`), in
//! order. The exit code, the output and the error output of each must be the recorded ones, but for those in `different.tsv`, which has what
//! the command prints here and the reason.
//!
//! The server has the flags of `kubelet --single-node` but `--bind-to`: the recording has no scheduler, so its pods have no node.

mod differences;
mod normal;
mod page;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::server::Server;
use differences::Difference;

/// The minor version of the kubectl of the recording: other versions print other texts.
const MINOR: &str = "36";
/// The namespace of all commands.
const NAMESPACE: &str = "day";
/// The files of the recording, in the order of a day.
const TOPICS: &[&str] =
    &["about", "apply", "change", "create", "read", "access", "node", "workloads", "delete"];

/// A command line and what it printed.
#[derive(Debug, Deserialize)]
struct Entry {
    command: String,
    #[serde(flatten)]
    answer: Answer,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Answer {
    /// Without what differs between two runs.
    fn normal(&self) -> Self {
        Self { code: self.code, out: normal::text(&self.out), err: normal::text(&self.err) }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "exit code {}\n{}{}", self.code, self.out, self.err)
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/kubectl")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a table of four columns, without its comments. `columns` names them where a line has others.
fn rows_of_four(file: &str, columns: &str) -> Vec<[String; 4]> {
    let text = read(&directory().join(file));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &str| {
        let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
        cells.try_into().unwrap_or_else(|_| panic!("a line of {file} has {columns}: {line:?}"))
    };
    lines.map(row).collect()
}

fn recorded(topic: &str) -> Vec<Entry> {
    let text = read(&directory().join(format!("{topic}.jsonl")));
    text.lines().map(|line| serde_json::from_str(line).expect("an entry")).collect()
}

/// A shell in a directory with the files of the recording, and with kubectl for a server.
struct Shell {
    directory: TempDir,
    server: Server,
}

impl Shell {
    /// `None` with another version of kubectl.
    fn start() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).display().to_string();
        let server = Server::start(&[
            "--refuse-services",
            &format!("--local-volumes={}", path("volumes")),
            &format!("--database={}", path("objects.redb")),
            &format!("--encryption-key={}", path("key")),
        ]);
        let shell = Self { directory, server };
        let (work, program) = (shell.work(), shell.directory.path().join("bin"));
        std::fs::create_dir(&program).expect("a directory");
        let kubectl = std::env::var_os("KUBECTL").unwrap_or_else(|| "/usr/bin/kubectl".into());
        symlink(kubectl, program.join("kubectl")).expect("a link");
        select_namespace(&shell.server, &shell.kubeconfig());
        let copied = Command::new("cp").arg("-r").arg(directory_of_files()).arg(&work).status();
        assert!(copied.expect("cp runs").success());
        let version = shell.run("kubectl version --client -o json").out;
        let version: Value = serde_json::from_str(&version).expect("a version");
        let is_same = version["clientVersion"]["minor"] == MINOR;
        if !is_same {
            fixtures::skip(&format!(
                "KUBECTL must be one of 1.{MINOR}: scripts/runtimes --only-unpack forky"
            ));
        }
        is_same.then_some(shell)
    }

    fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    fn run(&self, command: &str) -> Answer {
        let work = self.work();
        let path = format!("{}:/usr/bin:/bin", self.directory.path().join("bin").display());
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(&work)
            .env_clear()
            .env("PATH", path)
            .env("KUBECONFIG", self.kubeconfig())
            .envs([("HOME", &work), ("TMPDIR", &work)])
            .env("TERM", "dumb")
            .stdin(Stdio::null())
            .output()
            .expect("sh runs");
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(&work.display().to_string(), normal::DIRECTORY)
        };
        Answer {
            code: output.status.code().expect("an exit code"),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

/// Creates the namespace of the recording, and a kubeconfig that selects it.
fn select_namespace(server: &Server, kubeconfig: &Path) {
    server.admin().ok(&["create", "namespace", NAMESPACE]);
    let mut config: Value =
        serde_json::from_str(&read(&server.file("admin.kubeconfig"))).expect("a kubeconfig");
    config["contexts"][0]["context"]["namespace"] = NAMESPACE.into();
    std::fs::write(kubeconfig, config.to_string()).expect("a kubeconfig");
}

fn directory_of_files() -> PathBuf {
    directory().join("files")
}

fn replay(topic: &str) {
    let Some(shell) = Shell::start() else { return };
    let known = differences::of(topic);
    let mut unused: BTreeMap<&str, &Difference> =
        known.iter().map(|difference| (difference.command.as_str(), difference)).collect();
    let mut report = String::new();
    for Entry { command, answer } in recorded(topic) {
        let (wanted, found) = (answer.normal(), shell.run(&command).normal());
        match (wanted == found, unused.remove(command.as_str())) {
            (true, None) => {}
            (false, Some(difference)) if found.to_string().contains(&difference.shown) => {}
            (true, Some(_)) => {
                let _ = writeln!(report, "## {command}\nequal: remove its line from different.tsv\n");
            }
            (false, difference) => {
                let shown = difference.map_or("", |difference| &difference.shown);
                let _ =
                    writeln!(report, "## {command}\n-- recorded: {wanted}\n-- here: {found}\n-- {shown}\n");
            }
        }
    }
    for command in unused.keys() {
        let _ = writeln!(report, "## {command}\nnot recorded: remove its line from different.tsv\n");
    }
    assert!(report.is_empty(), "{topic}:\n{report}");
}

#[test]
fn kubectl_shows_the_api_and_its_documentation_as_recorded() {
    replay("about");
}

#[test]
fn kubectl_apply_and_diff_answer_as_recorded() {
    replay("apply");
}

#[test]
fn kubectl_edit_label_patch_replace_set_and_wait_answer_as_recorded() {
    replay("change");
}

#[test]
fn kubectl_create_run_and_expose_answer_as_recorded() {
    replay("create");
}

#[test]
fn kubectl_get_describe_events_and_top_answer_as_recorded() {
    replay("read");
}

#[test]
fn kubectl_auth_and_certificate_answer_as_recorded() {
    replay("access");
}

#[test]
fn kubectl_cordon_taint_drain_and_streams_without_a_kubelet_answer_as_recorded() {
    replay("node");
}

#[test]
fn kubectl_rollout_scale_and_autoscale_answer_as_recorded() {
    replay("workloads");
}

#[test]
fn kubectl_delete_answers_as_recorded() {
    replay("delete");
}
