//! Plugins that register through a socket in the registration directory: the sockets, and what is registered.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What distinguishes a socket from an earlier one at the same path. A change of its permissions changes none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketIdentity {
    pub device: u64,
    pub inode: u64,
    /// When it was created, in nanoseconds.
    pub created: i128,
}

/// The sockets below a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketTree {
    pub sockets: BTreeMap<PathBuf, SocketIdentity>,
    /// Entries that were deleted or moved away since the last observation. A socket that exists all the same was created again.
    pub removed: BTreeSet<PathBuf>,
    /// Directories and sockets beyond the limits, which are not watched.
    pub left_out: usize,
}

/// What a plugin is registered as, with the handler of its type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisteredPlugin {
    /// The name of the CSI driver, or the resource of the device plugin.
    pub name: String,
    /// The socket of its own calls, wherever that is.
    pub endpoint: PathBuf,
    pub versions: Vec<String>,
}
