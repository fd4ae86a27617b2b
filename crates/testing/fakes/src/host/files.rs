//! The fake as `Files`: each step meets its fault, then is done.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use model::plugins::SocketTree;
use model::stats::{FilesystemSpace, TreeUsage};
use ports::Files;
use ports::host::{DirEntry, DirectoryChange, FileIdentity, HostError, HostResult, ManifestFile, OpenFile};
use tokio_stream::wrappers::BroadcastStream;

use super::port::not_found;
use super::tree::Node;
use super::{Changed, FakeHost, HostMethod};

/// Manifests above this size are not read.
const MANIFEST_LIMIT: usize = 10 << 20;

#[async_trait]
impl Files for FakeHost {
    async fn ensure_dir(&self, path: &Path, _mode: u32) -> HostResult<()> {
        self.act(HostMethod::EnsureDir, "create directory", path, |tree| tree.make_dir(path)).await
    }

    async fn write_file(&self, path: &Path, content: &[u8], _mode: u32) -> HostResult<()> {
        let node = Node::File(content.to_vec());
        self.act(HostMethod::WriteFile, "write", path, |tree| tree.insert(path, node)).await?;
        self.shared.unflushed.lock().insert(path.to_owned());
        Ok(())
    }

    async fn write_durably(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        self.write_file(path, content, mode).await?;
        if !self.shared.breakage.lock().ignores_flushes {
            self.shared.unflushed.lock().remove(path);
        }
        Ok(())
    }

    async fn read_file(&self, path: &Path, limit: usize, from_end: bool) -> HostResult<Vec<u8>> {
        self.begin(HostMethod::ReadFile, "read", path).await?;
        let tree = self.shared.tree.lock();
        let content = tree.content(path).ok_or_else(|| not_found("read", path))?;
        let length = content.len().min(limit);
        let part = if from_end { &content[content.len() - length..] } else { &content[..length] };
        Ok(part.to_vec())
    }

    async fn open_file(&self, path: &Path) -> HostResult<Box<dyn OpenFile>> {
        self.begin(HostMethod::ReadFile, "open", path).await?;
        if self.shared.tree.lock().content(path).is_none() {
            return Err(not_found("open", path));
        }
        Ok(Box::new(FakeFile { host: self.clone(), path: path.to_owned() }))
    }

    async fn list_dir(&self, path: &Path) -> HostResult<Vec<DirEntry>> {
        self.begin(HostMethod::ListDir, "list", path).await?;
        Ok(self.shared.tree.lock().entries(path))
    }

    async fn remove_file(&self, path: &Path) -> HostResult<()> {
        self.act(HostMethod::RemoveFile, "remove", path, |tree| tree.remove_file(path)).await
    }

    async fn remove_unfinished(&self, dir: &Path) -> HostResult<()> {
        let mut tree = self.shared.tree.lock();
        let is_unfinished =
            |entry: &DirEntry| entry.name.starts_with(".kubelet-") && entry.name.ends_with(".tmp");
        for entry in tree.entries(dir).into_iter().filter(is_unfinished) {
            // It is a file, or stays.
            let _ = tree.remove_file(&dir.join(entry.name));
        }
        Ok(())
    }

