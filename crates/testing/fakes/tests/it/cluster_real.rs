//! The contract of a cluster over the adapter and a real API server in this process, with real TLS between them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ApiServer, HandleSettings, ProxyEnv, Settings, kubeconfig};
use futures_util::StreamExt;
use localapi::{LocalApi, Options, Running};
use model::k8s::Pod;
use ports::cluster::{Change, ClusterError, Part, Patch, Selection};
use ports::{Clock, Cluster};
use serde_json::json;

use crate::cluster_cases::cluster_contract;
use crate::cluster_fake::ClusterCase;

/// Long enough that only a call that hangs takes so long.
const LONG: Duration = Duration::from_secs(60);

async fn run(case: ClusterCase) {
    let server = LocalApi::start(Options::default()).await.unwrap();
    case(Arc::new(administrator(&server).handle(settings()))).await;
    server.stop().await;
}

const fn settings() -> HandleSettings {
    HandleSettings { budget: None, deadline: LONG }
}

/// A user with all permissions.
fn administrator(server: &Running) -> ApiServer {
    let config = server.kubeconfig("admin", Some("system:masters")).unwrap();
    let access = kubeconfig::parse(&config, Path::new("/kubeconfig"), &ProxyEnv::default()).unwrap();
    let settings = Settings {
        user_agent: "contract".to_owned(),
        http2: true,
        clock: Clock::system(),
        seed: 1,
        trace: None,
    };
    ApiServer::new(access, settings).unwrap()
}

cluster_contract!(
    #[tokio::test]
    run
);

#[tokio::test]
async fn real_watch_from_a_compacted_resource_version_is_expired() {
    let server = LocalApi::start(Options::default()).await.unwrap();
    let handle = administrator(&server).handle(settings());
    let all = Selection::default();
    let since = handle.pods().list(&all).await.unwrap().resource_version;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let node = serde_json::from_value(json!({"metadata": {"name": "edge-1"}})).unwrap();
    handle.nodes().create("", &node).await.unwrap();
    handle.nodes().patch("", "edge-1", Part::Whole, &patch).await.unwrap();
    server.compact();
    let error = match handle.pods().watch(&all, &since).await {
        Err(error) => error,
        Ok(mut changes) => changes.next().await.unwrap().unwrap_err(),
    };
    assert!(matches!(error, ClusterError::Expired { .. }), "{error:?}");
    server.stop().await;
}

#[tokio::test]
async fn stopped_server_ends_its_watches_and_the_next_server_continues_them() {
    let server = LocalApi::start(Options::default()).await.unwrap();
    let api = administrator(&server);
    let handle = api.handle(settings());
    let all = Selection::default();
    let since = handle.pods().list(&all).await.unwrap().resource_version;
    let mut changes = handle.pods().watch(&all, &since).await.unwrap();
    let address = server.address();
    let state = server.stop().await;
    let last = tokio::time::timeout(LONG, changes.next()).await.unwrap();
    assert!(!matches!(last, Some(Ok(_))), "{last:?}");
    assert!(matches!(handle.healthy().await, Err(ClusterError::Unreachable { .. })));

    let options = Options { listen: address, state: Some(state), ..Options::default() };
    let server = LocalApi::start(options).await.unwrap();
    let mut changes = handle.pods().watch(&all, &since).await.unwrap();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web"}, "spec": {"containers": [{"name": "app", "image": "busybox"}]},
    }))
    .unwrap();
    handle.pods().create("default", &pod).await.unwrap();
    let added = tokio::time::timeout(LONG, changes.next()).await.unwrap();
    assert!(matches!(added, Some(Ok(Change::Added(_)))), "{added:?}");
    drop(changes);
    server.stop().await;
}
