//! [`Files`] with the system calls of Linux, on tokio's blocking threads.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use model::plugins::SocketTree;
use model::stats::{FilesystemSpace, TreeUsage};
use ports::Files;
use ports::host::{DirEntry, DirectoryChange, FileMetadata, HostResult, ManifestFile, OpenFile};

use super::LinuxHost;
use crate::atomic::{self, Durability};
use crate::blocking::Work;
use crate::job::{self, Job};
use crate::measure::{self, Measurement};
use crate::removal::Removal;
use crate::{failed, fault, files, manifests, open_file, rewrite, socket_tree, temporary, watch};

#[async_trait]
impl Files for LinuxHost {
    async fn ensure_dir(&self, path: &Path, mode: u32) -> HostResult<()> {
        self.on_file(path, move |path| files::ensure_dir(path, mode)).await
    }

    async fn make_dir(&self, path: &Path, mode: u32) -> HostResult<()> {
        self.on_file(path, move |path| if path.is_dir() { Ok(()) } else { files::ensure_dir(path, mode) })
            .await
    }

    async fn write_file(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        let content = content.to_vec();
        self.on_file(path, move |path| atomic::write(path, &content, mode, Durability::Cached)).await
    }

    async fn rewrite_file(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        let content = content.to_vec();
        self.on_file(path, move |path| rewrite::rewrite_file(path, &content, mode)).await
    }

    async fn write_durably(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        let content = content.to_vec();
        self.on_file(path, move |path| atomic::write(path, &content, mode, Durability::Flushed)).await
    }

    async fn read_file(&self, path: &Path, limit: usize, from_end: bool) -> HostResult<Vec<u8>> {
        self.on_file(path, move |path| files::read_file(path, limit, from_end)).await
    }

    async fn open_file(&self, path: &Path) -> HostResult<Box<dyn OpenFile>> {
        let queue = self.directories.queue(path);
        self.on_file(path, move |path| open_file::open(path, queue)).await
    }

    async fn open_below(&self, root: &Path, inside: &str) -> HostResult<Box<dyn OpenFile>> {
        let inside = inside.to_owned();
        let queue = self.directories.queue(root);
        self.on_file(root, move |root| open_file::open_below(root, &inside, queue)).await
    }

    async fn metadata(&self, path: &Path) -> HostResult<FileMetadata> {
        self.on_file(path, files::metadata).await
    }

    async fn resolve(&self, path: &Path) -> HostResult<PathBuf> {
        self.on_file(path, |path| path.canonicalize().map_err(failed("resolve", path))).await
    }

    async fn list_dir(&self, path: &Path) -> HostResult<Vec<DirEntry>> {
        self.on_file(path, files::list_dir).await
    }

    async fn remove_file(&self, path: &Path) -> HostResult<()> {
        self.on_file(path, files::remove_file).await
    }

    async fn remove_unfinished(&self, dir: &Path) -> HostResult<()> {
        self.on_file(dir, temporary::remove_unfinished).await
    }

    async fn remove_tree(&self, path: &Path) -> HostResult<()> {
        self.on_tree(path, Removal::new(path.to_path_buf())).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> HostResult<()> {
        let to = to.to_path_buf();
        let rename = move |from: &Path| {
            fault::around("rename to", &to, || std::fs::rename(from, &to)).map_err(failed("rename", from))
        };
        self.on_file(from, rename).await
    }

    async fn symlink_durably(&self, target: &Path, link: &Path) -> HostResult<()> {
        let target = target.to_path_buf();
        self.on_file(link, move |link| atomic::link(&target, link, Durability::Flushed)).await
    }

    async fn ensure_symlink(&self, target: &Path, link: &Path) -> HostResult<()> {
        let target = target.to_path_buf();
        self.on_file(link, move |link| atomic::ensure_symlink(&target, link)).await
    }

    async fn set_selinux_label(&self, path: &Path, label: &str) -> HostResult<()> {
        let label = label.to_owned();
        self.on_file(path, move |path| files::set_selinux_label(path, &label)).await
    }

    async fn compress(&self, path: &Path) -> HostResult<()> {
        self.on(Work::Compression, path, files::compress).await
    }

    async fn read_manifests(&self, path: &Path) -> HostResult<Vec<ManifestFile>> {
        self.on(Work::Sources, path, manifests::read_manifests).await
    }

    async fn watch(&self, path: &Path) -> HostResult<BoxStream<'static, DirectoryChange>> {
        watch::watch(path, self.directories.queue_for(Work::Sources, path)).await
    }

    fn watch_sockets(&self, root: &Path) -> HostResult<BoxStream<'static, SocketTree>> {
        socket_tree::watch_sockets(root)
    }

    async fn list_names(&self, path: &Path) -> HostResult<Vec<String>> {
        self.on_file(path, files::list_names).await
    }

    async fn read_each(&self, paths: Vec<PathBuf>) -> Vec<Option<String>> {
        let read = move |_: &Path| Ok(measure::read_each(&paths));
        self.on(Work::Measurements, Path::new("/proc"), read).await.unwrap_or_default()
    }

    async fn directories_below(&self, root: &Path) -> Vec<String> {
        let walk = |root: &Path| Ok(measure::directories_below(root));
        self.on(Work::Measurements, root, walk).await.unwrap_or_default()
    }

    async fn filesystem_space(&self, path: &Path) -> HostResult<FilesystemSpace> {
        let output = self.in_volume(Job::Space { path: path.to_path_buf() }).await?;
        job::space(&output, path)
    }

    async fn files_usage(&self, paths: &[PathBuf]) -> HostResult<TreeUsage> {
        let Some(first) = paths.first() else { return Ok(TreeUsage::default()) };
        self.on_tree(first, Measurement::of_files(paths.to_vec())).await
    }

    async fn filesystem_bytes(&self, path: &Path) -> HostResult<u64> {
        self.on(Work::Measurements, path, files::filesystem_bytes).await
    }

    async fn read_text(&self, path: &Path) -> HostResult<String> {
        self.on_file(path, files::read_text).await
    }
}
