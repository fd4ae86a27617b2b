//! Programs of the node that the kubelet runs, and processes of containers that it finds in `/proc`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use model::stats::OpenFiles;

use super::{HostError, HostResult};

/// What a command writes, piece by piece. An error is the last of them.
pub type CommandOutput = BoxStream<'static, HostResult<Vec<u8>>>;

/// A command that was run in a container, as seen in `/proc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecTrace {
    /// The command itself still runs, not only processes that it started.
    pub is_running: bool,
    /// The sessions of the command and of the processes that it left behind.
    pub sessions: BTreeSet<u32>,
}

/// A program to run on the node, with these variables on top of the kubelet's own environment.
#[derive(Clone)]
pub struct ProgramCall {
    pub path: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Its standard input.
    pub input: Vec<u8>,
    /// It is killed when it takes longer.
    pub deadline: Duration,
}

impl std::fmt::Debug for ProgramCall {
    /// Without variables and input: there may be secrets in them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgramCall")
            .field("path", &self.path)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramOutput {
    /// `None`: a signal ended it.
    pub code: Option<i32>,
    /// Its standard output, at most a mebibyte.
    pub output: Vec<u8>,
    /// The beginning of its standard error.
    pub stderr: String,
}

/// Processes of the node.
#[async_trait]
pub trait Processes: Send + Sync + std::fmt::Debug {
    /// Runs a program until it exits, whatever its exit status. It is killed, with the processes that it started, when the
    /// future is dropped or the deadline passes; the latter is [`HostError::NotFinished`].
    async fn run(&self, call: &ProgramCall) -> HostResult<ProgramOutput>;
    /// As [`Self::run`], for programs that must succeed: returns the standard output. Any other exit status is an
    /// error with the beginning of the standard error.
    async fn run_program(&self, call: &ProgramCall) -> HostResult<Vec<u8>> {
        let end = self.run(call).await?;
        match (end.code, end.stderr.as_str()) {
            (Some(0), _) => Ok(end.output),
            (code, stderr) => {
                let status =
                    code.map_or("ended by a signal".to_owned(), |code| format!("exit status: {code}"));
                let problem = if stderr.is_empty() { status } else { format!("{status}: {stderr}") };
                Err(HostError::Invalid(format!("{}: {problem}", call.path.display())))
            }
        }
    }
    /// Starts `journalctl` with these arguments and returns what it writes to both outputs as it is read; it is killed when
    /// the stream is dropped. Fails on a node without a journal.
    async fn journal(&self, _arguments: &[String]) -> HostResult<CommandOutput> {
        Err(HostError::Invalid("this machine has no journal".to_owned()))
    }
    /// Finds a command that was started in the container no longer ago than `age`, and the processes that it left running.
    async fn find_exec(&self, _container: &str, _command: &[String], _age: Duration) -> ExecTrace {
        ExecTrace::default()
    }
    /// Kills the processes that [`Self::find_exec`] found.
    async fn kill_exec(&self, _container: &str, _trace: &ExecTrace) {}
    /// The files and sockets that these processes have open, for those that still exist.
    async fn open_files(&self, _pids: Vec<u32>) -> OpenFiles {
        OpenFiles::default()
    }
}
