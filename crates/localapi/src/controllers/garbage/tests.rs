use serde_json::json;

use super::*;
use crate::store::Store;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn map(name: &str, owners: &[(&str, bool)]) -> Value {
    let owners: Vec<Value> = owners.iter().map(|(owner, blocks)| reference(owner, *blocks)).collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}"), "ownerReferences": owners},
    })
}

fn reference(owner: &str, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": format!("uid-{owner}"), "blockOwnerDeletion": blocks})
}

fn deleted_with(finalizer: &str, mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    object["metadata"]["finalizers"] = json!([finalizer]);
    object
}

fn store(objects: &[Value]) -> Store {
    let store = Store::new(10);
    for object in objects {
        let key = Key::new("configmaps", "a", object::name(object));
        store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object.clone()))).unwrap();
    }
    store
}

/// What happens to the object of this name.
fn outcome(objects: &[Value], name: &str) -> String {
    let key = Key::new("configmaps", "a", name);
    let done = store(objects).read(|objects| step(&key, objects.get(&key).unwrap(), objects, NOW));
    let owners = |object: &Value| {
        let names = items(object, "/metadata/ownerReferences").iter().map(|owner| text(owner, "/name"));
        names.collect::<Vec<_>>().join(",")
    };
    match done {
        Step::Nothing | Step::Decide(Decision::Leave) => "nothing".to_owned(),
        Step::Decide(Decision::Remove(_)) => "remove".to_owned(),
        Step::Decide(Decision::Mark(object)) if object::is_terminating(&object) => {
            format!("mark, finalizers {}", object["metadata"]["finalizers"])
        }
        Step::Decide(Decision::Mark(object)) => format!("owners: {}", owners(&object)),
        Step::Visit(keys) => {
            format!("visit {}", keys.iter().map(|key| key.name.as_str()).collect::<Vec<_>>().join(","))
        }
    }
}

#[test]
fn dependent_is_deleted_when_its_last_owner_is_gone() {
    let (one, two) = (map("one", &[]), map("two", &[]));
    assert_eq!(outcome(&[map("d", &[("one", false)])], "d"), "remove");
    assert_eq!(outcome(&[map("d", &[("one", false)]), one.clone()], "d"), "nothing");
    assert_eq!(outcome(&[map("d", &[("one", false), ("two", false)]), two], "d"), "owners: two");
    // Another object has taken the name.
    let mut other = one;
    other["metadata"]["uid"] = json!("another");
    assert_eq!(outcome(&[map("d", &[("one", false)]), other], "d"), "remove");
}

#[test]
fn owner_of_a_kind_that_is_not_served_or_in_another_scope_is_taken_as_present() {
    let mut dependent = map("d", &[("one", false)]);
    dependent["metadata"]["ownerReferences"][0]["kind"] = json!("Deployment");
    dependent["metadata"]["ownerReferences"][0]["apiVersion"] = json!("apps/v1");
    assert_eq!(outcome(&[dependent], "d"), "nothing");
    assert_eq!(key_of(&reference("one", false), ""), None);
}

#[test]
fn foreground_deletion_waits_for_dependents_that_block_it() {
    let owner = deleted_with(FOREGROUND, map("one", &[]));
    let (blocks, other) = (map("b", &[("one", true)]), map("o", &[("one", false)]));
    assert_eq!(outcome(&[owner.clone(), blocks.clone(), other.clone()], "one"), "visit b");
    assert_eq!(outcome(&[owner.clone(), blocks.clone()], "b"), "remove");
    assert_eq!(outcome(&[owner.clone(), other], "one"), "remove");
    // A dependent with dependents of its own is deleted in the foreground, too.
    let below = map("below", &[("b", true)]);
    assert_eq!(outcome(&[owner, blocks, below], "b"), r#"mark, finalizers ["foregroundDeletion"]"#);
}

#[test]
fn orphaned_dependents_stay_without_the_owner() {
    let owner = deleted_with(ORPHAN, map("one", &[]));
    let dependent = map("d", &[("one", true)]);
    assert_eq!(outcome(&[owner.clone(), dependent.clone()], "one"), "visit d");
    assert_eq!(outcome(&[owner.clone(), dependent], "d"), "owners: ");
    assert_eq!(outcome(&[owner], "one"), "remove");
}

#[test]
fn other_finalizers_keep_an_owner_after_the_collector_has_done_its_part() {
    let mut owner = deleted_with(ORPHAN, map("one", &[]));
    owner["metadata"]["finalizers"] = json!(["a/b", ORPHAN]);
    assert_eq!(outcome(&[owner], "one"), r#"mark, finalizers ["a/b"]"#);
}

#[test]
fn change_that_concerns_no_owner_needs_no_look() {
    let store = store(&[map("one", &[]), map("d", &[("one", false)])]);
    let mut live = store.watch_everything();
    let key = Key::new("configmaps", "a", "d");
    let put = |object: Value| store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
    let mut changed = map("d", &[("one", false)]);
    changed["data"] = json!({"a": "b"});
    put(changed);
    let event = live.try_event().unwrap().event();
    assert_eq!(store.read(|objects| Garbage::affected(&event, objects)), []);
    put(map("d", &[]));
    let event = live.try_event().unwrap().event();
    assert_eq!(
        store.read(|objects| Garbage::affected(&event, objects)),
        [Key::new("configmaps", "a", "one")]
    );
}

#[test]
fn owners_in_a_circle_do_not_wait_for_each_other() {
    let first = deleted_with(FOREGROUND, map("one", &[("two", true)]));
    let second = map("two", &[("one", true)]);
    let key = Key::new("configmaps", "a", "two");
    let store = store(&[first.clone(), second]);
    let done = store.read(|objects| step(&key, objects.get(&key).unwrap(), objects, NOW));
    let Step::Decide(Decision::Mark(second)) = done else { panic!("{done:?}") };
    assert_eq!(second["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], false);
    // Nothing blocks the first one any more.
    assert_eq!(outcome(&[first, second], "one"), "remove");
}
