//! How eviction asks the garbage collectors for space.

use tokio::sync::{mpsc, oneshot};

/// Asks another task to remove what it can; it answers when it has, and whether there was anything.
pub(crate) type Remover = mpsc::Sender<oneshot::Sender<bool>>;
