//! Sockets: the listener, TLS, one task for each connection, and an end that lets requests under way finish.

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
use crate::http::Chain;

/// Connections beyond this wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 1000;
/// The pause after a connection that could not be accepted: out of file descriptors, most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long a client has to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long requests under way have to finish when the server stops.
const FINISH: Duration = Duration::from_secs(5);

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
                    tracing::warn!(err = %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
    drop(listener);
    // What has not ended by then is cut off when the set is dropped.
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(FINISH, ended).await.is_err() {
        tracing::info!("connections were cut off that did not end in time");
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, api: Arc<Api>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(err = %error, "cannot set TCP_NODELAY");
    }
    let stream = match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::info!(err = %error, "TLS handshake failed"),
        Err(_) => return tracing::info!("TLS handshake timed out"),
    };
    let chain: Chain = stream
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
        tracing::debug!(err = error, "a connection ended badly");
    }
}
