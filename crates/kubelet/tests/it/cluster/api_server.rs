//! The API server of one test: `localapi` in a process of its own, on a port and in a directory of its own. It can be stopped and
//! started again, with or without its history.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use serde_json::Value;

use crate::node::{free_port, signal};

pub(crate) struct ApiServer {
    dir: PathBuf,
    port: u16,
    arguments: Vec<String>,
    process: Option<Child>,
}

impl ApiServer {
    /// A server with an empty cluster; its files are below `dir`.
    pub(crate) fn start(dir: PathBuf, arguments: &[&str]) -> Self {
        std::fs::create_dir_all(&dir).expect("a directory for the API server");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut server = Self { dir, port: free_port(), arguments, process: None };
        server.start_again(&[]);
        server
    }

    /// Stops it as a service manager does: it keeps its state in its directory.
    pub(crate) fn stop(&mut self) {
        let mut process = self.process.take().expect("the API server runs");
        signal(process.id(), "TERM");
        let status = process.wait().expect("the API server ends");
        assert!(status.success(), "the API server ended with {status}: {}", self.log());
    }

    /// Starts it on the same port and with the state that the earlier process left.
    pub(crate) fn start_again(&mut self, more: &[&str]) {
        assert!(self.process.is_none(), "the API server runs already");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.join("localapi.log"));
        let mut process = Command::new(localapi())
            .arg("--dir")
            .arg(&self.dir)
            .arg(format!("--port={}", self.port))
            .args(&self.arguments)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("a log file"))
            .spawn()
            .expect("localapi starts");
        let out = process.stdout.take().expect("its standard output is ours");
        self.process = Some(process);
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("it prints its address");
        let output: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("it does not print its address: {line:?}\n{}", self.log()));
        assert!(output["url"].is_string(), "{output}");
    }

    /// Compacts its history: watches that fell behind expire.
    pub(crate) fn compact(&self) {
        signal(self.process.as_ref().expect("the API server runs").id(), "USR1");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("localapi.log")).unwrap_or_default()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The binary next to the kubelet's. Where only the kubelet was built, the sources are newer, or cargo has not listed them, it is
/// built first. `cargo test --workspace` builds it without the list.
fn localapi() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let profile_dir = Path::new(env!("CARGO_BIN_EXE_kubelet")).parent().expect("a directory of binaries");
        let binary = profile_dir.join("localapi");
        if !is_current(&binary) {
            build(profile_dir);
        }
        assert!(binary.is_file(), "{} is missing: cargo build -p localapi", binary.display());
        binary
    })
}

fn build(profile_dir: &Path) {
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--locked", "-p", "localapi", "--bin", "localapi", "--profile", profile]);
    build.arg("--target-dir").arg(profile_dir.parent().expect("a target directory"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_package(name)) {
        build.env_remove(name);
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(status.expect("cargo runs").success(), "cargo build -p localapi fails");
}

/// What `cargo test` says of the package under test. Build scripts that ask for it would run again, and all that depends on them would
/// be built again, now and at the next build without it.
fn is_of_this_package(variable: &OsStr) -> bool {
    let name = variable.as_encoded_bytes();
    name == b"OUT_DIR" || name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

/// Whether no source that cargo lists next to the binary has changed since it was built.
fn is_current(binary: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let (Some(built), Ok(list)) = (changed(binary), std::fs::read_to_string(binary.with_extension("d")))
    else {
        return false;
    };
    let older = |source: &str| changed(Path::new(source)).is_some_and(|at: SystemTime| at <= built);
    let sources = list.split_once(": ").map(|(_, sources)| sources).unwrap_or_default();
    sources.split_whitespace().all(older)
}
