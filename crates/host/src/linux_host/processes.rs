//! [`Processes`]: programs that the kubelet runs, and processes found in `/proc`.

use std::path::Path;

use async_trait::async_trait;
use model::stats::OpenFiles;
use ports::Processes;
use ports::host::{CommandOutput, ExecTrace, HostResult, ProgramCall, ProgramOutput};

use super::LinuxHost;
use crate::{blocking, exec_trace, journal, measure, program};

#[async_trait]
impl Processes for LinuxHost {
    async fn journal(&self, arguments: &[String]) -> HostResult<CommandOutput> {
        journal::read(arguments)
    }

    async fn find_exec(&self, container: &str, command: &[String], age: std::time::Duration) -> ExecTrace {
        let (container, command) = (container.to_owned(), command.to_vec());
        let find = move |proc: &Path| Ok(exec_trace::find(proc, &container, &command, age));
        blocking(Path::new("/proc"), find).await.unwrap_or_default()
    }

    async fn kill_exec(&self, container: &str, trace: &ExecTrace) {
        let (container, trace) = (container.to_owned(), trace.clone());
        let kill = move |proc: &Path| {
            exec_trace::end(proc, &container, &trace);
            Ok(())
        };
        // What could not be killed is found again by the next call of `find_exec`.
        let _ = blocking(Path::new("/proc"), kill).await;
    }

    async fn run(&self, call: &ProgramCall) -> HostResult<ProgramOutput> {
        program::run(call).await
    }

    async fn open_files(&self, pids: Vec<u32>) -> OpenFiles {
        blocking(Path::new("/proc"), move |proc| Ok(measure::open_files(proc, &pids)))
            .await
            .unwrap_or_default()
    }
}
