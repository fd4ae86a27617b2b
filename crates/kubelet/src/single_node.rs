//! `--single-node`: the Kubernetes API of this node, which a child process of the kubelet serves (decision 0121).
//!
//! Owns: the start of that process, and its next start when it ends. The process ends with the kubelet, however that ends.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use config::Resolved;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;

use crate::groups;
use crate::start_error::StartError;

/// The first argument of the process.
pub(crate) const COMMAND: &str = "api-server";
/// How long the first start may take: the database is checked, and the port may still belong to a process that ends.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Changes that a watch may be behind; each is kept in memory.
const HISTORY: &str = "250";
/// Its one line has its address.
const MAX_LINE: u64 = 4096;

/// The process, or none that runs.
pub(crate) struct ApiServer {
    arguments: Vec<OsString>,
    running: Option<Running>,
}

struct Running {
    child: Child,
    /// Open as long as the process lives.
    output: BufReader<pipe::Receiver>,
}

/// `None` without `--single-node`. Otherwise the API answers when this returns, or does not although an earlier kubelet has joined it: then
/// the node begins as without its API server, and pods run on.
pub(crate) async fn start(resolved: &Resolved, node_name: &str) -> Result<Option<ApiServer>, StartError> {
    if !resolved.flags.single_node {
        return Ok(None);
    }
    let arguments = arguments(resolved, node_name).map_err(StartError::ApiServer)?;
    let mut server = ApiServer { arguments, running: None };
    let directory = resolved.flags.single_node_dir();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(|error| StartError::ApiServer(format!("make {}: {error}", directory.display())))?;
    match tokio::time::timeout(START_TIMEOUT, server.start_until_it_answers()).await {
        Ok(()) => {}
        Err(_) if Path::new(&resolved.flags.kubeconfig).exists() => {
            tracing::error!(
                "The API server of this node does not start, its own message is above; trying again"
            );
        }
        Err(_) => {
            let text = "the API server of this node does not start, its own message is above".to_owned();
            return Err(StartError::ApiServer(text));
        }
    }
    Ok(Some(server))
}

fn arguments(resolved: &Resolved, node_name: &str) -> Result<Vec<OsString>, String> {
    let flags = &resolved.flags;
    let directory = flags.single_node_dir();
    let parent = std::process::id().to_string();
    let mut arguments: Vec<OsString> = vec![COMMAND.into(), "--dir".into(), directory.clone().into()];
    arguments.extend(["--database".into(), directory.join("objects.redb").into()]);
    arguments.extend(["--encryption-key".into(), flags.single_node_key.clone().into()]);
    arguments.extend(["--local-volumes".into(), directory.join("volumes").into()]);
    arguments.extend(["--listen".into(), flags.single_node_address.clone().into()]);
    arguments.extend(["--port".into(), flags.single_node_port.to_string().into()]);
    arguments.extend(["--node-kubeconfig".into(), format!("{node_name}={}", flags.kubeconfig).into()]);
    arguments.extend(["--admin-kubeconfig".into(), flags.admin_kubeconfig.clone().into()]);
    if let Some(address) = own_address(&resolved.kubelet.address) {
        arguments.extend(["--kubelet-address".into(), address.to_string().into()]);
    }
    if !flags.admin_kubeconfig_group.is_empty() {
        let group = groups::id(&flags.admin_kubeconfig_group, "--admin-kubeconfig-group")?;
        arguments.extend(["--admin-kubeconfig-group".into(), group.to_string().into()]);
    }
    arguments.extend(["--bind-to", node_name, "--history", HISTORY, "--parent", &parent].map(OsString::from));
    arguments.push("--refuse-services".into());
    Ok(arguments)
}

/// Where the API finds this kubelet if that does not listen at the node's address, such as 127.0.0.1.
fn own_address(listen: &str) -> Option<IpAddr> {
    listen.parse().ok().filter(|address: &IpAddr| !address.is_unspecified())
}

impl ApiServer {
    /// Starts the process again whenever it ends, later each time as long as it does not answer.
    pub(crate) async fn keep(mut self) {
        loop {
            if let Some(running) = self.running.take() {
                let status = running.ended().await;
                tracing::error!(status, "The API server of this node has ended; starting it again");
            }
            self.start_until_it_answers().await;
        }
    }

    async fn start_until_it_answers(&mut self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match Running::start(&self.arguments).await {
                Ok(running) => {
                    tracing::info!("The API server of this node answers");
                    self.running = Some(running);
                    return;
                }
                Err(error) => tracing::warn!(err = error, "Failed to start the API server of this node"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Running {
    /// Returns when it accepts requests, which it says by one line.
    async fn start(arguments: &[OsString]) -> Result<Self, String> {
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let output = child.stdout.take().ok_or("it has no output")?;
        let output = pipe::Receiver::from_owned_fd(output.into()).map_err(|error| error.to_string())?;
        let mut running = Self { child, output: BufReader::new(output) };
        let mut line = String::new();
        let read = (&mut running.output).take(MAX_LINE).read_line(&mut line).await;
        match read {
            Ok(length) if length > 0 => Ok(running),
            Ok(_) | Err(_) => Err(running.ended().await),
        }
    }

    /// Waits for its end; says how it ended.
    async fn ended(mut self) -> String {
        let mut rest = [0; 64];
        while matches!(self.output.read(&mut rest).await, Ok(length) if length > 0) {}
        // It has closed its output, which it does when it ends.
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, and whatever it answered is stored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
