//! Mounts that another program makes: a storage plugin.

use std::io::{Error, ErrorKind};
use std::path::Path;

use super::FakeHost;
use super::tree::{Mount, Node, Tree};

impl FakeHost {
    /// Mounts on an existing directory.
    pub(crate) fn mount_volume(&self, at: &Path) -> Result<(), Error> {
        self.change(at, |tree| tree.mount(at, Mount::Filesystem("csi".to_owned())))
    }

    /// Creates the directory in its parent, which must exist, and mounts on it.
    pub(crate) fn make_mount_point(&self, at: &Path) -> Result<(), Error> {
        self.change(at, |tree| {
            check_parent(tree, at)?;
            tree.make_dir(at)?;
            tree.mount(at, Mount::Filesystem("csi".to_owned()))
        })
    }

    /// Binds a device on a new file in the parent, which must exist.
    pub(crate) fn mount_device(&self, at: &Path) -> Result<(), Error> {
        self.change(at, |tree| {
            check_parent(tree, at)?;
            tree.insert(at, Node::Device)?;
            tree.mounts.insert(at.to_owned(), Mount::Bind);
            Ok(())
        })
    }

    /// The file on which a device was bound is a plain one again.
    pub(crate) fn unmount_volume(&self, at: &Path) -> &Self {
        self.change(at, |tree| {
            if tree.mounts.remove(at).is_some() && tree.node(at) == Some(&Node::Device) {
                tree.write(at, b"");
            }
        });
        self
    }
}

fn check_parent(tree: &Tree, path: &Path) -> Result<(), Error> {
    match path.parent().and_then(|parent| tree.node(parent)) {
        Some(Node::Dir) => Ok(()),
        Some(Node::File(_) | Node::Link(_) | Node::Device | Node::Socket(_)) => {
            Err(ErrorKind::NotADirectory.into())
        }
        None => Err(ErrorKind::NotFound.into()),
    }
}
