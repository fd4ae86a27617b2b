//! Controllers: tasks that follow all changes of the store and bring objects to the state that others require. Each step is a function over
//! one object and all others, and one transaction; a controller has no state of its own, or none but what follows from the objects, so that a
//! restart loses nothing.

mod attachments;
mod expiry;
mod garbage;
mod namespaces;
mod quota;
mod scheduling;
mod taint_eviction;
pub(crate) mod volumes;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::Api;
use crate::object::{self, items, text};
use crate::registry::namespaces::ensure;
use crate::store::{Event, Key, NotStored, Objects, Store, StoredEvent, Write};

/// How long to wait after a change that could not be stored.
const RETRY: Duration = Duration::from_secs(5);
/// The source of events.
const COMPONENT: &str = "single-node-controller";

/// What one controller does. It becomes quiet when nothing changes: a step that changes nothing leads to no further one.
trait Controller {
    /// The name in the log.
    const NAME: &'static str;

    /// Whether an object may have a step, from the object alone: for the start.
    fn concerns(key: &Key, object: &Value) -> bool;

    /// The objects that may have a step because of a change.
    fn affected(event: &Event, objects: &Objects) -> Vec<Key>;

    /// Executes the next step of an object; returns the objects to examine next.
    fn execute(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored>;
}

/// Starts all of them; they end with the server.
pub(crate) fn start(api: &Arc<Api>, tasks: &mut JoinSet<()>) {
    tasks.spawn(run::<garbage::Garbage>(Arc::clone(api)));
    tasks.spawn(run::<namespaces::Namespaces>(Arc::clone(api)));
    tasks.spawn(run::<quota::Quotas>(Arc::clone(api)));
    tasks.spawn(expiry::run(Arc::clone(api)));
    if api.behaviour.bind_to.is_some() {
        tasks.spawn(run::<scheduling::Scheduling>(Arc::clone(api)));
        tasks.spawn(taint_eviction::run(Arc::clone(api)));
    }
    if api.behaviour.local_volumes.is_some() {
        tasks.spawn(run::<volumes::Volumes>(Arc::clone(api)));
        tasks.spawn(run::<attachments::Attachments>(Arc::clone(api)));
    }
}

async fn run<C: Controller>(api: Arc<Api>) {
    while let Some(mut live) = api.watch_until_stopped(Store::watch_everything) {
        let mut waiting: BTreeSet<Key> =
            api.store.read(|objects| objects.select(C::concerns)).into_iter().collect();
        loop {
            while let Some(key) = waiting.pop_first() {
                waiting.extend(step::<C>(&api, key).await);
                if api.closing.is_cancelled() {
                    return;
                }
            }
            let Some(event) = live.event().await else { break };
            let mut examine = |event: &StoredEvent| {
                let event = event.event();
                waiting.extend(api.store.read(|all| C::affected(&event, all)));
            };
            examine(&event);
            // What changed meanwhile counts once.
            while let Some(event) = live.try_event() {
                examine(&event);
            }
        }
        // The store closes the queue of a slow watcher: look at all objects again.
    }
}

async fn step<C: Controller>(api: &Api, key: Key) -> Vec<Key> {
    match C::execute(api, &key) {
        Ok(next) => {
            tokio::task::yield_now().await;
            next
        }
        Err(error) => {
            let name = &key.name;
            tracing::warn!(controller = C::NAME, err = %error, name, "failed to store a change; trying again");
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = api.closing.cancelled() => {}
            }
            vec![key]
        }
    }
}

/// Changes a pod, if it exists.
fn change_pod(api: &Api, key: &Key, change: impl FnOnce(&mut Value)) -> Result<(), NotStored> {
    api.store.write(key, |_, current| {
        let Some(current) = current else { return Ok::<_, NotStored>(Write::Keep) };
        let mut next = (**current).clone();
        change(&mut next);
        Ok(if next == **current { Write::Keep } else { Write::Put(next) })
    })?;
    Ok(())
}

/// Sets a condition of a pod. Its time is that of the last change of its status.
fn set_condition(pod: &mut Value, kind: &str, condition: &Value, now: &str) {
    let mut conditions = items(pod, "/status/conditions").to_vec();
    let position = conditions.iter().position(|condition| text(condition, "/type") == kind);
    let before = position.map(|at| conditions.remove(at));
    let same = before.filter(|before| before["status"] == condition["status"]);
    let time = same.and_then(|before| before.get("lastTransitionTime").cloned());
    let mut next = condition.clone();
    next["type"] = json!(kind);
    next["lastProbeTime"] = Value::Null;
    next["lastTransitionTime"] = time.unwrap_or_else(|| json!(now));
    conditions.insert(position.unwrap_or(conditions.len()), next);
    object::map_at(pod, "status").insert("conditions".to_owned(), Value::Array(conditions));
}

/// Records an event of an object; the same one is recorded once until it expires.
fn record(api: &Api, about: &Value, kind: &str, reason: &str, message: &str) {
    let mut hasher = DefaultHasher::new();
    (object::uid(about), reason, message).hash(&mut hasher);
    let namespace = if object::namespace(about).is_empty() { "default" } else { object::namespace(about) };
    let now = object::time(api.now());
    let event = json!({
        "metadata": {"name": format!("{}.{:016x}", object::name(about), hasher.finish())},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": object::name(about),
            "namespace": object::namespace(about),
            "uid": object::uid(about),
            "resourceVersion": object::resource_version(about),
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    if let Err(error) = ensure(api, "events", namespace, event) {
        tracing::debug!(err = %error, reason, "failed to record an event");
    }
}
