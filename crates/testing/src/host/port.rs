//! The fake as a `Host`: each step meets its fault, then is done.

use std::io::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use model::payload::{Payload, PayloadFile};
use model::stats::{FilesystemSpace, TreeUsage};
use ports::host::{
    DirEntry, DirectoryChange, FileIdentity, GroupPolicy, Host, HostError, HostPathKind, HostResult,
    MachineInfo, ManifestFile, OpenFile, ProgramCall, ProgramEnd, SubordinateIds,
};
use tokio_stream::wrappers::BroadcastStream;

use super::firewall::Firewalls;
use super::tree::{Mount, Node, Tree};
use super::{Changed, FakeHost, HostMethod};

/// Manifests above this size are not read.
const MANIFEST_LIMIT: usize = 10 << 20;

impl FakeHost {
    /// One operation that changes something.
    async fn act(
        &self,
        method: HostMethod,
        what: &'static str,
        path: &Path,
        step: impl FnOnce(&mut Tree) -> Result<(), Error> + Send,
    ) -> HostResult<()> {
        self.begin(method, what, path).await?;
        self.change(path, step).map_err(|source| HostError::Io { what, path: path.to_owned(), source })?;
        self.end(method, what, path).await
    }
}

impl FakeHost {
    /// `mount -t TYPE ... PLACE`.
    fn mount_as_told(&self, args: &[String]) -> HostResult<()> {
        let (Some(kind), Some(place)) = (args.get(1), args.last()) else { return Ok(()) };
        let place = Path::new(place);
        let mounted = self.change(place, |tree| tree.mount(place, Mount::Filesystem(kind.clone())));
        mounted.map_err(|source| HostError::Io { what: "mount on", path: place.to_owned(), source })
    }
}

#[async_trait]
impl Host for FakeHost {
    async fn ensure_dir(&self, path: &Path, _mode: u32) -> HostResult<()> {
        self.act(HostMethod::EnsureDir, "create directory", path, |tree| tree.make_dir(path)).await
    }

    async fn write_file(&self, path: &Path, content: &[u8], _mode: u32) -> HostResult<()> {
        let node = Node::File(content.to_vec());
        self.act(HostMethod::WriteFile, "write", path, |tree| tree.place(path, node)).await?;
        self.shared.unflushed.lock().insert(path.to_owned());
        Ok(())
    }

