//! Watches the sockets below a directory: one inotify instance for all directories, which are walked again after each change.
//!
//! A directory is watched before it is read, so that nothing is missed in between. Depth, directories and sockets are bounded.
//! Entries that start with a dot are ignored, and so is everything that is no socket; links to directories are not followed.

use std::collections::{BTreeSet, HashMap};
use std::fs::{DirEntry, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use model::plugins::{SocketIdentity, SocketTree};
use ports::host::HostResult;

use crate::async_inotify::read_burst;
use crate::blocking::{Queue, Work, blocking};
use crate::failed;

const MAX_DEPTH: usize = 16;
const MAX_DIRECTORIES: usize = 256;
const MAX_SOCKETS: usize = 256;

/// Not modification of files: a socket is created in one step.
const INTERESTING: WatchMask = WatchMask::CREATE
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::DELETE)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF);

struct TreeWatch {
    root: PathBuf,
    inotify: Inotify,
    directories: HashMap<WatchDescriptor, PathBuf>,
    /// What was last reported; `None` at first.
    last: Option<SocketTree>,
}

/// Yields the sockets at once, and again after each change. Ends when the root directory is gone or cannot be watched.
pub(crate) fn watch_sockets(root: &Path) -> HostResult<BoxStream<'static, SocketTree>> {
    let inotify = Inotify::init().map_err(failed("watch", root))?;
    let watch = TreeWatch { root: root.to_path_buf(), inotify, directories: HashMap::new(), last: None };
    Ok(stream::unfold(Some(watch), |watch| async move {
        let watch = watch?;
        let root = watch.root.clone();
        match next_tree(watch).await {
            Ok((tree, watch)) => Some((tree, Some(watch))),
            Err(error) => {
                tracing::warn!(path = %root.display(), err = %error, "Lost the watch for sockets");
                None
            }
        }
    })
    .boxed())
}

/// Waits for the next change. Cancel safe in the stream above, which keeps the pending call.
async fn next_tree(mut watch: TreeWatch) -> io::Result<(SocketTree, TreeWatch)> {
    let mut removed = BTreeSet::new();
    loop {
        if watch.last.is_some() {
            watch = next_burst(watch, &mut removed).await?;
        }
        let root = watch.root.clone();
        let queue = Queue::of_owner(Work::Sources, &root.to_string_lossy());
        let walk = move |_: &Path| {
            let tree = watch.walk();
            Ok((tree, watch))
        };
        let (tree, walked) = blocking(&queue, &root, walk).await.map_err(io::Error::other)?;
        watch = walked;
        let mut tree = tree?;
        let is_new = watch.last.as_ref().is_none_or(|last| {
            *last != tree || tree.sockets.keys().any(|path| path.ancestors().any(|at| removed.contains(at)))
        });
        if is_new {
            watch.last = Some(tree.clone());
            tree.removed = removed;
            return Ok((tree, watch));
        }
        removed.clear();
    }
}

/// Waits for events and reads all of them.
async fn next_burst(watch: TreeWatch, removed: &mut BTreeSet<PathBuf>) -> io::Result<TreeWatch> {
    let TreeWatch { root, inotify, directories, last } = watch;
    let inotify = read_burst(inotify, |event| {
        let directory = directories.get(&event.wd);
        let lost = EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT;
        if event.mask.intersects(lost) && directory == Some(&root) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        if event.mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM) {
            removed.extend(directory.zip(event.name).map(|(directory, name)| directory.join(name)));
        }
        Ok(())
    })
    .await?;
    Ok(TreeWatch { root, inotify, directories, last })
}

impl TreeWatch {
    fn walk(&mut self) -> io::Result<SocketTree> {
        let (mut tree, mut watched) = (SocketTree::default(), HashMap::new());
        let mut ahead = vec![(self.root.clone(), 0)];
        while let Some((directory, depth)) = ahead.pop() {
            let found = match self.read(&directory, &mut watched) {
                Ok(found) => found,
                Err(error) if depth == 0 => return Err(error),
                // Removed meanwhile, or not ours to read: its removal is an event of the directory above it.
                Err(_) => continue,
            };
            for path in found.directories.into_iter().rev() {
                if depth < MAX_DEPTH && watched.len() + ahead.len() < MAX_DIRECTORIES {
                    ahead.push((path, depth + 1));
                } else {
                    tree.left_out += 1;
                }
            }
            for (path, identity) in found.sockets {
                if tree.sockets.len() < MAX_SOCKETS {
                    tree.sockets.insert(path, identity);
                } else {
                    tree.left_out += 1;
                }
            }
        }
        for (watch, _) in std::mem::replace(&mut self.directories, watched) {
            if !self.directories.contains_key(&watch) {
                // An error means that its directory is gone.
                let _ = self.inotify.watches().remove(watch);
            }
        }
        Ok(tree)
    }

    /// Watches a directory, then reads it.
    fn read(&self, directory: &Path, watched: &mut HashMap<WatchDescriptor, PathBuf>) -> io::Result<Entries> {
        let mask = INTERESTING | WatchMask::ONLYDIR;
        // The root may be a link to another disk.
        let mask = if directory == self.root { mask } else { mask | WatchMask::DONT_FOLLOW };
        let watch = self.inotify.watches().add(directory, mask)?;
        watched.insert(watch, directory.to_path_buf());
        let mut entries = Entries::default();
        for entry in std::fs::read_dir(directory)? {
            // An entry that is removed meanwhile counts as missing.
            let Ok(entry) = entry else { continue };
            entries.add(&entry);
        }
        entries.directories.sort();
        entries.sockets.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }
}

