//! The registration socket of device plugins.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use grpc_api::device_plugin as wire;
use ports::plugins::{DeviceRegistration, PluginError, PluginResult, Registrar};
use prost::Message;
use tokio::net::UnixListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::grpc_unary_server;

const SOCKET: &str = "kubelet.sock";
const SOCKET_MODE: u32 = 0o600;
const MAX_CONNECTIONS: usize = 64;
/// Delay before accepting again when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Opens the socket, and removes all sockets in the directory: a running plugin creates its own again when the kubelet's
/// socket appears.
pub(crate) fn listen(dir: &Path) -> PluginResult<UnixListener> {
    let socket = dir.join(SOCKET);
    let opened = remove_sockets(dir).and_then(|()| {
        let listener = UnixListener::bind(&socket)?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(SOCKET_MODE))?;
        Ok(listener)
    });
    opened.map_err(|error| PluginError::Listen { socket, message: error.to_string() })
}

fn remove_sockets(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Serves until dropped. A plugin needs its connection for one short call, so the oldest is closed for a new one.
pub(crate) async fn serve(listener: UnixListener, registrar: Arc<dyn Registrar>) {
    let mut open = JoinSet::new();
    let mut by_age: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        while open.try_join_next().is_some() {}
        by_age.retain(|connection| !connection.is_finished());
        match listener.accept().await {
            Ok((stream, _)) => {
                if by_age.len() >= MAX_CONNECTIONS
                    && let Some(oldest) = by_age.pop_front()
                {
                    oldest.abort();
                }
                let registrar = Arc::clone(&registrar);
                by_age.push_back(open.spawn(async move {
                    // Errors of a single connection are ignored; the plugin has to register again.
                    let _ = grpc_unary_server::serve(stream, |message| register(&*registrar, message)).await;
                }));
            }
            Err(error) => {
                tracing::warn!(err = %error, "Failed to accept connection from device plugin");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn register(registrar: &dyn Registrar, message: Vec<u8>) -> Result<Vec<u8>, String> {
    let request = wire::RegisterRequest::decode(&*message).map_err(|error| error.to_string())?;
    let wire::RegisterRequest { version, endpoint, resource_name, options: _ } = request;
    registrar.register(DeviceRegistration { version, endpoint, resource: resource_name }).await?;
    Ok(wire::Empty {}.encode_to_vec())
}
