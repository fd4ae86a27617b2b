//! The HTTP listeners of this process.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use agent::Agent;
use base_agent::context::Context;
use config::{Features, KubeletConfiguration, Resolved};
use ports::{Cluster, NodeApi};
use server::local_socket::LocalSources;
use server::{
    AccessSettings, AuthorizationMode, ClientCa, MainPort, MainServer, TokenReviews, local_socket,
    pod_resources, pods_api,
};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::groups;
use crate::own_process::RunningProcess;
use crate::serving;
use crate::start_error::StartError;

/// Opens the main port, the read-only port and the health port, as configured, and serves them until `stop`. `reviews` is for
/// token and access reviews of clients of the main port. Returns the number of requests and streams at the main port.
pub(crate) async fn start(
    resolved: &Resolved,
    agent: &Agent,
    api: &Arc<dyn NodeApi>,
    reviews: Option<Arc<dyn Cluster>>,
    stop: &CancellationToken,
) -> Result<watch::Receiver<usize>, StartError> {
    let kubelet = &resolved.kubelet;
    let main_port = if kubelet.enable_server { kubelet.port } else { 0 };
    let (_, mut requests) = watch::channel(0);
    serve_pod_resources(agent.context(), api, stop).await;
    if Features::of(&resolved.gates).pods_api {
        serve_pods_api(agent.context(), api, stop).await;
    }
    if let Some(listener) = open("port", &kubelet.address, main_port).await? {
        let server = main_server(resolved, agent, api, reviews).await?;
        requests = server.requests();
        spawn(server.serve(listener, stop.clone().cancelled_owned()));
    }
    if let Some(listener) = open("healthzPort", &kubelet.healthz_bind_address, kubelet.healthz_port).await? {
        spawn(server::serve_healthz(listener, api.clone(), stop.clone().cancelled_owned()));
    }
    let read_only_port = if kubelet.enable_server { kubelet.read_only_port } else { 0 };
    if let Some(listener) = open("readOnlyPort", &kubelet.address, read_only_port).await? {
        spawn(server::serve_read_only(listener, api.clone(), stop.clone().cancelled_owned()));
    }
    let sources = LocalSources {
        api: api.clone(),
        inventory: agent.inventory(),
        clock: agent.context().clock,
        stream_idle: kubelet.streaming_connection_idle_timeout.as_std(),
    };
    serve_local_socket(agent.context(), sources, stop).await;
    Ok(requests)
}

/// A failure is logged, because the node runs pods without this endpoint.
async fn serve_pod_resources(ctx: &Context, api: &Arc<dyn NodeApi>, stop: &CancellationToken) {
    match open_socket(ctx, "pod-resources", "kubelet.sock").await {
        Ok(listener) => {
            let (stopped, features) = (stop.clone().cancelled_owned(), ctx.node_facts.features);
            spawn(pod_resources::serve(listener, api.clone(), features, ctx.clock, stopped));
        }
        Err(error) => tracing::error!(err = error, "Failed to serve the PodResources endpoint"),
    }
}

/// The same for the Pods API.
async fn serve_pods_api(ctx: &Context, api: &Arc<dyn NodeApi>, stop: &CancellationToken) {
    match open_socket(ctx, "pods-api", "pods-api.sock").await {
        Ok(listener) => {
            spawn(pods_api::serve(listener, api.clone(), ctx.clock, stop.clone().cancelled_owned()));
        }
        Err(error) => tracing::error!(err = error, "Failed to serve the Pods endpoint"),
    }
}

/// Opens a socket in a directory below the root directory.
async fn open_socket(ctx: &Context, dir: &str, socket: &str) -> Result<UnixListener, String> {
    let dir = ctx.settings.paths.root.join(dir);
    let made = ctx.files.make_dir(&dir, 0o750).await;
    made.map_err(|error| format!("{}: {}", dir.display(), base_agent::error_chain::chain(&error)))?;
    let socket = dir.join(socket);
    pod_resources::listen(&socket).map_err(|error| format!("{}: {error}", socket.display()))
}

/// A failure is logged, because the node runs pods without its commands.
async fn serve_local_socket(ctx: &Context, sources: LocalSources, stop: &CancellationToken) {
    let socket = cli::socket_of(&ctx.settings.paths.root.display().to_string());
    match open_local_socket(ctx, &socket).await {
        Ok(listener) => spawn(local_socket::serve(listener, sources, stop.clone().cancelled_owned())),
        Err(error) => {
            tracing::error!(socket = %socket.display(), err = error, "Failed to serve the local socket");
        }
    }
}

async fn open_local_socket(ctx: &Context, socket: &Path) -> Result<UnixListener, String> {
    let flags = &ctx.settings.flags;
    let group = match flags.local_socket_group.as_str() {
        "" => None,
        name => Some(group_id(ctx, name).await?),
    };
    if let Some(dir) = socket.parent() {
        let made = ctx.files.make_dir(dir, 0o755).await;
        made.map_err(|error| base_agent::error_chain::chain(&error))?;
    }
    local_socket::listen(socket, flags.local_socket_mode(), group).map_err(|error| error.to_string())
}

