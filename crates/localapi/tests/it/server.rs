//! A localapi process and a kubectl for it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The timeout of any single step, long enough for a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    directory: TempDir,
    arguments: Vec<String>,
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let (child, port) = spawn(directory.path(), &arguments, 0);
        Self { directory, arguments, child, port }
    }

    /// Stops the process as a service manager does and waits until it exits.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::TERM);
        let status = self.child.wait().expect("the server can be waited for");
        assert!(status.success(), "the server ended with {status}");
    }

    /// Restarts on the same port, with the saved state.
    pub(crate) fn restart(&mut self, more: &[&str]) {
        let mut arguments = self.arguments.clone();
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let (child, port) = spawn(self.directory.path(), &arguments, self.port);
        (self.child, self.port) = (child, port);
    }

    /// Makes the server discard its history.
    pub(crate) fn compact(&self) {
        self.signal(Signal::USR1);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("the server can be signalled");
    }

    /// The bytes of memory that only this process has (`RssAnon`).
    pub(crate) fn private_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
        let kibibytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kibibytes * 1024
    }

    /// The processor time that all its threads have used.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a stat");
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().expect("ticks"))
            .sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A file in the server's directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn admin(&self) -> Kubectl {
        self.kubectl("admin.kubeconfig")
    }

    /// kubectl with one of the kubeconfigs in the server's directory.
    pub(crate) fn kubectl(&self, kubeconfig: &str) -> Kubectl {
        Kubectl { kubeconfig: self.file(kubeconfig), home: self.file("home") }
    }

    /// kubectl with a bearer token.
    pub(crate) fn with_token(&self, token: &str) -> Kubectl {
        self.kubectl(&self.with_credentials(&serde_json::json!({"token": token})))
    }

    /// Writes a kubeconfig with these credentials of its user, and returns its name.
    pub(crate) fn with_credentials(&self, user: &serde_json::Value) -> String {
        let config = std::fs::read(self.file("admin.kubeconfig")).expect("a kubeconfig");
        let mut config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
        config["users"][0]["user"] = user.clone();
        let file = tempfile::Builder::new().suffix(".kubeconfig").tempfile_in(self.directory.path());
        let (_, path) = file.and_then(|file| file.keep().map_err(Into::into)).expect("a file");
        std::fs::write(&path, config.to_string()).expect("written");
        path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned()
    }

    /// A kube-rs client with one of the kubeconfigs.
    pub(crate) async fn client(&self, kubeconfig: &str) -> kube::Client {
        kube::Client::try_from(self.config(kubeconfig).await).expect("a client")
    }

    /// A client that returns each answer, also one that asks for another try.
    pub(crate) async fn client_without_retries(&self, kubeconfig: &str) -> kube::Client {
        let mut config = self.config(kubeconfig).await;
        config.default_retry = false;
        kube::Client::try_from(config).expect("a client")
    }

    async fn config(&self, kubeconfig: &str) -> kube::Config {
        let kubeconfig = kube::config::Kubeconfig::read_from(self.file(kubeconfig)).expect("a kubeconfig");
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
            .await
            .expect("a configuration")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been stopped by its test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(directory: &Path, arguments: &[String], port: u16) -> (Child, u16) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_localapi"))
        .arg("--dir")
        .arg(directory)
        .arg(format!("--port={port}"))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("localapi starts");
    let mut line = String::new();
    let out = child.stdout.take().expect("its standard output is piped");
    BufReader::new(out).read_line(&mut line).expect("the line with the address");
    let announced: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
    let port = announced["address"].as_str().and_then(|address| address.rsplit_once(':')?.1.parse().ok());
    (child, port.expect("an address with a port"))
}

/// An unmodified kubectl with its own home directory, so that it does not use caches and settings of the machine's user.
#[derive(Clone)]
pub(crate) struct Kubectl {
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let binary = std::env::var_os("KUBECTL").unwrap_or_else(|| "/usr/bin/kubectl".into());
        let mut command = Command::new(binary);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .args(arguments);
        command
    }

    /// Runs kubectl until it exits, with `input` as its standard input.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl (Debian: kubernetes-client) can be run");
        let mut stdin = child.stdin.take().expect("its standard input is piped");
        // A kubectl that fails early does not read its whole input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("kubectl ends")
    }

    /// The standard output of a successful run.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.feed(arguments, "")
    }

    /// The standard output of a successful run with this input.
    pub(crate) fn feed(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {stdout}{stderr}");
        stdout
    }

    /// The standard error of a failed run.
    pub(crate) fn refused(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(!output.status.success(), "kubectl {arguments:?} should have failed");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// Polls until `poll` returns a value; fails after the timeout.
pub(crate) fn eventually<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(seen) = poll() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
