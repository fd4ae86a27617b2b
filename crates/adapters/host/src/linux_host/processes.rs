//! [`Processes`]: programs that the kubelet runs, and processes found in `/proc`.

use std::path::Path;

use async_trait::async_trait;
use model::stats::OpenFiles;
use ports::Processes;
use ports::host::{CommandOutput, ExecTrace, HostResult, ProgramCall, ProgramOutput};

use super::LinuxHost;
use crate::blocking::{Queue, Work, blocking};
use crate::exec_trace::{self, Container};
use crate::{journal, measure, program};

#[async_trait]
impl Processes for LinuxHost {
    async fn journal(&self, arguments: &[String]) -> HostResult<CommandOutput> {
        journal::read(arguments)
    }

    async fn find_exec(&self, container: &str, command: &[String], age: std::time::Duration) -> ExecTrace {
        let command = command.to_vec();
        let find = move |container: Container<'_>| exec_trace::find(container, &command, age);
        self.in_container(container, find).await.unwrap_or_default()
    }

    async fn kill_exec(&self, container: &str, trace: &ExecTrace) {
        let trace = trace.clone();
        let kill = move |container: Container<'_>| exec_trace::end(container, &trace);
        // What could not be killed is found again by the next call of `find_exec`.
        let _ = self.in_container(container, kill).await;
    }

    async fn run(&self, call: &ProgramCall) -> HostResult<ProgramOutput> {
        program::run(call).await
    }

    async fn open_files(&self, pids: Vec<u32>) -> OpenFiles {
        let count = move |proc: &Path| Ok(measure::open_files(proc, &pids));
        self.on(Work::Measurements, Path::new("/proc"), count).await.unwrap_or_default()
    }
}

impl LinuxHost {
    async fn in_container<T: Send + 'static>(
        &self,
        container: &str,
        work: impl FnOnce(Container<'_>) -> T + Send + 'static,
    ) -> HostResult<T> {
        let (id, cgroups) = (container.to_owned(), self.containers.clone());
        let work = move |proc: &Path| Ok(work(Container { id: &id, proc, cgroups: &cgroups }));
        blocking(&Queue::of_owner(Work::Processes, container), Path::new("/proc"), work).await
    }
}
