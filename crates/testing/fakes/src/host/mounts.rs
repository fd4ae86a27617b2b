//! The fake as `Mounts`: each step meets its fault, then is done.

use std::path::Path;

use async_trait::async_trait;
use jiff::Timestamp;
use model::payload::{Payload, PayloadFile};
use model::stats::TreeUsage;
use ports::host::{GroupPolicy, HostError, HostPathKind, HostResult};
use ports::{Files, Mounts};

use super::tree::{Mount, Node, Tree};
use super::{FakeHost, HostMethod};

#[async_trait]
impl Mounts for FakeHost {
    async fn read_in_volume(&self, volume: &Path, inside: &str, limit: usize) -> HostResult<Vec<u8>> {
        let content = self.read_file(&volume.join(inside), usize::MAX, false).await?;
        if content.len() > limit {
            return Err(HostError::Invalid(format!("{inside} is longer than {limit} bytes")));
        }
        Ok(content)
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

    async fn ensure_huge_pages(&self, path: &Path, _page_bytes: u64) -> HostResult<()> {
        self.act(HostMethod::EnsureTmpfs, "mount huge pages on", path, |tree| {
            tree.mount(path, Mount::HugePages)
        })
        .await
    }

    async fn bind_volume(&self, source: &Path, target: &Path, _options: &[String]) -> HostResult<()> {
        self.begin(HostMethod::BindVolume, "bind", source).await?;
        self.act(HostMethod::BindSubPath, "bind volume on", target, |tree| {
            if tree.node(source) == Some(&Node::Device) {
                return tree.bind_device(target);
            }
            tree.make_dir(target)?;
            tree.mount(target, Mount::Bind)
        })
        .await
    }

    async fn set_tree_group(&self, path: &Path, _gid: u32, _policy: GroupPolicy) -> HostResult<()> {
        self.begin(HostMethod::SetTreeGroup, "give to a group", path).await
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
                tree.insert(&target, Node::File(file.content.clone()))
            })
        })
        .await?;
        Ok(!is_same)
    }

    async fn is_mount_point(&self, path: &Path) -> HostResult<bool> {
        self.begin(HostMethod::IsMountPoint, "check for a mount on", path).await?;
        Ok(self.shared.tree.lock().mounts.contains_key(path))
    }

    async fn unmount_tree(&self, path: &Path) -> HostResult<()> {
        let is_ignored = self.shared.breakage.lock().ignores_unmounts;
        self.act(HostMethod::UnmountTree, "unmount", path, |tree| {
            if !is_ignored {
                tree.unmount_tree(path);
            }
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

    fn keeps_tmpfs_in_memory(&self) -> bool {
        !self.shared.swap.lock().takes_tmpfs
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
}

fn no_projects(path: &Path) -> HostError {
    HostError::Invalid(format!("{}: the filesystem has no project quotas", path.display()))
}