    async fn remove_tree(&self, path: &Path) -> HostResult<()> {
        self.act(HostMethod::RemoveTree, "remove", path, |tree| tree.remove_tree(path)).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> HostResult<()> {
        self.act(HostMethod::Rename, "rename", from, |tree| tree.rename(from, to)).await
    }

    async fn ensure_symlink(&self, target: &Path, link: &Path) -> HostResult<()> {
        let node = Node::Link(target.to_owned());
        self.act(HostMethod::EnsureSymlink, "link", link, |tree| tree.insert(link, node)).await
    }

    async fn set_selinux_label(&self, path: &Path, label: &str) -> HostResult<()> {
        self.shared.selinux_labels.lock().insert(path.to_owned(), label.to_owned());
        Ok(())
    }

    async fn compress(&self, path: &Path) -> HostResult<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".gz");
        self.act(HostMethod::Compress, "compress", path, |tree| tree.rename(path, Path::new(&name))).await
    }

    async fn read_manifests(&self, path: &Path) -> HostResult<Vec<ManifestFile>> {
        self.begin(HostMethod::ReadManifests, "read manifests", path).await?;
        let tree = self.shared.tree.lock();
        match tree.node(path) {
            None => Err(not_found("read manifests", path)),
            Some(Node::File(content)) => {
                Ok(vec![ManifestFile { path: path.to_owned(), content: Ok(content.clone()) }])
            }
            Some(Node::Link(_) | Node::Device | Node::Socket(_)) => {
                Err(HostError::Invalid(format!("{} is a link or a device", path.display())))
            }
            Some(Node::Dir) => {
                let plain = |e: &DirEntry| !e.is_dir && !e.name.starts_with('.');
                let files = tree.entries(path).into_iter().filter(plain).filter_map(|entry| {
                    let path = path.join(entry.name);
                    let content = tree.content(&path).filter(|content| content.len() <= MANIFEST_LIMIT)?;
                    Some(ManifestFile { path, content: Ok(content.clone()) })
                });
                Ok(files.collect())
            }
        }
    }

    async fn watch(&self, path: &Path) -> HostResult<BoxStream<'static, DirectoryChange>> {
        Ok(self.changes_of(path))
    }

    fn watch_sockets(&self, root: &Path) -> HostResult<BoxStream<'static, SocketTree>> {
        let (changes, host, root) = (self.shared.changes.subscribe(), self.clone(), root.to_owned());
        let at_first = host.shared.tree.lock().sockets(&root);
        let after_change = move |change: Result<Changed, _>| {
            // An error means that changes were missed; any of them may have been in this directory.
            let changed = change.ok();
            let is_elsewhere = changed.as_ref().is_some_and(|changed| !changed.path.starts_with(&root));
            let removed = changed.filter(|changed| changed.is_removed).map(|changed| changed.path);
            let sockets = || host.shared.tree.lock().sockets(&root);
            let seen =
                (!is_elsewhere).then(|| SocketTree { removed: removed.into_iter().collect(), ..sockets() });
            std::future::ready(seen)
        };
        let later = BroadcastStream::new(changes).filter_map(after_change);
        Ok(stream::once(std::future::ready(at_first)).chain(later).boxed())
    }

    async fn resolve(&self, path: &Path) -> HostResult<PathBuf> {
        let tree = self.shared.tree.lock();
        let mut resolved = path.to_owned();
        while let Some(Node::Link(target)) = tree.node(&resolved) {
            resolved = target.clone();
        }
        if tree.exists(&resolved) { Ok(resolved) } else { Err(not_found("resolve", path)) }
    }

    async fn read_text(&self, path: &Path) -> HostResult<String> {
        self.begin(HostMethod::ReadText, "read", path).await?;
        self.text(path).ok_or_else(|| not_found("read", path))
    }

    async fn directories_below(&self, root: &Path) -> Vec<String> {
        let tree = self.shared.tree.lock();
        let (mut found, mut ahead) = (Vec::new(), vec![String::new()]);
        while let Some(path) = ahead.pop() {
            let directories = tree.entries(&root.join(path.trim_start_matches('/'))).into_iter();
            for entry in directories.filter(|entry| entry.is_dir) {
                found.push(format!("{path}/{}", entry.name));
                ahead.push(format!("{path}/{}", entry.name));
            }
        }
        found
    }

    async fn filesystem_bytes(&self, path: &Path) -> HostResult<u64> {
        Ok(self.filesystem_space(path).await?.capacity_bytes)
    }

    async fn filesystem_space(&self, path: &Path) -> HostResult<FilesystemSpace> {
        let spaces = self.shared.spaces.lock();
        let innermost = path.ancestors().find_map(|ancestor| spaces.get(ancestor));
        innermost.copied().ok_or_else(|| not_found("measure the filesystem of", path))
    }

    async fn files_usage(&self, paths: &[PathBuf]) -> HostResult<TreeUsage> {
        let tree = self.shared.tree.lock();
        let mut usage = TreeUsage::default();
        for path in paths {
            for entry in std::iter::once(path).chain(tree.below(path)) {
                let Some(content) = tree.content(entry) else { continue };
                usage.bytes += content.len() as u64;
                usage.inodes += 1;
            }
        }
        Ok(usage)
    }
}

/// A file by its name: here a name never changes its file while a reader has it open.
#[derive(Debug)]
struct FakeFile {
    host: FakeHost,
    path: PathBuf,
}

impl FakeFile {
    fn content(&self) -> HostResult<Vec<u8>> {
        let tree = self.host.shared.tree.lock();
        tree.content(&self.path).cloned().ok_or_else(|| not_found("read", &self.path))
    }
}

#[async_trait]
impl OpenFile for FakeFile {
    fn identity(&self) -> FileIdentity {
        FileIdentity { device: 0, inode: 0 }
    }

    async fn size_bytes(&self) -> HostResult<u64> {
        Ok(self.content()?.len() as u64)
    }

    async fn read_at(&self, offset: u64, limit: usize) -> HostResult<Vec<u8>> {
        let content = self.content()?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        Ok(content[from..].iter().take(limit).copied().collect())
    }
}

impl FakeHost {
    /// Changes of the file or the directory.
    pub(super) fn changes_of(&self, path: &Path) -> BoxStream<'static, DirectoryChange> {
        let (changes, watched) = (self.shared.changes.subscribe(), path.to_owned());
        let concerns = move |change: Result<Changed, _>| {
            // An error means that changes were missed; any of them may have been in this directory.
            let is_here = |path: &Path| path == watched || path.parent() == Some(&*watched);
            let seen = match change {
                Err(_) => Some(DirectoryChange::default()),
                Ok(changed) if is_here(&changed.path) => {
                    let removed = Some(changed.path).filter(|_| changed.is_removed);
                    Some(DirectoryChange { removed: removed.into_iter().collect() })
                }
                Ok(_) => None,
            };
            std::future::ready(seen)
        };
        BroadcastStream::new(changes).filter_map(concerns).boxed()
    }
}
