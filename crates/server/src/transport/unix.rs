//! Unix sockets: how they are opened, and who is at the other end.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::net::{UnixListener, UnixStream};

use super::connections::table::{ConnectionTable, Peer};

/// Opens the socket, and replaces one of an earlier run of the kubelet.
pub(crate) fn listen(socket: &Path, mode: u32) -> io::Result<UnixListener> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

/// The next connection, once the table has space for it. Cancel safe: a connection that is not accepted yet stays in the kernel's
/// queue.
pub(crate) async fn next(listener: &UnixListener, table: &ConnectionTable) -> io::Result<UnixStream> {
    table.wait_for_slot().await;
    listener.accept().await.map(|(stream, _)| stream)
}

pub(crate) fn peer(stream: &UnixStream) -> Peer {
    Peer::Process(stream.peer_cred().ok().and_then(|credentials| credentials.pid()))
}
