//! The Host port on Linux: mounts, cgroups, procfs, inotify, files and process limits.
//!
//! Owns: [`LinuxHost`], one file per kind of step, [`LinuxCgroups`], and the process-level functions in [`process`].
//!
//! Architecture invariants:
//! - it decides nothing: no retry, no back-off, no policy;
//! - blocking system calls run on tokio's blocking threads, never on its workers;
//! - what a pod may have prepared (its volumes, its logs) is entered by file descriptor, never by a path it could
//!   change under us;
//! - no unsafe code but in `async_inotify`, `projects` and `free_memory`, in functions of a few lines each: rustix wraps every other system
//!   call we need.
#![deny(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests run on real sockets and real time"
    )
)]

pub mod process;

mod addresses;
mod async_inotify;
mod bind;
mod cgroups;
mod dbus;
mod durable;
mod exec_trace;
mod fault;
mod files;
#[cfg(target_env = "gnu")]
mod free_memory;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod holders;
mod host_path;
mod huge_pages;
mod in_volume;
mod job;
mod journal;
mod kernel_log;
mod lock_file;
mod logind;
mod machine;
mod manifests;
mod measure;
mod mounts;
mod open_file;
mod own_process;
mod ownership;
mod payload;
mod program;
mod projects;
mod removal;
mod sub_path;
mod subordinate_ids;
mod systemd;
mod tmpfs;
mod unmount;
mod volume_helper;
mod walk;
mod watch;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use job::Job;
use model::payload::Payload;
use model::stats::{FilesystemSpace, OpenFiles, TreeUsage};
use ports::Host;
use ports::host::{
    CommandOutput, DirEntry, DirectoryChange, ExecTrace, GroupPolicy, HostError, HostPathKind, HostResult,
    MachineInfo, ManifestFile, OpenFile, PathFacts, ProgramCall, ProgramEnd, SubordinateIds,
};
use volume_helper::{HelperProcesses, Worker};

pub use addresses::host_ips;
pub use cgroups::LinuxCgroups;
pub use logind::Logind;
pub use volume_helper::serve as serve_as_volume_helper;

/// The machine this process runs on.
#[derive(Debug)]
pub struct LinuxHost {
    /// Where `/proc`, `/sys` and `/etc` hang; `/` but for tests.
    root: PathBuf,
    machine: OnceLock<MachineInfo>,
    /// Who goes into volumes.
    worker: Worker,
}

impl LinuxHost {
    #[must_use]
    pub fn new() -> Self {
        Self::with_root(PathBuf::from("/"))
    }

    /// Reads what [`Host::machine`] and [`Host::has_apparmor`] tell below `root` instead of `/`. Paths given to the
    /// other methods are taken as they are.
    #[must_use]
    pub fn with_root(root: PathBuf) -> Self {
        Self { root, machine: OnceLock::new(), worker: Worker::Thread }
    }

    /// From now on `program` goes into volumes on filesystems that hold none of these paths; it must begin with
    /// [`serve_as_volume_helper`].
    #[must_use]
    pub fn with_volume_helpers(self, program: PathBuf, own: Vec<PathBuf>) -> Self {
        Self { worker: Worker::Helper { program, own, helpers: HelperProcesses::default() }, ..self }
    }
}

impl Default for LinuxHost {
    fn default() -> Self {
        Self::new()
    }
}

/// Says what we were doing when a system call failed.
fn failed<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> HostError {
    move |error| HostError::Io { what, path: path.to_path_buf(), source: error.into() }
}

/// Runs file work where it may block. A panic inside comes back as an error.
async fn blocking<T, F>(path: &Path, work: F) -> HostResult<T>
where
    T: Send + 'static,
    F: FnOnce(&Path) -> HostResult<T> + Send + 'static,
{
    let owned = path.to_path_buf();
    match tokio::task::spawn_blocking(move || work(&owned)).await {
        Ok(result) => result,
        Err(gone) => Err(failed("finish work on", path)(io::Error::other(gone))),
    }
}

#[async_trait]
impl Host for LinuxHost {
    async fn ensure_dir(&self, path: &Path, mode: u32) -> HostResult<()> {
        blocking(path, move |path| files::ensure_dir(path, mode)).await
    }

    async fn write_file(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        let content = content.to_vec();
        blocking(path, move |path| files::write_file(path, &content, mode)).await
    }

    async fn rewrite_file(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        let content = content.to_vec();
        blocking(path, move |path| files::rewrite_file(path, &content, mode)).await
    }

    async fn write_durably(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        let content = content.to_vec();
        blocking(path, move |path| durable::write(path, &content, mode)).await
    }