/// The number of a group, which may be given as such.
async fn group_id(ctx: &Context, name: &str) -> Result<u32, String> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let text = ctx.files.read_file(Path::new(groups::GROUPS), groups::MAX_BYTES, false).await;
    let text = text.map_err(|error| base_agent::error_chain::chain(&error))?;
    let found = groups::find(&String::from_utf8_lossy(&text), name);
    found.ok_or_else(|| groups::missing(name, "--local-socket-group"))
}

async fn main_server(
    resolved: &Resolved,
    agent: &Agent,
    api: &Arc<dyn NodeApi>,
    reviews: Option<Arc<dyn Cluster>>,
) -> Result<MainServer, StartError> {
    let ctx = agent.context();
    let certificates = serving::load(resolved, agent, reviews.as_ref()).await?;
    let access = access(&resolved.kubelet, &ctx.settings.node_name, certificates.client_ca, reviews)?;
    let config = Arc::new(resolved.kubelet.clone());
    let port = MainPort {
        api: api.clone(),
        pair: certificates.pair,
        access,
        config: config.clone(),
        features: Features::of(&resolved.gates),
        process: Arc::new(RunningProcess::new(config, resolved.flags.clone(), ctx.clock.now().wall)),
        clock: ctx.clock,
    };
    MainServer::new(port).map_err(|error| StartError::Certificates(error.to_string()))
}

/// How requests are authenticated and authorized, by the configuration; `reviews` is for requests to the API server.
fn access(
    kubelet: &KubeletConfiguration,
    node_name: &str,
    client_ca: Option<watch::Receiver<ClientCa>>,
    reviews: Option<Arc<dyn Cluster>>,
) -> Result<AccessSettings, StartError> {
    let (authentication, authorization) = (&kubelet.authentication, &kubelet.authorization);
    let missing = |what: &str| StartError::Access(format!("no client provided, cannot use webhook {what}"));
    let token_review = match (&reviews, authentication.webhook.enabled) {
        (Some(cluster), true) => {
            let ttl = authentication.webhook.cache_ttl.as_std();
            Some(TokenReviews { cluster: Arc::clone(cluster), ttl })
        }
        (None, true) => return Err(missing("authentication")),
        (_, false) => None,
    };
    // Only the configuration can allow all requests.
    let authorization = match (authorization.mode.as_str(), reviews) {
        ("AlwaysAllow", _) => AuthorizationMode::AlwaysAllow,
        (_, Some(cluster)) => AuthorizationMode::Review {
            cluster,
            allowed_ttl: authorization.webhook.cache_authorized_ttl.as_std(),
            denied_ttl: authorization.webhook.cache_unauthorized_ttl.as_std(),
        },
        (_, None) => return Err(missing("authorization")),
    };
    Ok(AccessSettings {
        node_name: node_name.to_owned(),
        anonymous: authentication.anonymous.enabled,
        client_ca,
        token_review,
        authorization,
    })
}

#[expect(clippy::disallowed_methods, reason = "a few tasks that end with the process's own stop token")]
fn spawn(server: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(server));
}

/// Port 0 is disabled.
async fn open(field: &'static str, address: &str, port: i32) -> Result<Option<TcpListener>, StartError> {
    let Some(port) = u16::try_from(port).ok().filter(|port| *port != 0) else { return Ok(None) };
    let failed = |source| StartError::Listen { field, address: address.to_owned(), port, source };
    let ip: IpAddr = address
        .parse()
        .map_err(|_| failed(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not an IP address")))?;
    TcpListener::bind((ip, port)).await.map(Some).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use config::GoDuration;
    use fakes::FakeCluster;

    use super::*;

    #[test]
    fn webhook_responses_are_cached_for_the_configured_ttl() {
        let mut kubelet = KubeletConfiguration::default();
        kubelet.authentication.webhook.cache_ttl = GoDuration::from_secs(7);
        kubelet.authorization.webhook.cache_authorized_ttl = GoDuration::from_secs(11);
        kubelet.authorization.webhook.cache_unauthorized_ttl = GoDuration::from_secs(13);
        let reviews: Arc<dyn Cluster> = Arc::new(FakeCluster::new());
        let access = access(&kubelet, "node", None, Some(reviews)).expect("both are reviewed");
        assert_eq!(access.token_review.expect("tokens are reviewed").ttl, Duration::from_secs(7));
        let AuthorizationMode::Review { allowed_ttl, denied_ttl, .. } = access.authorization else {
            panic!("access is reviewed: {:?}", access.authorization);
        };
        assert_eq!((allowed_ttl, denied_ttl), (Duration::from_secs(11), Duration::from_secs(13)));
    }

    #[test]
    fn webhook_authorization_without_an_api_server_is_never_always_allow() {
        let refused = |kubelet: &KubeletConfiguration| match access(kubelet, "node", None, None) {
            Ok(access) => format!("{:?}", access.authorization),
            Err(error) => error.to_string(),
        };
        let mut kubelet = KubeletConfiguration::default();
        assert_eq!(refused(&kubelet), "no client provided, cannot use webhook authentication");
        kubelet.authentication.webhook.enabled = false;
        assert_eq!(refused(&kubelet), "no client provided, cannot use webhook authorization");
        kubelet.authorization.mode = "AlwaysAllow".to_owned();
        assert_eq!(refused(&kubelet), "AlwaysAllow");
    }
}
