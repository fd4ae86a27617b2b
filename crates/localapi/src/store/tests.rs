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

fn seen(events: &[Event]) -> Vec<(Change, String, Revision)> {
    events.iter().map(|event| (event.change, event.key.name.clone(), event.revision)).collect()
}

fn drained(subscription: &mut Subscription) -> Vec<Event> {
    std::iter::from_fn(|| subscription.live.try_recv().ok()).collect()
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
    assert_eq!(seen(&watch.backlog), [(Change::Modified, "a".to_owned(), second)]);
    let third = remove(&store, "a");
    assert_eq!(seen(&drained(&mut watch)), [(Change::Deleted, "a".to_owned(), third)]);
}

#[test]
fn watch_of_one_namespace_excludes_other_namespaces_and_kinds() {
    let store = Store::new(10);
    let mut watch = store.watch("pods", Some("other"), From::Now).unwrap();
    put(&store, "a", "red");
    assert!(drained(&mut watch).is_empty());
    assert!(store.watch("nodes", None, From::Everything).unwrap().initial.is_empty());
    assert_eq!(store.watch("pods", None, From::Everything).unwrap().initial.len(), 1);
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
fn slow_watcher_is_closed_and_others_stay_open() {
    let store = Store::new(10);
    let mut slow = store.watch("pods", None, From::Now).unwrap();
    for number in 0..=WATCH_QUEUE {
        put(&store, "a", &number.to_string());
    }
    let mut fresh = store.watch("pods", None, From::Now).unwrap();
    put(&store, "a", "last");
    assert_eq!(drained(&mut slow).len(), WATCH_QUEUE);
    assert!(slow.live.is_closed());
    assert_eq!(drained(&mut fresh).len(), 1);
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
    let colors: Vec<(&str, &str)> = listing
        .objects
        .iter()
        .map(|(key, object)| (key.name.as_str(), object["color"].as_str().unwrap()))
        .collect();
    assert_eq!(colors, [("a", "red"), ("b", "red")]);
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
    let watch = again.watch("pods", None, From::After(first)).unwrap();
    let changes: Vec<Change> = watch.backlog.iter().map(|event| event.change).collect();
    assert_eq!(changes, [Change::Modified, Change::Deleted, Change::Added]);
    assert_eq!(put(&again, "b", "blue"), store.revision() + 1);
}

#[test]
fn invalid_snapshot_is_refused_with_the_index_of_the_entry() {
    let bad = json!({"revision": 3, "compacted": 1, "history": [], "objects": [{"resource": "unicorns"}]});
    assert_eq!(Store::restore(&bad, 10).unwrap_err(), snapshot::InvalidSnapshot::Object(0));
    assert_eq!(Store::restore(&json!({}), 10).unwrap_err(), snapshot::InvalidSnapshot::Revision);
}
