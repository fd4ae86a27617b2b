//! The HTTP listeners of this process.

use std::net::IpAddr;
use std::sync::Arc;

use agent::engine::Engine;
use config::Resolved;
use ports::{Cluster, NodeApi};
use server::{AccessSettings, AuthorizationMode, MainPort, MainServer, TokenReviews};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::boot::StartError;
use crate::serving;

/// Opens the main port, the read-only port and the health port, as far as they are configured, and serves them until
/// `stop`. `reviews` is who is asked about callers of the main port.
pub(crate) async fn start(
    resolved: &Resolved,
    engine: &Arc<Engine>,
    (api, reviews): (&Arc<dyn NodeApi>, Option<Arc<dyn Cluster>>),
    stop: &CancellationToken,
) -> Result<(), StartError> {
    let kubelet = &resolved.kubelet;
    let main_port = if kubelet.enable_server { kubelet.port } else { 0 };
    if let Some(listener) = open("port", &kubelet.address, main_port).await? {
        let server = main_server(resolved, engine, api, reviews).await?;
        spawn(server.serve(listener, stop.clone().cancelled_owned()));
    }
    if let Some(listener) = open("healthzPort", &kubelet.healthz_bind_address, kubelet.healthz_port).await? {
        spawn(server::serve_healthz(listener, api.clone(), stop.clone().cancelled_owned()));
    }
    let read_only_port = if kubelet.enable_server { kubelet.read_only_port } else { 0 };
    if let Some(listener) = open("readOnlyPort", &kubelet.address, read_only_port).await? {
        spawn(server::serve_read_only(listener, api.clone(), stop.clone().cancelled_owned()));
    }
    Ok(())
}

async fn main_server(
    resolved: &Resolved,
    engine: &Arc<Engine>,
    api: &Arc<dyn NodeApi>,
    reviews: Option<Arc<dyn Cluster>>,
) -> Result<MainServer, StartError> {
    let certificates = serving::load(resolved, engine, reviews.as_ref()).await?;
    let (authentication, authorization) = (&resolved.kubelet.authentication, &resolved.kubelet.authorization);
    let token_review = reviews.clone().filter(|_| authentication.webhook.enabled);
    let ttl = authentication.webhook.cache_ttl.as_std();
    let asks = reviews.filter(|_| authorization.mode == "Webhook");
    let access = AccessSettings {
        node_name: engine.settings.node_name.clone(),
        anonymous: authentication.anonymous.enabled,
        client_ca: certificates.client_ca,
        token_review: token_review.map(|cluster| TokenReviews { cluster, ttl }),
        authorization: asks.map_or(AuthorizationMode::AlwaysAllow, |cluster| AuthorizationMode::Review {
            cluster,
            allowed_ttl: authorization.webhook.cache_authorized_ttl.as_std(),
            denied_ttl: authorization.webhook.cache_unauthorized_ttl.as_std(),
        }),
    };
    let port = MainPort {
        api: api.clone(),
        pair: certificates.pair,
        access,
        config: Arc::new(resolved.kubelet.clone()),
        translates: engine.node_facts.features.extend_websockets,
        clock: engine.clock,
    };
    MainServer::new(port).map_err(|error| StartError::Certificates(error.to_string()))
}

#[expect(clippy::disallowed_methods, reason = "three tasks that end with the process's own stop token")]
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
