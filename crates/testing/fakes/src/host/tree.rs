//! The files and mounts of the fake machine. Synchronous; paths are absolute and free of `..`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use model::plugins::{SocketIdentity, SocketTree};
use ports::host::DirEntry;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(Vec<u8>),
    Link(PathBuf),
    Device,
    /// With its inode.
    Socket(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mount {
    Tmpfs,
    HugePages,
    Bind,
    /// By its type.
    Filesystem(String),
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tmpfs => "tmpfs",
            Self::HugePages => "hugetlbfs",
            Self::Bind => "bind",
            Self::Filesystem(kind) => kind,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
    pub(super) mounts: BTreeMap<PathBuf, Mount>,
    /// The inode of the newest socket.
    last_inode: u64,
}

impl Tree {
    pub(super) fn node(&self, path: &Path) -> Option<&Node> {
        self.nodes.get(path)
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        self.nodes.contains_key(path)
    }

    /// Follows links.
    pub(super) fn content(&self, path: &Path) -> Option<&Vec<u8>> {
        match self.nodes.get(path)? {
            Node::File(content) => Some(content),
            Node::Link(target) => match self.nodes.get(target)? {
                Node::File(content) => Some(content),
                Node::Dir | Node::Link(_) | Node::Device | Node::Socket(_) => None,
            },
            Node::Dir | Node::Device | Node::Socket(_) => None,
        }
    }

    /// Strictly below.
    pub(super) fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        self.nodes.keys().filter(move |key| key.starts_with(path) && *key != path)
    }

    /// Creates the directory and its parents.
    pub(super) fn make_dir(&mut self, path: &Path) -> Result<(), Error> {
        for ancestor in path.ancestors() {
            match self.nodes.get(ancestor) {
                Some(Node::File(_) | Node::Link(_) | Node::Device | Node::Socket(_)) => {
                    return Err(ErrorKind::NotADirectory.into());
                }
                Some(Node::Dir) => {}
                None => {
                    self.nodes.insert(ancestor.to_owned(), Node::Dir);
                }
            }
        }
        Ok(())
    }

    /// Writes a file, whatever was there, with its parent directories.
    pub(super) fn write(&mut self, path: &Path, content: &[u8]) {
        self.put(path, Node::File(content.to_vec()));
    }

    /// Creates a node, whatever was there, with its parent directories.
    pub(super) fn put(&mut self, path: &Path, node: Node) {
        for ancestor in path.ancestors().skip(1) {
            self.nodes.insert(ancestor.to_owned(), Node::Dir);
        }
        self.nodes.insert(path.to_owned(), node);
    }

    /// Creates a socket, whatever was there, with its parent directories.
    pub(super) fn put_socket(&mut self, path: &Path) {
        self.last_inode += 1;
        self.put(path, Node::Socket(self.last_inode));
    }

    /// The sockets below a directory.
    pub(super) fn sockets(&self, root: &Path) -> SocketTree {
        let identity = |path: &PathBuf| match self.nodes.get(path) {
            Some(Node::Socket(inode)) => Some(SocketIdentity { device: 1, inode: *inode, created: 0 }),
            Some(Node::Dir | Node::File(_) | Node::Link(_) | Node::Device) | None => None,
        };
        let sockets = self.below(root).filter_map(|path| Some((path.clone(), identity(path)?)));
        SocketTree { sockets: sockets.collect(), ..SocketTree::default() }
    }

    /// Creates a node in an existing directory.
    pub(super) fn insert(&mut self, path: &Path, node: Node) -> Result<(), Error> {
        match path.parent().and_then(|parent| self.nodes.get(parent)) {
            Some(Node::Dir) => {}
            Some(Node::File(_) | Node::Link(_) | Node::Device | Node::Socket(_)) => {
                return Err(ErrorKind::NotADirectory.into());
            }
            None => return Err(ErrorKind::NotFound.into()),
        }
        if matches!(self.nodes.get(path), Some(Node::Dir)) {
            return Err(ErrorKind::IsADirectory.into());
        }
        self.nodes.insert(path.to_owned(), node);
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> Result<(), Error> {
        match self.nodes.get(path) {
            Some(Node::Dir) => Err(ErrorKind::IsADirectory.into()),
            Some(Node::File(_) | Node::Link(_) | Node::Device | Node::Socket(_)) => {
                self.nodes.remove(path);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Removes everything at and below the path, mounts included.
    pub(super) fn wipe(&mut self, path: &Path) {
        self.mounts.retain(|at, _| !at.starts_with(path));
        self.nodes.retain(|at, _| !at.starts_with(path));
    }

    /// The number of files below the path.
    pub(super) fn files_below(&self, path: &Path) -> usize {
        self.below(path).filter(|path| matches!(self.nodes.get(*path), Some(Node::File(_)))).count()
    }

    /// Removes the content of the directory, and keeps it and its mounts.
    pub(super) fn empty_dir(&mut self, path: &Path) {
        self.nodes.retain(|at, _| !at.starts_with(path) || at == path);
    }

    /// Fails if something is mounted there or below.
    pub(super) fn remove_tree(&mut self, path: &Path) -> Result<(), Error> {
        if self.mounts.keys().any(|at| at.starts_with(path)) {
            return Err(ErrorKind::ResourceBusy.into());
        }
        self.nodes.retain(|at, _| !at.starts_with(path));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Error> {
        let node = self.nodes.get(from).cloned().ok_or(ErrorKind::NotFound)?;
        match node {
            Node::Dir => Err(ErrorKind::Unsupported.into()),
            Node::File(_) | Node::Link(_) | Node::Device | Node::Socket(_) => {
                self.insert(to, node)?;
                self.nodes.remove(from);
                Ok(())
            }
        }
    }

    /// Mounts something on an existing directory.
    pub(super) fn mount(&mut self, at: &Path, mount: Mount) -> Result<(), Error> {
        match self.nodes.get(at) {
            Some(Node::Dir) => {}
            Some(Node::File(_) | Node::Link(_) | Node::Device | Node::Socket(_)) => {
                return Err(ErrorKind::NotADirectory.into());
            }
            None => return Err(ErrorKind::NotFound.into()),
        }
        self.mounts.entry(at.to_owned()).or_insert(mount);
        Ok(())
    }

    /// Mounts a device in an existing directory, where it stays a device after it was unmounted.
    pub(super) fn bind_device(&mut self, at: &Path) -> Result<(), Error> {
        self.insert(at, Node::Device)?;
        self.mounts.entry(at.to_owned()).or_insert(Mount::Bind);
        Ok(())
    }

    /// Unmounts everything at and below the path. The content of a tmpfs is lost.
    pub(super) fn unmount_tree(&mut self, path: &Path) {
        let gone: Vec<PathBuf> = self.mounts.keys().filter(|at| at.starts_with(path)).cloned().collect();
        for at in gone {
            if self.mounts.remove(&at) == Some(Mount::Tmpfs) {
                self.nodes.retain(|path, _| !path.starts_with(&at) || *path == at);
            }
        }
    }

    pub(super) fn entries(&self, dir: &Path) -> Vec<DirEntry> {
        let direct = self.below(dir).filter(|path| path.parent() == Some(dir));
        direct.filter_map(|path| self.entry(path)).collect()
    }

    fn entry(&self, path: &Path) -> Option<DirEntry> {
        let node = self.nodes.get(path)?;
        let (is_dir, is_symlink, size, target_exists) = match node {
            Node::Dir => (true, false, 0, true),
            Node::File(content) => (false, false, content.len(), true),
            Node::Link(target) => (false, true, 0, self.exists(target)),
            Node::Device | Node::Socket(_) => (false, false, 0, true),
        };
        Some(DirEntry {
            name: path.file_name()?.to_string_lossy().into_owned(),
            is_dir,
            is_symlink,
            target_exists,
            size_bytes: u64::try_from(size).unwrap_or(u64::MAX),
        })
    }
}
