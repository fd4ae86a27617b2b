use serde_json::json;

use super::*;
use crate::object;

fn key(name: &str) -> Key {
    Key::new("pods", "default", name)
}

fn put(store: &Store, name: &str, color: &str) -> Revision {
    let object = json!({"metadata": {"name": name, "namespace": "default"}, "color": color});
    let written = store.write(&key(name), |_, _| Ok::<_, NotStored>(Write::Put(object)));
    revision_of(&written.unwrap())
}

fn remove(store: &Store, name: &str) -> Revision {
    let written = store.write(&key(name), |_, current| {
        Ok::<_, NotStored>(current.map_or(Write::Keep, |current| Write::Remove((**current).clone())))
    });
    revision_of(&written.unwrap())
}

fn revision_of(written: &Written) -> Revision {
    object::resource_version(written.object.as_ref().unwrap()).parse().unwrap()
}

fn seen(events: &[Arc<StoredEvent>]) -> Vec<(Change, String, Revision)> {
    events.iter().map(|event| (event.change, event.key.name.clone(), event.revision)).collect()
}

fn drained(subscription: &mut Subscription) -> Vec<Arc<StoredEvent>> {
    std::iter::from_fn(|| subscription.live.try_event()).collect()
}

/// A store with these bounds, and no others that matter.
fn bounded(change: impl FnOnce(&mut Limits)) -> Store {
    let mut limits = Limits::of_history(1_000);
    change(&mut limits);
    Store::of(None, Saved { revision: 1, ..Saved::default() }, limits)
}

/// The bytes of an object with this colour.
fn bytes(color: &str) -> usize {
    let store = Store::new(10);
    put(&store, "a", color);
    store.state.lock().meter.bytes()
}

fn in_memory(store: &Store) -> usize {
    store.state.lock().meter.bytes()
}

#[test]
fn each_change_increments_the_revision() {
    let store = Store::new(10);
    let (first, second) = (put(&store, "a", "red"), put(&store, "b", "red"));
    assert_eq!(second, first + 1);
    assert_eq!(remove(&store, "a"), second + 1);
    assert_eq!(store.revision(), second + 1);
    assert!(store.get(&key("a")).is_none());
}

#[test]
fn watch_returns_missed_changes_and_then_new_ones() {
    let store = Store::new(10);
    let first = put(&store, "a", "red");
    let second = put(&store, "a", "blue");
    let mut watch = store.watch("pods", None, From::After(first)).unwrap();
    assert_eq!(seen(&drained(&mut watch)), [(Change::Modified, "a".to_owned(), second)]);
    let third = remove(&store, "a");
    assert_eq!(seen(&drained(&mut watch)), [(Change::Deleted, "a".to_owned(), third)]);
}

#[test]
fn watch_of_one_namespace_excludes_other_namespaces_and_kinds() {
    let store = Store::new(10);
    let mut watch = store.watch("pods", Some("other"), From::Now).unwrap();
    put(&store, "a", "red");
    assert!(drained(&mut watch).is_empty());
    assert_eq!(store.watch("nodes", None, From::Everything).unwrap().existing, 0);
    assert_eq!(store.watch("pods", None, From::Everything).unwrap().existing, 1);
}

#[test]
fn watch_from_a_revision_before_the_bounded_history_is_expired() {
    let store = Store::new(2);
    let first = put(&store, "a", "1");
    let second = put(&store, "a", "2");
    put(&store, "a", "3");
    put(&store, "a", "4");
    assert!(store.watch("pods", None, From::After(second)).is_ok());
    let refused = store.watch("pods", None, From::After(first)).unwrap_err();
    assert_eq!(refused, RevisionExpired { requested: first, oldest: second });
}

#[test]
fn compaction_expires_older_revisions_and_keeps_open_watches() {
    let store = Store::new(10);
    let first = put(&store, "a", "1");
    put(&store, "a", "2");
    let mut watch = store.watch("pods", None, From::Now).unwrap();
    store.compact();
    assert!(store.watch("pods", None, From::After(first)).is_err());
    assert!(store.watch("pods", None, From::After(store.revision())).is_ok());
    put(&store, "a", "3");
    assert_eq!(drained(&mut watch).len(), 1);
}

