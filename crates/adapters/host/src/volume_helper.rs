//! Work inside volumes on foreign filesystems, done by a helper process that can be killed.
//!
//! A filesystem that does not answer blocks every thread that touches it, and a blocked thread keeps the process from ending. So
//! every access to a volume on a filesystem that is neither the node's own nor in memory is done by a *volume helper process*:
//! this program, started again for one job, killed at its deadline. Decision 0020 explains why. Owns: how many helpers work on
//! which mount, and those that timed out and have not ended yet.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ports::host::{HostError, HostResult};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking::{Queue, Work, blocking, on_tree};
use crate::foreign_mounts::ForeignMounts;
use crate::job::{self, Job};
use crate::measure::Measurement;
use crate::ownership::Ownership;
use crate::{chain, failed, mounts};

/// The name under which this program is started to do one job.
pub(crate) const NAME: &str = "kubelet-volume-helper";
/// How many helpers may work on one mount at the same time, including those that timed out.
const PER_MOUNT: usize = 4;
/// The maximal output of a volume helper: the longest file that is read in a volume, with a margin.
const MAX_OUTPUT: u64 = 1 << 20;
const MAX_COMPLAINT: u64 = 16 << 10;
/// Exit status of a volume helper whose job failed because a file does not exist; other failures are 1.
const NOT_FOUND: u8 = 2;

/// The helpers by the mount that they work on.
#[derive(Debug, Default)]
pub(crate) struct HelperProcesses {
    mounts: Mutex<BTreeMap<PathBuf, Arc<AtMount>>>,
}

#[derive(Debug)]
struct AtMount {
    slots: Arc<Semaphore>,
    timed_out: Mutex<Vec<(Child, OwnedSemaphorePermit)>>,
}

/// A running volume helper. Dropping it kills the process, which counts until it has exited.
struct RunningProcess {
    child: Option<(Child, OwnedSemaphorePermit)>,
    mount: Arc<AtMount>,
}

/// Where jobs are done.
#[derive(Debug)]
pub(crate) enum Worker {
    /// Always on a thread of this process.
    Thread,
    /// By a volume helper if the volume is not on one of the filesystems that the kubelet itself uses.
    Helper { program: PathBuf, foreign: Arc<ForeignMounts>, helpers: HelperProcesses },
}

impl Worker {
    /// `queue`: where the job waits if it is done on a thread.
    pub(crate) async fn carry_out(&self, queue: &Queue, job: Job) -> HostResult<Vec<u8>> {
        match self {
            Self::Thread => on_thread(queue, job).await,
            Self::Helper { program, foreign, helpers } => {
                let (target, foreign) = (job.accessed_path().to_path_buf(), foreign.clone());
                let find = move |target: &Path| foreign.on_way(target);
                match blocking(&Queue::of(Work::Mounts), &target, find).await? {
                    None => on_thread(queue, job).await,
                    Some(mount) => helpers.carry_out(program, &mount, &job).await,
                }
            }
        }
    }

    /// Unmounts whatever is at or below the path, innermost first. A stuck mount does not delay the others.
    pub(crate) async fn unmount_tree(&self, queue: &Queue, path: &Path) -> HostResult<()> {
        let foreign = match self {
            Self::Thread => None,
            Self::Helper { foreign, .. } => Some(foreign.clone()),
        };
        let (mut stuck, left) =
            blocking(queue, path, move |path| unmount_own(path, foreign.as_deref())).await?;
        for mount_point in left {
            let unmounted = self.carry_out_apart(queue, Job::Unmount { path: mount_point }).await;
            stuck = stuck.or(unmounted.err());
        }
        stuck.map_or(Ok(()), Err)
    }

    /// Always by a volume helper.
    async fn carry_out_apart(&self, queue: &Queue, job: Job) -> HostResult<Vec<u8>> {
        match self {
            Self::Thread => on_thread(queue, job).await,
            Self::Helper { program, helpers, .. } => {
                helpers.carry_out(program, job.accessed_path(), &job).await
            }
        }
    }
}

/// Unmounts what is not foreign. Returns the first failure, and the mounts that are left to a volume helper: foreign ones, and
/// busy ones, because a search of all processes for the holders may be slow.
fn unmount_own(
    path: &Path,
    foreign: Option<&ForeignMounts>,
) -> HostResult<(Option<HostError>, Vec<PathBuf>)> {
    let table = mounts::mount_table()?;
    let is_foreign = foreign.map(|foreign| foreign.among(&table));
    let (mut stuck, mut left) = (None, Vec::new());
    for mount in mounts::below(&table, path)? {
        if is_foreign.as_ref().is_some_and(|is_foreign| is_foreign(mount)) {
            left.push(mount.mount_point.clone());
            continue;
        }
        match mounts::unmount_one(&mount.mount_point) {
            Ok(()) => {}
            Err(error) if mounts::is_busy(&error) => left.push(mount.mount_point.clone()),
            Err(error) => stuck = stuck.or(Some(error)),
        }
    }
    Ok((stuck, left))
}

