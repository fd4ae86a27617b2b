//! Deletes pods that do not tolerate a taint with the effect `NoExecute` of their node, at once or when their toleration ends: the taint
//! eviction controller of a cluster, with its events and its condition.
//!
//! A wait begins when the taint was added, which the Node says (`taints::record_times`), or when the pod was bound, whatever is later, so that
//! it ends at the same time after a restart. The real controller begins again then. Static pods tolerate every such taint: their kubelet sees to
//! that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{RETRY, change_pod, record, set_condition};
use crate::api::Api;
use crate::object::{self, items, text};
use crate::registry::{self, deletion::DeleteOptions};
use crate::resources;
use crate::status::ApiError;
use crate::store::{Change, Event, Key, Objects, Store};
use crate::taints::{self, Eviction};

const NODES: &str = "nodes";
const PODS: &str = "pods";
const REASON: &str = "TaintManagerEviction";
const CONDITION: &str = "DisruptionTarget";
/// How long to sleep at most: the clock of the machine may be set forward.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The pods that wait for the end of their toleration.
type Waiting = BTreeMap<Key, Timestamp>;

/// Since when a pod is on its node.
fn bound_since(pod: &Value) -> Timestamp {
    let is_scheduled = |condition: &&Value| {
        text(condition, "/type") == "PodScheduled" && text(condition, "/status") == "True"
    };
    let scheduled = items(pod, "/status/conditions").iter().find(is_scheduled);
    let times = [
        text(pod, "/metadata/creationTimestamp"),
        scheduled.map_or("", |of| text(of, "/lastTransitionTime")),
    ];
    let times = times.into_iter().filter_map(|time| time.parse::<Timestamp>().ok());
    times.max().unwrap_or(Timestamp::UNIX_EPOCH)
}

fn decide(pod: &Value, objects: &Objects) -> Eviction {
    if object::is_terminating(pod) {
        return Eviction::Never;
    }
    match objects.get(&Key::new(NODES, "", text(pod, "/spec/nodeName"))) {
        Some(node) => taints::eviction(node, items(pod, "/spec/tolerations"), bound_since(pod)),
        None => Eviction::Never,
    }
}

/// The pods that may have to leave, or may stay, because of a change.
fn affected(event: &Event, objects: &Objects) -> Vec<Key> {
    let previous = event.previous.as_deref().filter(|_| event.change == Change::Modified);
    if event.key.resource == PODS {
        let fields = ["/metadata/uid", "/metadata/deletionTimestamp", "/spec/nodeName", "/spec/tolerations"];
        let same = |previous: &Value| {
            fields.iter().all(|field| previous.pointer(field) == event.object.pointer(field))
        };
        return if previous.is_some_and(same) { Vec::new() } else { vec![event.key.clone()] };
    }
    if previous.is_some_and(|previous| taints::no_execute(previous).eq(taints::no_execute(&event.object))) {
        return Vec::new();
    }
    let is_on_it = |pod: &Value| text(pod, "/spec/nodeName") == event.key.name;
    objects.of(PODS, None).filter(|(_, pod)| is_on_it(pod)).map(|(key, _)| key.clone()).collect()
}

pub(super) async fn run(api: Arc<Api>) {
    let mut waiting = Waiting::new();
    while let Some(mut live) = api.watch_until_stopped(Store::watch_everything) {
        let pods: Vec<Key> =
            api.store.read(|objects| objects.of(PODS, None).map(|(key, _)| key.clone()).collect());
        for key in waiting.keys().cloned().chain(pods).collect::<Vec<_>>() {
            examine(&api, &key, &mut waiting);
        }
        loop {
            let due = next_due(&waiting, api.now());
            let keys = tokio::select! {
                event = live.event() => match event {
                    Some(event) if [PODS, NODES].contains(&event.key.resource) => {
                        api.store.read(|objects| affected(&event.event(), objects))
                    }
                    Some(_) => continue,
                    // The store closes the queue of a slow watcher: look at all pods again.
                    None => break,
                },
                () = sleep(due) => due_keys(&waiting, api.now()),
                () = api.closing.cancelled() => return,
            };
            for key in keys {
                examine(&api, &key, &mut waiting);
                tokio::task::yield_now().await;
            }
        }
    }
}

