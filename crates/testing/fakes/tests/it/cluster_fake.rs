//! The contract of a cluster over the fake, on paused time; and what only a fake does: follow a script.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fakes::{ClusterFault, FakeCluster, Outage, Verb};
use futures_util::StreamExt;
use model::k8s::{Lease, Node, ObjectMeta, Pod};
use ports::Cluster;
use ports::cluster::{Change, ClusterError, Selection};
use tokio::time::Instant;

use crate::cluster_cases::cluster_contract;

/// A case, ready to be run on a cluster.
pub(crate) type ClusterCase = fn(Arc<dyn Cluster>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

async fn run(case: ClusterCase) {
    case(Arc::new(FakeCluster::new())).await;
}

cluster_contract!(
    #[tokio::test(start_paused = true)]
    run
);

const DEADLINE: Duration = Duration::from_secs(30);

fn node(name: &str) -> Node {
    Node { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..Node::default() }
}

fn all() -> Selection {
    Selection::default()
}

#[tokio::test(start_paused = true)]
async fn cluster_faults_apply_once_to_their_calls() {
    let cluster = FakeCluster::new();
    cluster.fault_times(Verb::Create, "nodes", &ClusterFault::Unreachable, 2);
    let no = ClusterError::Forbidden { call: String::new(), message: "not yours".to_owned() };
    cluster.fault(Verb::Create, "nodes", ClusterFault::Refused(no));
    let mut results = Vec::new();
    for _ in 0..4 {
        let answer = cluster.nodes().create("", &node("edge-1")).await;
        results.push(answer.map_or_else(|error| error.to_string(), |_| "created".to_owned()));
    }
    assert_eq!(
        results,
        [
            "create nodes edge-1: the API server cannot be reached: connection refused",
            "create nodes edge-1: the API server cannot be reached: connection refused",
            "create nodes edge-1: forbidden: not yours",
            "created",
        ]
    );
    assert_eq!(cluster.call_lines(), ["create nodes edge-1"; 4]);
}

#[tokio::test(start_paused = true)]
async fn cluster_call_may_succeed_and_time_out() {
    let cluster = FakeCluster::new();
    for (fault, name, done) in [
        (ClusterFault::TimedOut, "a", false),
        (ClusterFault::TimedOutAfterDoing, "b", true),
        (ClusterFault::UnreachableAfterDoing, "c", true),
        (ClusterFault::Slow(DEADLINE * 2), "d", false),
    ] {
        cluster.fault(Verb::Create, "nodes", fault);
        let error = cluster.nodes().create("", &node(name)).await.unwrap_err();
        assert!(error.is_uncertain(), "{error:?}");
        assert_eq!(cluster.object::<Node>("", name).is_some(), done, "{name}");
    }
    cluster.fault(Verb::Create, "", ClusterFault::Slow(Duration::from_secs(3)));
    let before = Instant::now();
    cluster.nodes().create("", &node("e")).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn outage_breaks_watches_and_fails_every_call() {
    let cluster = FakeCluster::new();
    let mut watch = cluster.nodes().watch(&all(), "0").await.unwrap();
    cluster.set_outage(Some(Outage::Refused));
    assert!(matches!(watch.next().await, Some(Err(ClusterError::Unreachable { .. }))));
    assert!(watch.next().await.is_none());
    assert!(matches!(cluster.healthy().await, Err(ClusterError::Unreachable { .. })));
    cluster.put(&node("meanwhile"));
    cluster.set_outage(None);
    assert_eq!(cluster.nodes().list(&all()).await.unwrap().items.len(), 1);

    let mut watch = cluster.nodes().watch(&all(), "0").await.unwrap();
    assert!(matches!(watch.next().await, Some(Ok(Change::Added(_)))));
    cluster.set_outage(Some(Outage::Silent));
    let before = Instant::now();
    assert!(matches!(cluster.healthy().await, Err(ClusterError::TimedOut { .. })));
    assert_eq!(before.elapsed(), DEADLINE);
    assert!(matches!(watch.next().await, Some(Err(ClusterError::Unreachable { .. }))));
}

#[tokio::test(start_paused = true)]
async fn watch_from_a_compacted_resource_version_is_expired() {
    let cluster = FakeCluster::new();
    cluster.put(&node("edge-1"));
    let mut slow = cluster.nodes().watch(&all(), "0").await.unwrap();
    cluster.put(&node("edge-2"));
    cluster.compact();
    assert!(matches!(slow.next().await, Some(Err(ClusterError::Expired { .. }))));
    let error = cluster.nodes().watch(&all(), "0").await.err();
    assert!(matches!(error, Some(ClusterError::Expired { .. })), "{error:?}");
    let listed = cluster.nodes().list(&all()).await.unwrap();
    let mut fresh = cluster.nodes().watch(&all(), &listed.resource_version).await.unwrap();
    cluster.put(&node("edge-3"));
    assert!(matches!(fresh.next().await, Some(Ok(Change::Added(_)))));
}

#[tokio::test(start_paused = true)]
async fn watches_get_bookmarks_and_end_on_request() {
    let cluster = FakeCluster::new();
    cluster.put(&node("edge-1"));
    let mut pods = cluster.pods().watch(&all(), "0").await.unwrap();
    assert_eq!(cluster.open_watches(), 1);
    cluster.send_bookmarks();
    let version = cluster.nodes().list(&all()).await.unwrap().resource_version;
    let bookmark: Change<Pod> = Change::Bookmark { resource_version: version };
    assert_eq!(pods.next().await, Some(Ok(bookmark)));
    cluster.end_watches();
    assert_eq!(pods.next().await, None);
    assert_eq!(cluster.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn lease_update_without_resource_version_is_a_conflict() {
    let cluster = FakeCluster::new();
    let lease = Lease { metadata: node("edge-1").metadata, ..Lease::default() };
    cluster.leases().create("kube-node-lease", &lease).await.unwrap();
    let error = cluster.leases().update("kube-node-lease", &lease).await.unwrap_err();
    assert!(matches!(error, ClusterError::Invalid { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn reviews_follow_the_script() {
    let cluster = FakeCluster::new();
    cluster.accept_token("abc", "jane").set_access(|review| review.spec.user.as_deref() == Some("jane"));
    let mut token = model::k8s::TokenReview::default();
    token.spec.token = "abc".to_owned();
    let status = cluster.review_token(&token).await.unwrap().status.unwrap();
    assert_eq!(status.user.unwrap().username.as_deref(), Some("jane"));
    let mut access = model::k8s::SubjectAccessReview::default();
    for (user, expected) in [("jane", true), ("joe", false)] {
        access.spec.user = Some(user.to_owned());
        assert_eq!(cluster.review_access(&access).await.unwrap().status.unwrap().allowed, expected);
    }
}
