//! The HTTP listeners of this process.

use std::net::IpAddr;
use std::sync::Arc;

use config::Resolved;
use ports::NodeApi;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::boot::StartError;

/// Opens the health port and the read-only port, as far as they are configured, and serves them until `stop`.
pub(crate) async fn start(
    resolved: &Resolved,
    api: &Arc<dyn NodeApi>,
    stop: &CancellationToken,
) -> Result<(), StartError> {
    let kubelet = &resolved.kubelet;
    if let Some(listener) = open("healthzPort", &kubelet.healthz_bind_address, kubelet.healthz_port).await? {
        spawn(server::serve_healthz(listener, api.clone(), stop.clone().cancelled_owned()));
    }
    let read_only_port = if kubelet.enable_server { kubelet.read_only_port } else { 0 };
    if let Some(listener) = open("readOnlyPort", &kubelet.address, read_only_port).await? {
        spawn(server::serve_read_only(listener, api.clone(), stop.clone().cancelled_owned()));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "two tasks that end with the process's own stop token")]
fn spawn(server: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(server));
}

/// Port 0 is off.
async fn open(field: &'static str, address: &str, port: i32) -> Result<Option<TcpListener>, StartError> {
    let Some(port) = u16::try_from(port).ok().filter(|port| *port != 0) else { return Ok(None) };
    let failed = |source| StartError::Listen { field, address: address.to_owned(), port, source };
    let ip: IpAddr = address
        .parse()
        .map_err(|_| failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not an IP address")))?;
    TcpListener::bind((ip, port)).await.map(Some).map_err(failed)
}