/// How long until the first pod must leave.
fn next_due(waiting: &Waiting, now: Timestamp) -> Option<Duration> {
    let first = waiting.values().min()?;
    Some(Duration::try_from(first.duration_since(now)).unwrap_or_default().min(MAX_SLEEP))
}

async fn sleep(due: Option<Duration>) {
    match due {
        Some(due) => tokio::time::sleep(due).await,
        None => std::future::pending().await,
    }
}

fn due_keys(waiting: &Waiting, now: Timestamp) -> Vec<Key> {
    waiting.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect()
}

/// Deletes a pod, or lets it wait or stay.
fn examine(api: &Api, key: &Key, waiting: &mut Waiting) {
    let decided = api.store.read(|objects| {
        let pod = objects.get(key)?;
        Some((Arc::clone(pod), decide(pod, objects)))
    });
    let Some((pod, eviction)) = decided else {
        waiting.remove(key);
        return;
    };
    let now = api.now();
    match eviction {
        Eviction::Never => {
            if waiting.remove(key).is_some() && !object::is_terminating(&pod) {
                report(api, &pod, "Cancelling deletion of Pod");
            }
        }
        Eviction::At(at) if at > now => drop(waiting.insert(key.clone(), at)),
        Eviction::Now | Eviction::At(_) => {
            waiting.remove(key);
            if let Err(error) = evict(api, key, &pod) {
                let name = &key.name;
                tracing::warn!(err = %error, name, "failed to delete a pod because of a taint; trying again");
                waiting.insert(key.clone(), now.saturating_add(RETRY).unwrap_or(now));
            }
        }
    }
}

fn report(api: &Api, pod: &Value, what: &str) {
    let message = format!("{what} {}/{}", object::namespace(pod), object::name(pod));
    record(api, pod, "Normal", REASON, &message);
}

