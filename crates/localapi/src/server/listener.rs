//! The listener: TLS, one task for each connection, and a shutdown that waits for running requests.

use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::api::Api;
use crate::endpoints;
use crate::http::PeerCertificates;

/// Further connections wait in the backlog of the socket.
const MAX_CONNECTIONS: usize = 1000;
/// The pause after a failed accept; the usual cause is a lack of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long running requests may take to finish when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until `api.closing` is cancelled and connections have ended.
pub(super) async fn serve(listener: TcpListener, tls: TlsAcceptor, api: Arc<Api>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = api.closing.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, tls.clone(), Arc::clone(&api)))),
                Err(error) => {
                    tracing::warn!(err = %error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            },
        }
    }
    drop(listener);
    // Connections that are still open after that are closed when the set is dropped.
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
        tracing::info!("closed connections that did not end within the shutdown timeout");
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, api: Arc<Api>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(err = %error, "failed to set TCP_NODELAY");
    }
    let stream = match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::info!(err = %error, "TLS handshake failed"),
        Err(_) => return tracing::info!("TLS handshake timed out"),
    };
    let chain: PeerCertificates = stream
        .get_ref()
        .1
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|c| c.clone().into_owned())
        .collect();
    let closing = api.closing.clone();
    let service = service_fn(move |request| {
        let (api, chain) = (Arc::clone(&api), Arc::clone(&chain));
        async move { Ok::<_, std::convert::Infallible>(endpoints::respond(api, chain, request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(250);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(err = error, "connection failed");
    }
}