    async fn write_durably(&self, path: &Path, content: &[u8], mode: u32) -> HostResult<()> {
        self.write_file(path, content, mode).await?;
        self.shared.unflushed.lock().remove(path);
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

    async fn read_in_volume(&self, volume: &Path, inside: &str, limit: usize) -> HostResult<Vec<u8>> {
        let content = self.read_file(&volume.join(inside), usize::MAX, false).await?;
        if content.len() > limit {
            return Err(HostError::Invalid(format!("{inside} is longer than {limit} bytes")));
        }
        Ok(content)
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

    async fn remove_tree(&self, path: &Path) -> HostResult<()> {
        self.act(HostMethod::RemoveTree, "remove", path, |tree| tree.remove_tree(path)).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> HostResult<()> {
        self.act(HostMethod::Rename, "rename", from, |tree| tree.rename(from, to)).await
    }

    async fn ensure_symlink(&self, target: &Path, link: &Path) -> HostResult<()> {
        let node = Node::Link(target.to_owned());
        self.act(HostMethod::EnsureSymlink, "link", link, |tree| tree.place(link, node)).await
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
            Some(Node::Link(_) | Node::Device) => {
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

    fn watch(&self, path: &Path) -> HostResult<BoxStream<'static, DirectoryChange>> {
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
        Ok(BroadcastStream::new(changes).filter_map(concerns).boxed())
    }

    /// Each content of the file is a record.
    fn kernel_log(&self, path: &Path) -> HostResult<BoxStream<'static, String>> {
        let (host, path) = (self.clone(), path.to_owned());
        Ok(self.watch(&path)?.filter_map(move |_| std::future::ready(host.text(&path))).boxed())
    }

    async fn ensure_host_path(&self, path: &Path, kind: HostPathKind) -> HostResult<()> {
        self.begin(HostMethod::EnsureHostPath, "check host path", path).await?;
        let found = self.shared.tree.lock().node(path).cloned();
        let invalid =
            |wanted: &str| HostError::Invalid(format!("hostPath {}: is not {wanted}", path.display()));
        match (kind, found) {
            (HostPathKind::Unset, _)
            | (HostPathKind::DirectoryOrCreate | HostPathKind::Directory, Some(Node::Dir))
            | (HostPathKind::FileOrCreate | HostPathKind::File, Some(Node::File(_)))
            | (HostPathKind::BlockDevice, Some(Node::Device)) => Ok(()),
            (HostPathKind::DirectoryOrCreate, None) => self.ensure_dir(path, 0o755).await,
            (HostPathKind::FileOrCreate, None) => self.write_file(path, b"", 0o644).await,
            (HostPathKind::DirectoryOrCreate | HostPathKind::Directory, _) => Err(invalid("a directory")),
            (HostPathKind::FileOrCreate | HostPathKind::File, _) => Err(invalid("a file")),
            (HostPathKind::Socket | HostPathKind::CharDevice | HostPathKind::BlockDevice, _) => {
                Err(invalid("a socket or device"))
            }
        }
    }

    async fn ensure_tmpfs(&self, path: &Path, _size_bytes: u64) -> HostResult<()> {
        let mount = |tree: &mut Tree| tree.make_dir(path).and_then(|()| tree.mount(path, Mount::Tmpfs));
        self.act(HostMethod::EnsureTmpfs, "mount tmpfs on", path, mount).await
    }

    async fn ensure_huge_pages(&self, path: &Path, _page_bytes: u64, _size_bytes: u64) -> HostResult<()> {
        self.act(HostMethod::EnsureTmpfs, "mount huge pages on", path, |tree| {
            tree.mount(path, Mount::HugePages)
        })
        .await
    }

    async fn bind_volume(&self, source: &Path, target: &Path, _options: &[String]) -> HostResult<()> {
        self.begin(HostMethod::BindVolume, "bind", source).await?;
        self.act(HostMethod::BindSubPath, "bind volume on", target, |tree| {
            tree.make_dir(target)?;
            tree.mount(target, Mount::Bind)
        })
        .await
    }

    async fn give_tree_to_group(&self, path: &Path, _gid: u32, _policy: GroupPolicy) -> HostResult<()> {
        self.begin(HostMethod::GiveTreeToGroup, "give to a group", path).await
    }

    /// Kept flat, without the symlinks of the real one: what a user of the volume reads is the same.
    async fn write_payload(
        &self,
        volume: &Path,
        payload: &Payload,
        _group: Option<u32>,
        _now: Timestamp,
    ) -> HostResult<bool> {
        let is_same = {
            let tree = self.shared.tree.lock();
            let holds = |(path, file): (&String, &PayloadFile)| {
                tree.content(&volume.join(path)).is_some_and(|content| *content == file.content)
            };
            tree.files_below(volume) == payload.len() && payload.iter().all(holds)
        };
        self.act(HostMethod::WritePayload, "write the files of", volume, |tree| {
            if is_same {
                return Ok(());
            }
            tree.empty_dir(volume);
            payload.iter().try_for_each(|(path, file)| {
                let target = volume.join(path);
                tree.make_dir(target.parent().unwrap_or(volume))?;
                tree.place(&target, Node::File(file.content.clone()))
            })
        })
        .await?;
        Ok(!is_same)
    }

    async fn is_mount_point(&self, path: &Path) -> HostResult<bool> {
        self.begin(HostMethod::IsMountPoint, "look for a mount on", path).await?;
        Ok(self.shared.tree.lock().mounts.contains_key(path))
    }

    async fn unmount_tree(&self, path: &Path) -> HostResult<()> {
        self.act(HostMethod::UnmountTree, "unmount", path, |tree| {
            tree.unmount_tree(path);
            Ok(())
        })
        .await
    }

    async fn bind_sub_path(&self, volume: &Path, sub_path: &str, target: &Path) -> HostResult<()> {
        self.act(HostMethod::BindSubPath, "bind sub path on", target, |tree| {
            let source = volume.join(sub_path);
            if !tree.exists(&source) {
                tree.make_dir(&source)?;
            }
            tree.make_dir(target)?;
            tree.mount(target, Mount::Bind)
        })
        .await
    }

    async fn run_to_end(&self, call: &ProgramCall) -> HostResult<ProgramEnd> {
        self.begin(HostMethod::RunProgram, "run", &call.path).await?;
        self.shared.program_calls.lock().push(call.clone());
        let answer = self.shared.programs.lock().get(&call.path).cloned();
        let output = answer.ok_or_else(|| not_found("run", &call.path))?;
        let output =
            output.map_err(|problem| HostError::Invalid(format!("{}: {problem}", call.path.display())))?;
        if call.path == Path::new("mount") {
            self.mount_as_told(&call.args)?;
        }
        let of_firewall =
            Firewalls::is_one(&call.path).then(|| self.shared.firewalls.lock().run(&call.path, &call.args));
        self.end(HostMethod::RunProgram, "run", &call.path).await?;
        if let Some(end) = of_firewall {
            return Ok(end);
        }
        Ok(ProgramEnd { code: Some(0), output: output.into_bytes(), ..ProgramEnd::default() })
    }

    async fn project_of(&self, path: &Path) -> HostResult<u32> {
        let projects = self.shared.projects.lock();
        let projects = projects.as_ref().ok_or_else(|| no_projects(path))?;
        Ok(projects.get(path).copied().unwrap_or(0))
    }

    async fn set_project(&self, path: &Path, project: u32) -> HostResult<()> {
        let mut projects = self.shared.projects.lock();
        projects.as_mut().ok_or_else(|| no_projects(path))?.insert(path.to_owned(), project);
        Ok(())
    }

    async fn project_usage(&self, path: &Path, project: u32) -> HostResult<TreeUsage> {
        let known = self.shared.projects.lock().clone().ok_or_else(|| no_projects(path))?;
        let mut all = TreeUsage::default();
        for (directory, _) in known.iter().filter(|(_, of)| **of == project) {
            let used = self.tree_usage(directory).await?;
            all.bytes += used.bytes + 1024;
            all.inodes += used.inodes;
        }
        Ok(all)
    }

    fn machine(&self) -> MachineInfo {
        MachineInfo { swap_bytes: self.shared.swap.lock().bytes, ..self.shared.machine.clone() }
    }

    fn keeps_tmpfs_in_memory(&self) -> bool {
        !self.shared.swap.lock().takes_tmpfs
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

    /// Files take what is in them.
    async fn tree_usage(&self, path: &Path) -> HostResult<TreeUsage> {
        let tree = self.shared.tree.lock();
        let mut usage = TreeUsage { bytes: 0, inodes: u64::from(tree.exists(path)) };
        for entry in tree.below(path) {
            usage.inodes += 1;
            usage.bytes += tree.content(entry).map_or(0, |content| content.len() as u64);
        }
        Ok(usage)
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

    fn own_addresses(&self, candidates: &[IpAddr]) -> Vec<IpAddr> {
        let own = self.default_route_ip(false);
        candidates.iter().copied().filter(|ip| Some(*ip) == own).collect()
    }

    fn default_route_ip(&self, _prefers_v6: bool) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, 7]))
    }

    async fn subordinate_ids(&self, _user: &str) -> HostResult<Option<SubordinateIds>> {
        Ok(self.shared.subordinate_ids.lock().clone())
    }

    fn has_apparmor(&self) -> bool {
        false
    }
}

fn no_projects(path: &Path) -> HostError {
    HostError::Invalid(format!("{}: nothing is counted here", path.display()))
}

fn not_found(what: &'static str, path: &Path) -> HostError {
    HostError::Io { what, path: path.to_owned(), source: std::io::ErrorKind::NotFound.into() }
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