/// Says why, in an event and in the status, before the deletion with the pod's own grace period.
fn evict(api: &Api, key: &Key, pod: &Value) -> Result<(), ApiError> {
    report(api, pod, "Marking for deletion Pod");
    let (now, uid) = (object::time(api.now()), object::uid(pod));
    change_pod(api, key, |current| {
        if object::uid(current) == uid {
            let condition = json!({
                "status": "True",
                "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint",
                "observedGeneration": current["metadata"]["generation"],
            });
            set_condition(current, CONDITION, &condition, &now);
        }
    })?;
    let resource = resources::stored(PODS).ok_or_else(ApiError::no_such_path)?;
    let options = DeleteOptions { uid: Some(uid.to_owned()), ..DeleteOptions::default() };
    match registry::delete(api, resource, key, &options) {
        // It has gone meanwhile, or is another one.
        Err(error) if [StatusCode::NOT_FOUND, StatusCode::CONFLICT].contains(&error.code) => Ok(()),
        deleted => deleted.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{NotStored, Write};

    const CREATED: &str = "2026-01-01T00:00:00Z";
    const SCHEDULED: &str = "2026-01-01T00:01:00Z";

    fn pod(node: &str) -> Value {
        let tolerations = json!([{"key": "a", "operator": "Exists", "tolerationSeconds": 60}]);
        json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "u", "creationTimestamp": CREATED},
            "spec": {"nodeName": node, "tolerations": tolerations},
        })
    }

    fn scheduled(status: &str) -> Value {
        let mut pod = pod("n");
        pod["status"]["conditions"] =
            json!([{"type": "PodScheduled", "status": status, "lastTransitionTime": SCHEDULED}]);
        pod
    }

    fn node(taints: Value) -> Value {
        json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})
    }

    fn taint(effect: &str) -> Value {
        json!({"key": "a", "effect": effect, "timeAdded": "2025-12-31T00:00:00Z"})
    }

    fn store(pods: &[(&str, Value)], taints: Value) -> Store {
        let store = Store::new(10);
        let nodes = [(Key::new(NODES, "", "n"), node(taints))];
        let pods = pods.iter().map(|(name, pod)| (Key::new(PODS, "a", name), pod.clone()));
        for (key, object) in nodes.into_iter().chain(pods) {
            store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
        }
        store
    }

    #[test]
    fn wait_of_a_pod_begins_when_it_was_bound_and_only_pods_of_the_node_wait() {
        let at = |time: &str| Eviction::At(time.parse().unwrap());
        let mut terminating = pod("n");
        terminating["metadata"]["deletionTimestamp"] = json!(CREATED);
        for (pod, expected) in [
            (pod("n"), at("2026-01-01T00:01:00Z")),
            (scheduled("True"), at("2026-01-01T00:02:00Z")),
            (scheduled("False"), at("2026-01-01T00:01:00Z")),
            (pod("other"), Eviction::Never),
            (pod(""), Eviction::Never),
            (terminating, Eviction::Never),
        ] {
            let decided = store(&[], json!([taint("NoExecute")])).read(|objects| decide(&pod, objects));
            assert_eq!(decided, expected, "{pod}");
        }
    }

    #[test]
    fn change_concerns_pods_only_if_their_node_or_what_they_tolerate_differs() {
        let pods = [("on-it", pod("n")), ("elsewhere", pod("other"))];
        let store = store(&pods, json!([]));
        let names = |event: &Event| -> Vec<String> {
            store.read(|objects| affected(event, objects)).into_iter().map(|key| key.name).collect()
        };
        let change = |key: Key, change, previous: Option<Value>, object: Value| {
            names(&Event { key, change, object: Arc::new(object), previous: previous.map(Arc::new) })
        };
        let of_node = |previous: Value, object: Value| {
            change(Key::new(NODES, "", "n"), Change::Modified, Some(node(previous)), node(object))
        };
        assert_eq!(of_node(json!([]), json!([taint("NoExecute")])), ["on-it"]);
        assert_eq!(of_node(json!([taint("NoExecute")]), json!([])), ["on-it"]);
        assert_eq!(of_node(json!([]), json!([taint("NoSchedule")])), Vec::<String>::new());
        assert_eq!(of_node(json!([taint("NoExecute")]), json!([taint("NoExecute")])), Vec::<String>::new());
        let of_pod = |kind, previous: Option<Value>, object: Value| {
            change(Key::new(PODS, "a", "web"), kind, previous, object)
        };
        assert_eq!(of_pod(Change::Added, None, pod("n")), ["web"]);
        assert_eq!(of_pod(Change::Deleted, Some(pod("n")), pod("n")), ["web"]);
        assert_eq!(of_pod(Change::Modified, Some(pod("")), pod("n")), ["web"]);
        assert_eq!(of_pod(Change::Modified, Some(pod("n")), scheduled("True")), Vec::<String>::new());
    }

    #[test]
    fn controller_sleeps_until_the_first_pod_must_leave_but_a_minute_at_most() {
        let time = |text: &str| -> Timestamp { text.parse().unwrap() };
        let (one, other) = (Key::new(PODS, "a", "one"), Key::new(PODS, "a", "other"));
        let waiting = Waiting::from([
            (one.clone(), time("2026-01-01T00:02:00Z")),
            (other, time("2026-01-01T01:00:00Z")),
        ]);
        for (now, sleep, due) in [
            ("2026-01-01T00:00:00Z", 60, &[][..]),
            ("2026-01-01T00:01:30Z", 30, &[]),
            ("2026-01-01T00:02:00Z", 0, std::slice::from_ref(&one)),
            ("2026-01-01T00:30:00Z", 0, std::slice::from_ref(&one)),
        ] {
            assert_eq!(next_due(&waiting, time(now)), Some(Duration::from_secs(sleep)), "{now}");
            assert_eq!(due_keys(&waiting, time(now)), due, "{now}");
        }
        assert_eq!(next_due(&Waiting::new(), time(CREATED)), None);
    }
}