#[test]
fn watch_from_a_future_revision_is_refused() {
    let store = Store::new(10);
    let now = store.revision();
    assert_eq!(store.watch("pods", None, From::After(now + 5)).unwrap_err().requested, now + 5);
}

#[test]
fn watcher_with_too_many_undelivered_events_is_closed_and_others_stay_open() {
    let store = bounded(|limits| limits.watcher_events = 3);
    let mut slow = store.watch("pods", None, From::Now).unwrap();
    let mut fast = store.watch("pods", None, From::Now).unwrap();
    for number in 0..4 {
        put(&store, "a", &number.to_string());
        assert_eq!(drained(&mut fast).len(), 1);
    }
    assert!(slow.live.is_closed());
    assert!(drained(&mut slow).is_empty(), "it resumes after what it has taken, with nothing twice");
    assert!(!fast.live.is_closed());
}

#[test]
fn watcher_with_too_many_undelivered_bytes_is_closed_and_resumes_from_the_history() {
    let large = "x".repeat(1_000);
    let store = bounded(|limits| limits.watcher_bytes = 3 * bytes(&"x".repeat(1_000)));
    let begin = put(&store, "a", &large);
    let mut slow = store.watch("pods", None, From::Now).unwrap();
    for _ in 0..3 {
        put(&store, "a", &large);
    }
    assert!(!slow.live.is_closed());
    let last = slow.live.try_event().unwrap().revision;
    assert_eq!(last, begin + 1);
    put(&store, "a", &large);
    assert!(!slow.live.is_closed(), "what it has taken does not count");
    put(&store, "a", &large);
    assert!(slow.live.is_closed());
    let mut again = store.watch("pods", None, From::After(last)).unwrap();
    let missed: Vec<Revision> = drained(&mut again).iter().map(|event| event.revision).collect();
    assert_eq!(missed, (last + 1..=store.revision()).collect::<Vec<_>>());
}

#[test]
fn what_a_watch_begins_with_does_not_close_it() {
    let store = bounded(|limits| (limits.watcher_events, limits.watcher_bytes) = (2, 2 * bytes("red")));
    let begin = store.revision();
    for name in ["a", "b", "c", "d", "e"] {
        put(&store, name, "red");
    }
    let mut all = store.watch("pods", None, From::Everything).unwrap();
    let mut missed = store.watch("pods", None, From::After(begin)).unwrap();
    put(&store, "f", "red");
    put(&store, "g", "red");
    assert_eq!((all.existing, drained(&mut all).len(), drained(&mut missed).len()), (5, 2, 7));
    put(&store, "h", "red");
    assert_eq!((drained(&mut all).len(), drained(&mut missed).len()), (1, 1));
}

#[test]
fn versions_that_only_watchers_need_are_bounded_together_and_count_once() {
    let large = "x".repeat(1_000);
    let one = bytes(&large);
    let store = bounded(|limits| {
        (limits.history_events, limits.undelivered_bytes) = (1, 10 * one);
    });
    put(&store, "a", &large);
    let mut watchers: Vec<Subscription> =
        (0..50).map(|_| store.watch("pods", None, From::Now).unwrap()).collect();
    for _ in 0..10 {
        put(&store, "a", &large);
    }
    assert!(
        watchers.iter().all(|watcher| !watcher.live.is_closed()),
        "fifty watchers wait for the same ten versions"
    );
    // One is ahead of the others.
    drained(&mut watchers[7]);
    for _ in 0..100 {
        put(&store, "a", &large);
        drained(&mut watchers[7]);
        // The present version, the one before it in the history, and the bound.
        assert!(in_memory(&store) <= 13 * one, "{}", in_memory(&store));
    }
    let open: Vec<usize> = (0..50).filter(|index| !watchers[*index].live.is_closed()).collect();
    assert_eq!(open, [7]);
}

#[test]
fn objects_that_a_slow_watch_began_with_are_bounded_too() {
    let large = "x".repeat(1_000);
    let one = bytes(&large);
    let store = bounded(|limits| (limits.history_events, limits.undelivered_bytes) = (1, 4 * one));
    let mut stuck = Vec::new();
    for round in 0..20 {
        for name in ["a", "b", "c", "d"] {
            put(&store, name, &large);
        }
        // Its client takes nothing.
        stuck.push(store.watch("pods", None, From::Everything).unwrap());
        assert!(in_memory(&store) <= 11 * one, "round {round}: {}", in_memory(&store));
    }
}