    async fn read_file(&self, path: &Path, limit: usize, from_end: bool) -> HostResult<Vec<u8>> {
        blocking(path, move |path| files::read_file(path, limit, from_end)).await
    }

    async fn read_in_volume(&self, volume: &Path, inside: &str, limit: usize) -> HostResult<Vec<u8>> {
        let (volume, inside) = (volume.to_path_buf(), inside.to_owned());
        self.worker.carry_out(Job::Read { volume, inside, limit }).await
    }

    async fn open_file(&self, path: &Path) -> HostResult<Box<dyn OpenFile>> {
        blocking(path, open_file::open).await
    }

    async fn open_below(&self, root: &Path, inside: &str) -> HostResult<Box<dyn OpenFile>> {
        let inside = inside.to_owned();
        blocking(root, move |root| open_file::open_below(root, &inside)).await
    }

    async fn look_at(&self, path: &Path) -> HostResult<PathFacts> {
        blocking(path, files::look_at).await
    }

    async fn journal(&self, arguments: &[String]) -> HostResult<CommandOutput> {
        journal::read(arguments)
    }

    fn kernel_log(&self, path: &Path) -> HostResult<BoxStream<'static, String>> {
        kernel_log::follow(path)
    }

    async fn list_dir(&self, path: &Path) -> HostResult<Vec<DirEntry>> {
        blocking(path, files::list_dir).await
    }

    async fn remove_file(&self, path: &Path) -> HostResult<()> {
        blocking(path, files::remove_file).await
    }

    async fn remove_tree(&self, path: &Path) -> HostResult<()> {
        blocking(path, removal::remove_tree).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> HostResult<()> {
        let to = to.to_path_buf();
        let rename = move |from: &Path| {
            fault::around("rename to", &to, || std::fs::rename(from, &to)).map_err(failed("rename", from))
        };
        blocking(from, rename).await
    }

    async fn link_durably(&self, target: &Path, link: &Path) -> HostResult<()> {
        let target = target.to_path_buf();
        blocking(link, move |link| durable::link(&target, link)).await
    }

    async fn ensure_symlink(&self, target: &Path, link: &Path) -> HostResult<()> {
        let target = target.to_path_buf();
        blocking(link, move |link| files::ensure_symlink(&target, link)).await
    }

    async fn compress(&self, path: &Path) -> HostResult<()> {
        blocking(path, files::compress).await
    }

    async fn read_manifests(&self, path: &Path) -> HostResult<Vec<ManifestFile>> {
        blocking(path, manifests::read_manifests).await
    }

    fn watch(&self, path: &Path) -> HostResult<BoxStream<'static, DirectoryChange>> {
        watch::watch(path)
    }

    async fn ensure_host_path(&self, path: &Path, kind: HostPathKind) -> HostResult<()> {
        self.worker.carry_out(Job::HostPath { path: path.to_path_buf(), kind }).await.map(drop)
    }

    async fn ensure_tmpfs(&self, path: &Path, size_bytes: u64) -> HostResult<()> {
        blocking(path, move |path| tmpfs::ensure_tmpfs(path, size_bytes)).await
    }

    async fn ensure_huge_pages(&self, path: &Path, page_bytes: u64, size_bytes: u64) -> HostResult<()> {
        blocking(path, move |path| huge_pages::ensure(path, page_bytes, size_bytes)).await
    }

    async fn bind_volume(&self, source: &Path, target: &Path, options: &[String]) -> HostResult<()> {
        let (source, target) = (source.to_path_buf(), target.to_path_buf());
        self.worker.carry_out(Job::Bind { source, target, options: options.join(",") }).await.map(drop)
    }

    async fn give_tree_to_group(&self, path: &Path, gid: u32, policy: GroupPolicy) -> HostResult<()> {
        self.worker.carry_out(Job::Group { path: path.to_path_buf(), gid, policy }).await.map(drop)
    }

    async fn list_names(&self, path: &Path) -> HostResult<Vec<String>> {
        blocking(path, files::list_names).await
    }

    async fn give_to_group(&self, path: &Path, gid: u32) -> HostResult<()> {
        blocking(path, move |path| files::give_to_group(path, gid)).await
    }

    async fn write_payload(
        &self,
        volume: &Path,
        payload: &Payload,
        group: Option<u32>,
        now: Timestamp,
    ) -> HostResult<bool> {
        let payload = payload.clone();
        blocking(volume, move |volume| payload::write_payload(volume, &payload, group, now)).await
    }

    async fn is_mount_point(&self, path: &Path) -> HostResult<bool> {
        blocking(path, mounts::is_mount_point).await
    }

    async fn unmount_tree(&self, path: &Path) -> HostResult<()> {
        self.worker.unmount_tree(path).await
    }

    async fn bind_sub_path(&self, volume: &Path, sub_path: &str, target: &Path) -> HostResult<()> {
        let (volume, sub_path, target) = (volume.to_path_buf(), sub_path.to_owned(), target.to_path_buf());
        self.worker.carry_out(Job::SubPath { volume, sub_path, target }).await.map(drop)
    }

    async fn find_exec(&self, container: &str, command: &[String], age: std::time::Duration) -> ExecTrace {
        let (container, command) = (container.to_owned(), command.to_vec());
        let look = move |proc: &Path| Ok(exec_trace::find(proc, &container, &command, age));
        blocking(Path::new("/proc"), look).await.unwrap_or_default()
    }

    async fn end_exec(&self, container: &str, trace: &ExecTrace) {
        let (container, trace) = (container.to_owned(), trace.clone());
        let kill = move |proc: &Path| {
            exec_trace::end(proc, &container, &trace);
            Ok(())
        };
        // What could not be killed shows itself at the next look.
        let _ = blocking(Path::new("/proc"), kill).await;
    }

    async fn run_to_end(&self, call: &ProgramCall) -> HostResult<ProgramEnd> {
        program::run(call).await
    }

    async fn read_each(&self, paths: Vec<PathBuf>) -> Vec<Option<String>> {
        let read = move |_: &Path| Ok(measure::read_each(&paths));
        blocking(Path::new("/proc"), read).await.unwrap_or_default()
    }

    async fn directories_below(&self, root: &Path) -> Vec<String> {
        blocking(root, |root| Ok(measure::directories_below(root))).await.unwrap_or_default()
    }

    async fn open_files(&self, pids: Vec<u32>) -> OpenFiles {
        blocking(Path::new("/proc"), move |proc| Ok(measure::open_files(proc, &pids)))
            .await
            .unwrap_or_default()
    }

    async fn filesystem_space(&self, path: &Path) -> HostResult<FilesystemSpace> {
        let output = self.worker.carry_out(Job::Space { path: path.to_path_buf() }).await?;
        job::space(&output, path)
    }

    async fn tree_usage(&self, path: &Path) -> HostResult<TreeUsage> {
        let output = self.worker.carry_out(Job::Usage { path: path.to_path_buf() }).await?;
        job::usage(&output, path)
    }

    async fn files_usage(&self, paths: &[PathBuf]) -> HostResult<TreeUsage> {
        let Some(first) = paths.first() else { return Ok(TreeUsage::default()) };
        let all = paths.to_vec();
        let measure = move |_: &Path| {
            all.iter().try_fold(TreeUsage::default(), |sum, path| {
                let one = measure::files_usage(path)?;
                Ok(TreeUsage {
                    bytes: sum.bytes.saturating_add(one.bytes),
                    inodes: sum.inodes.saturating_add(one.inodes),
                })
            })
        };
        blocking(first, measure).await
    }

    async fn project_of(&self, path: &Path) -> HostResult<u32> {
        blocking(path, projects::project_of).await
    }

    async fn set_project(&self, path: &Path, project: u32) -> HostResult<()> {
        blocking(path, move |path| projects::set_project(path, project)).await
    }

    async fn project_usage(&self, path: &Path, project: u32) -> HostResult<TreeUsage> {
        blocking(path, move |path| projects::project_usage(path, project)).await
    }

    fn machine(&self) -> MachineInfo {
        self.machine.get_or_init(|| machine::read(&self.root)).clone()
    }

    fn keeps_tmpfs_in_memory(&self) -> bool {
        tmpfs::stays_in_memory()
    }

    async fn filesystem_bytes(&self, path: &Path) -> HostResult<u64> {
        blocking(path, files::filesystem_bytes).await
    }

    fn own_addresses(&self, candidates: &[IpAddr]) -> Vec<IpAddr> {
        addresses::own_addresses(candidates)
    }

    fn default_route_ip(&self, prefers_v6: bool) -> Option<IpAddr> {
        addresses::default_route_ip(prefers_v6)
    }

    async fn subordinate_ids(&self, user: &str) -> HostResult<Option<SubordinateIds>> {
        subordinate_ids::of(user).await
    }

    async fn read_text(&self, path: &Path) -> HostResult<String> {
        blocking(path, files::read_text).await
    }

    fn has_apparmor(&self) -> bool {
        machine::has_apparmor(&self.root)
    }
}

#[cfg(test)]
mod tests;
