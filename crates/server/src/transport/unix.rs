//! Unix sockets: how they are opened, who is at the other end, and the loop that accepts connections within limits.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::connections::table::{ConnectionTable, OpenConnection, Peer, TableLimits};

/// Delay before accepting again when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

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

/// Serves each connection until `shutdown`. `name` is that of the endpoint in the log.
pub(crate) async fn accept<S, F>(
    name: &'static str,
    listener: UnixListener,
    limits: TableLimits,
    serve: S,
    shutdown: impl Future<Output = ()> + Send,
) where
    S: Fn(UnixStream, OpenConnection) -> F + Send,
    F: Future<Output = ()> + Send + 'static,
{
    let table = ConnectionTable::new(limits);
    let mut shutdown = pin!(shutdown);
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut shutdown => return,
            Some(_) = open.join_next() => {}
            accepted = next(&listener, &table) => match accepted {
                Ok(stream) => {
                    if let Some(slot) = table.open(peer(&stream)) {
                        open.spawn(serve(stream, slot));
                    }
                }
                Err(error) => {
                    tracing::warn!(err = %error, "Failed to accept connection to the {name} endpoint");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
}

/// The next connection, once the table has space for it. Cancel safe: a connection that is not accepted yet stays in the kernel's
/// queue.
async fn next(listener: &UnixListener, table: &ConnectionTable) -> io::Result<UnixStream> {
    table.wait_for_slot().await;
    listener.accept().await.map(|(stream, _)| stream)
}

fn peer(stream: &UnixStream) -> Peer {
    Peer::Process(stream.peer_cred().ok().and_then(|credentials| credentials.pid()))
}
