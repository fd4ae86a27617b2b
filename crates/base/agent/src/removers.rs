//! How eviction requests the garbage collectors to free space.

use tokio::sync::{mpsc, oneshot};

/// Requests another task to remove what it can; it answers when it is done, with whether it removed anything.
pub type Remover = mpsc::Sender<oneshot::Sender<bool>>;