#[test]
fn history_is_bounded_in_bytes_and_keeps_the_last_change() {
    let large = "x".repeat(1_000);
    let one = bytes(&large);
    let store = bounded(|limits| limits.history_bytes = 5 * one);
    let mut last = 0;
    for _ in 0..100 {
        last = put(&store, "a", &large);
        assert!(in_memory(&store) <= 6 * one, "{}", in_memory(&store));
    }
    // Each change counts with the version before it.
    assert!(store.watch("pods", None, From::After(last - 2)).is_ok());
    assert_eq!(store.watch("pods", None, From::After(last - 3)).unwrap_err().oldest, last - 2);
    let last = put(&store, "a", &large.repeat(10));
    let mut watch = store.watch("pods", None, From::After(last - 1)).unwrap();
    assert_eq!(drained(&mut watch).len(), 1);
    remove(&store, "a");
    store.compact();
    drop(watch);
    assert_eq!(in_memory(&store), 0);
}

#[test]
fn list_at_an_earlier_revision_undoes_later_changes() {
    let store = Store::new(10);
    put(&store, "a", "red");
    let then = put(&store, "b", "red");
    put(&store, "a", "blue");
    remove(&store, "b");
    put(&store, "c", "red");
    let listing = store.list_at("pods", None, then).unwrap();
    let colors: Vec<(&str, Value)> = listing
        .objects
        .iter()
        .map(|(key, object)| (key.name.as_str(), object.tree()["color"].clone()))
        .collect();
    assert_eq!(colors, [("a", json!("red")), ("b", json!("red"))]);
    assert_eq!(listing.revision, then);
}

#[test]
fn snapshot_restores_objects_revision_and_history() {
    let store = Store::new(10);
    let first = put(&store, "a", "red");
    put(&store, "a", "blue");
    remove(&store, "a");
    put(&store, "b", "red");
    let again = Store::restore(&store.snapshot(), 10).unwrap();
    assert_eq!(again.revision(), store.revision());
    assert_eq!(again.snapshot(), store.snapshot());
    let mut watch = again.watch("pods", None, From::After(first)).unwrap();
    let changes: Vec<Change> = drained(&mut watch).iter().map(|event| event.change).collect();
    assert_eq!(changes, [Change::Modified, Change::Deleted, Change::Added]);
    assert_eq!(put(&again, "b", "blue"), store.revision() + 1);
}

#[test]
fn invalid_snapshot_is_refused_with_the_index_of_the_entry() {
    let bad = json!({"revision": 3, "compacted": 1, "history": [], "objects": [{"resource": "unicorns"}]});
    assert_eq!(Store::restore(&bad, 10).unwrap_err(), snapshot::InvalidSnapshot::Object(0));
    assert_eq!(Store::restore(&json!({}), 10).unwrap_err(), snapshot::InvalidSnapshot::Revision);
}

#[test]
fn tree_is_dropped_after_the_transaction_that_looked_at_it() {
    let store = Store::new(10);
    // More than is kept of the last changes.
    put(&store, "a", &"x".repeat(100_000));
    let seen = store.read(|objects| Arc::downgrade(objects.get(&key("a")).unwrap()));
    assert!(seen.upgrade().is_none());
    let mut seen = None;
    let kept = store.write(&key("a"), |objects, _| {
        seen = objects.get(&key("a")).map(Arc::downgrade);
        Ok::<_, NotStored>(Write::Keep)
    });
    drop(kept.unwrap());
    assert!(seen.unwrap().upgrade().is_none());
}

#[test]
fn tree_with_more_levels_than_can_be_decoded_is_refused_and_changes_nothing() {
    let store = Store::new(10);
    let before = put(&store, "a", "red");
    let deep = (0..crate::json::MAX_DEPTH).fold(json!({}), |inner, _| json!({"f:a": inner}));
    let error = store.write(&key("a"), |_, _| Ok::<_, NotStored>(Write::Put(deep))).unwrap_err();
    assert!(error.to_string().contains("more than 500 levels"), "{error}");
    assert_eq!((store.revision(), &store.get(&key("a")).unwrap()["color"]), (before, &json!("red")));
}