/// What counts in one directory.
#[derive(Default)]
struct Entries {
    directories: Vec<PathBuf>,
    sockets: Vec<(PathBuf, SocketIdentity)>,
}

impl Entries {
    fn add(&mut self, entry: &DirEntry) {
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let Ok(kind) = entry.file_type() else { return };
        if is_hidden {
            return;
        }
        if kind.is_dir() {
            self.directories.push(entry.path());
        } else if kind.is_socket() || kind.is_symlink() {
            let metadata = std::fs::metadata(entry.path());
            let socket = metadata.ok().filter(|metadata| metadata.file_type().is_socket());
            self.sockets.extend(socket.map(|metadata| (entry.path(), identity(&metadata))));
        }
    }
}

fn identity(metadata: &Metadata) -> SocketIdentity {
    SocketIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        // Programs do not write to the file of a socket, so this is the time of its creation.
        created: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The names of the sockets, relative to the root.
    async fn next(trees: &mut BoxStream<'static, SocketTree>, root: &Path) -> Vec<String> {
        let tree = trees.next().await.expect("a tree");
        let names = tree.sockets.keys().map(|path| path.strip_prefix(root).unwrap().display().to_string());
        names.collect()
    }

    fn bind(root: &Path, name: &str) {
        drop(UnixListener::bind(root.join(name)).unwrap());
    }

    #[tokio::test]
    async fn sockets_that_exist_and_that_appear_in_nested_directories_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        bind(root, "a/b/1.sock");
        bind(root, "2.sock");
        let mut trees = watch_sockets(root).unwrap();
        assert_eq!(next(&mut trees, root).await, ["2.sock", "a/b/1.sock"]);
        bind(root, "a/3.sock");
        assert_eq!(next(&mut trees, root).await, ["2.sock", "a/3.sock", "a/b/1.sock"]);
        std::fs::create_dir_all(root.join("c/d/e")).unwrap();
        bind(root, "c/d/e/4.sock");
        assert_eq!(next(&mut trees, root).await, ["2.sock", "a/3.sock", "a/b/1.sock", "c/d/e/4.sock"]);
        std::fs::remove_dir_all(root.join("a")).unwrap();
        let mut left = next(&mut trees, root).await;
        while left.len() > 2 {
            left = next(&mut trees, root).await;
        }
        assert_eq!(left, ["2.sock", "c/d/e/4.sock"]);
    }

    #[tokio::test]
    async fn dot_files_other_files_and_links_to_directories_are_ignored() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = dir.path();
        bind(outside.path(), "far.sock");
        bind(root, ".hidden.sock");
        std::fs::create_dir(root.join(".hidden")).unwrap();
        bind(root, ".hidden/1.sock");
        std::fs::write(root.join("file.sock"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("directory")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("far.sock"), root.join("link.sock")).unwrap();
        let mut trees = watch_sockets(root).unwrap();
        assert_eq!(next(&mut trees, root).await, ["link.sock"]);
    }

    #[tokio::test]
    async fn only_changes_of_sockets_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        bind(root, "1.sock");
        let mut trees = watch_sockets(root).unwrap();
        assert_eq!(next(&mut trees, root).await, ["1.sock"]);
        std::fs::write(root.join("file"), "").unwrap();
        std::fs::set_permissions(root.join("1.sock"), PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::remove_file(root.join("file")).unwrap();
        let pending = tokio::time::timeout(std::time::Duration::from_millis(100), trees.next()).await;
        assert!(pending.is_err(), "{pending:?}");
        bind(root, "2.sock");
        assert_eq!(next(&mut trees, root).await, ["1.sock", "2.sock"]);
    }

    #[tokio::test]
    async fn replaced_socket_has_another_identity_or_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let socket = root.join("1.sock");
        bind(root, "1.sock");
        let mut trees = watch_sockets(root).unwrap();
        let first = trees.next().await.unwrap();
        bind(root, ".new.sock");
        std::fs::rename(root.join(".new.sock"), &socket).unwrap();
        let second = trees.next().await.unwrap();
        assert_ne!(first.sockets[&socket], second.sockets[&socket], "renamed over the first");
        std::fs::remove_file(&socket).unwrap();
        bind(root, "1.sock");
        let third = trees.next().await.unwrap();
        assert!(third.removed.contains(&socket), "{third:?}");
    }

    #[tokio::test]
    async fn watch_ends_when_the_directory_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("plugins_registry");
        assert_eq!(watch_sockets(&root).unwrap().next().await, None);
        std::fs::create_dir(&root).unwrap();
        let mut trees = watch_sockets(&root).unwrap();
        assert_eq!(trees.next().await, Some(SocketTree::default()));
        std::fs::remove_dir(&root).unwrap();
        assert_eq!(trees.next().await, None);
    }

    #[tokio::test]
    async fn sockets_and_directories_beyond_the_limits_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for number in 0..MAX_SOCKETS + 3 {
            bind(root, &format!("{number:03}.sock"));
        }
        for number in 0..MAX_DIRECTORIES + 5 {
            std::fs::create_dir(root.join(format!("{number:03}"))).unwrap();
        }
        let tree = watch_sockets(root).unwrap().next().await.unwrap();
        assert_eq!(tree.sockets.len(), MAX_SOCKETS);
        // The root is one of the directories.
        assert_eq!(tree.left_out, 3 + 6);
    }
}
