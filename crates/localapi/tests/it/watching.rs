//! The watcher of kube-rs across restarts and compaction of the server: no event is lost or repeated.

use std::collections::BTreeMap;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use tokio::time::timeout;

use crate::server::{Server, TIMEOUT};

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, labels: {own: 'yes'}}\n";

/// The objects of a reflector: names with their `data.a`.
type Seen = BTreeMap<String, String>;

fn apply(seen: &mut Seen, map: &ConfigMap) {
    let value = map.data.as_ref().and_then(|data| data.get("a")).cloned().unwrap_or_default();
    seen.insert(map.name_any(), value);
}

/// Reads events until the state is as expected; a watcher recovers from errors by itself.
async fn until(
    events: &mut (impl Stream<Item = Result<Event<ConfigMap>, watcher::Error>> + Unpin),
    seen: &mut Seen,
    expected: &[(&str, &str)],
) {
    let expected: Seen =
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let follow = async {
        while *seen != expected {
            match events.next().await.expect("a watcher never ends") {
                Ok(Event::Apply(map) | Event::InitApply(map)) => apply(seen, &map),
                Ok(Event::Delete(map)) => drop(seen.remove(&map.name_any())),
                Ok(Event::Init) => seen.clear(),
                Ok(Event::InitDone) | Err(_) => {}
            }
        }
    };
    let followed = timeout(TIMEOUT, follow).await;
    assert!(followed.is_ok(), "waited too long for {expected:?}");
}

async fn follow_through_restarts(config: watcher::Config) {
    let mut server = Server::start(&["--bookmark-seconds=1"]);
    let kubectl = server.admin();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client("admin.kubeconfig").await);
    let events = watcher::watcher(maps, config.labels("own=yes"));
    let mut events = std::pin::pin!(kube::runtime::WatchStreamExt::default_backoff(events));
    let mut seen = Seen::new();
    let set = |name: &str, value: &str| {
        kubectl.ok(&[
            "patch",
            "configmap",
            name,
            "--type=merge",
            "-p",
            &format!("{{\"data\": {{\"a\": \"{value}\"}}}}"),
        ]);
    };
    kubectl.feed(&["create", "-f", "-"], &MAP.replace("NAME", "one"));
    until(&mut events, &mut seen, &[("one", "")]).await;
    set("one", "1");
    until(&mut events, &mut seen, &[("one", "1")]).await;

    server.stop();
    server.restart(&[]);
    kubectl.feed(&["create", "-f", "-"], &MAP.replace("NAME", "two"));
    set("one", "2");
    until(&mut events, &mut seen, &[("one", "2"), ("two", "")]).await;

    server.stop();
    server.restart(&["--compacted"]);
    kubectl.ok(&["delete", "configmap", "one"]);
    set("two", "3");
    until(&mut events, &mut seen, &[("two", "3")]).await;
    kubectl.ok(&["label", "configmap", "two", "own=no", "--overwrite"]);
    until(&mut events, &mut seen, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watcher_survives_a_restart_and_a_discarded_history() {
    follow_through_restarts(watcher::Config::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streaming_list_watcher_survives_a_restart_and_a_discarded_history() {
    follow_through_restarts(watcher::Config::default().streaming_lists()).await;
}