async fn on_thread(queue: &Queue, job: Job) -> HostResult<Vec<u8>> {
    let target = job.accessed_path().to_path_buf();
    match job {
        Job::Group { path, gid, policy } => {
            on_tree(queue, &target, Ownership::new(path, gid, policy)).await.map(|()| Vec::new())
        }
        Job::Usage { path } => {
            on_tree(queue, &target, Measurement::of_tree(path)).await.map(job::written_usage)
        }
        Job::HostPath { .. }
        | Job::SubPath { .. }
        | Job::Read { .. }
        | Job::Bind { .. }
        | Job::Space { .. }
        | Job::Unmount { .. } => blocking(queue, &target, move |_| job.run()).await,
    }
}

impl HelperProcesses {
    async fn carry_out(&self, program: &Path, mount: &Path, job: &Job) -> HostResult<Vec<u8>> {
        let at_mount = self.at(mount);
        let stuck = || {
            let target = job.accessed_path().display();
            HostError::NotFinished(format!(
                "{target}: the filesystem mounted at {} does not answer",
                mount.display()
            ))
        };
        if at_mount.count_given_up() >= PER_MOUNT {
            return Err(stuck());
        }
        let work = async {
            let slot = at_mount.slots.clone().acquire_owned().await;
            let slot = slot
                .map_err(|_| HostError::NotFinished("all volume helpers of the mount are busy".to_owned()))?;
            let helper = RunningProcess::start(program, job, slot, at_mount.clone())?;
            helper.finish(job).await
        };
        match job.deadline() {
            None => work.await,
            Some(deadline) => within(deadline, work).await.unwrap_or_else(|| Err(stuck())),
        }
    }

    /// Mounts without a running helper are forgotten.
    fn at(&self, mount: &Path) -> Arc<AtMount> {
        let mut mounts = self.mounts.lock();
        mounts.retain(|known, at| known == mount || Arc::strong_count(at) > 1 || at.count_given_up() > 0);
        mounts.entry(mount.to_path_buf()).or_insert_with(|| Arc::new(AtMount::new())).clone()
    }
}

async fn within<T>(deadline: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(deadline, work).await.ok()
}

impl AtMount {
    fn new() -> Self {
        Self { slots: Arc::new(Semaphore::new(PER_MOUNT)), timed_out: Mutex::default() }
    }

    /// Helpers that have ended by now no longer count.
    fn count_given_up(&self) -> usize {
        let mut timed_out = self.timed_out.lock();
        timed_out.retain_mut(|(child, _)| matches!(child.try_wait(), Ok(None)));
        timed_out.len()
    }
}

impl RunningProcess {
    fn start(program: &Path, job: &Job, slot: OwnedSemaphorePermit, mount: Arc<AtMount>) -> HostResult<Self> {
        let mut command = Command::new(program);
        command.arg0(NAME).args(job.to_args()).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(failed("start a volume helper for", job.accessed_path()))?;
        Ok(Self { child: Some((child, slot)), mount })
    }

    async fn finish(mut self, job: &Job) -> HostResult<Vec<u8>> {
        let Some((child, _)) = &mut self.child else { return Ok(Vec::new()) };
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut output, mut complaint) = (Vec::new(), Vec::new());
        let read = async {
            // The exit status decides whether the output counts.
            if let Some(stdout) = stdout {
                let _ = stdout.take(MAX_OUTPUT).read_to_end(&mut output).await;
            }
            if let Some(stderr) = stderr {
                let _ = stderr.take(MAX_COMPLAINT).read_to_end(&mut complaint).await;
            }
        };
        read.await;
        let status =
            child.wait().await.map_err(failed("wait for the volume helper of", job.accessed_path()))?;
        self.child = None;
        let complaint = String::from_utf8_lossy(&complaint).into_owned();
        match status.code() {
            Some(0) => Ok(output),
            Some(code) if code == i32::from(NOT_FOUND) => Err(failed("find", job.accessed_path())(
                std::io::Error::new(std::io::ErrorKind::NotFound, complaint),
            )),
            Some(_) if !complaint.is_empty() => Err(HostError::Invalid(complaint)),
            Some(_) | None => Err(HostError::Invalid(format!(
                "volume helper for {} exited with {status}",
                job.accessed_path().display()
            ))),
        }
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let Some((mut child, slot)) = self.child.take() else { return };
        // It may have ended by itself just now.
        let _ = child.start_kill();
        if matches!(child.try_wait(), Ok(None)) {
            self.mount.timed_out.lock().push((child, slot));
        }
    }
}

/// Does one job if this process was started as a volume helper; `None` otherwise.
#[must_use]
pub fn serve() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    if args.next().as_deref() != Some(OsStr::new(NAME)) {
        return None;
    }
    Some(match do_one(args.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The kubelet reads this; if it has ended, there is no reader.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), chain(&error).as_bytes());
            ExitCode::from(if error.is_not_found() { NOT_FOUND } else { 1 })
        }
    })
}

fn do_one(args: Vec<OsString>) -> HostResult<()> {
    let job = Job::from_args(args)
        .ok_or_else(|| HostError::Invalid("volume helper started without a job".to_owned()))?;
    let output = job.run()?;
    std::io::Write::write_all(&mut std::io::stdout(), &output)
        .map_err(failed("write the result for", job.accessed_path()))
}
