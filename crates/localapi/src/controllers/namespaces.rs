//! Says in the conditions of a namespace that is being deleted what is left in it, and which finalizers keep that.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Controller;
use crate::api::Api;
use crate::object::{self, items, text};
use crate::resources;
use crate::store::{Change, Event, Key, NotStored, Objects, Write};

pub(super) struct Namespaces;

const NAMESPACES: &str = "namespaces";
/// How many objects are looked at for their finalizers, and how many finalizers are named.
const MAX_EXAMINED: usize = 100;
const MAX_NAMED: usize = 10;

impl Controller for Namespaces {
    const NAME: &'static str = "namespaces";

    fn concerns(key: &Key, object: &Value) -> bool {
        key.resource == NAMESPACES && object::is_terminating(object)
    }

    /// The namespace, if it is being deleted and one of its objects is, too.
    fn affected(event: &Event, objects: &Objects) -> Vec<Key> {
        let is_deletion = event.change == Change::Deleted || object::is_terminating(&event.object);
        let name = match event.key.resource {
            NAMESPACES => &event.key.name,
            _ => &event.key.namespace,
        };
        if !is_deletion || name.is_empty() {
            return Vec::new();
        }
        let key = Key::new(NAMESPACES, "", name);
        let is_deleted = objects.get(&key).is_some_and(|namespace| object::is_terminating(namespace));
        if is_deleted { vec![key] } else { Vec::new() }
    }

    fn execute(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored> {
        let now = object::time(api.now());
        api.store.write(key, |objects, current| {
            let current = current.filter(|namespace| object::is_terminating(namespace));
            let Some(current) = current else { return Ok::<_, NotStored>(Write::Keep) };
            let mut next = (**current).clone();
            let conditions = conditions(current, &Rest::of(objects, &key.name), &now);
            object::map_at(&mut next, "status").insert("conditions".to_owned(), conditions);
            Ok(if next == **current { Write::Keep } else { Write::Put(next) })
        })?;
        Ok(Vec::new())
    }
}

/// What is left in a namespace: how many objects of each kind, and how many of them each finalizer keeps.
#[derive(Debug, Default)]
struct Rest {
    kinds: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

impl Rest {
    fn of(objects: &Objects, namespace: &str) -> Self {
        let mut rest = Self::default();
        for (at, key) in objects.keys_in(namespace).iter().enumerate() {
            let group = resources::stored(key.resource).map_or("", |resource| resource.group);
            *rest.kinds.entry(format!("{}.{group}", key.resource)).or_default() += 1;
            let object = if at < MAX_EXAMINED { objects.get(key) } else { None };
            for finalizer in object.into_iter().flat_map(|object| object::finalizers(object)) {
                let name = finalizer.as_str().unwrap_or_default().to_owned();
                *rest.finalizers.entry(name).or_default() += 1;
            }
        }
        rest
    }
}

/// `name TEXT number …` of each, and how many more there are.
fn listed(counts: &BTreeMap<String, usize>, text: &str) -> String {
    let named = counts.iter().take(MAX_NAMED);
    let mut parts: Vec<String> =
        named.map(|(name, count)| format!("{name} {text} {count} resource instances")).collect();
    if let Some(more) = counts.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        parts.push(format!("and {more} more"));
    }
    parts.join(", ")
}

/// The conditions of the namespace controller, in its order. Nothing here can fail to be discovered, parsed or deleted.
fn conditions(namespace: &Value, rest: &Rest, now: &str) -> Value {
    let removed = "All content successfully removed".to_owned();
    let content = match rest.kinds.is_empty() {
        true => ("False", "ContentRemoved", removed.clone()),
        false => {
            let message = format!("Some resources are remaining: {}", listed(&rest.kinds, "has"));
            ("True", "SomeResourcesRemain", message)
        }
    };
    let finalizers = match rest.finalizers.is_empty() {
        true => ("False", "ContentRemoved", removed),
        false => {
            let message = format!("Some finalizers are remaining: {}", listed(&rest.finalizers, "in"));
            ("True", "SomeFinalizerRemain", message)
        }
    };
    let never = |reason, message: &str| ("False", reason, message.to_owned());
    let all = [
        (
            "NamespaceDeletionDiscoveryFailure",
            never("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            never("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            never("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        ("NamespaceContentRemaining", content),
        ("NamespaceFinalizersRemaining", finalizers),
    ];
    all.into_iter()
        .map(|(kind, (status, reason, message))| {
            let before = items(namespace, "/status/conditions").iter().find(|before| text(before, "/type") == kind);
            let same = before.filter(|before| text(before, "/status") == status);
            let since = same.map_or(now, |before| text(before, "/lastTransitionTime"));
            json!({
                "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn rest(objects: &[(&'static str, Value)]) -> Rest {
        let store = Store::new(10);
        for (resource, object) in objects {
            let key = Key::new(resource, object::namespace(object), object::name(object));
            store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object.clone()))).unwrap();
        }
        store.read(|objects| Rest::of(objects, "a"))
    }

    fn object(name: &str, finalizers: &[&str]) -> Value {
        json!({"metadata": {"name": name, "namespace": "a", "finalizers": finalizers}})
    }

    /// Type, status and message of the last two conditions.
    fn lines(conditions: &Value) -> Vec<String> {
        let last = items(conditions, "").iter().skip(3);
        last.map(|condition| format!("{} {}", text(condition, "/status"), text(condition, "/message")))
            .collect()
    }

    #[test]
    fn what_is_left_and_what_keeps_it_is_named_with_its_number() {
        let left = rest(&[
            ("pods", object("p", &["example.com/x"])),
            ("pods", object("q", &[])),
            ("persistentvolumeclaims", object("c", &["example.com/x", "kubernetes.io/pvc-protection"])),
            ("roles", object("r", &[])),
        ]);
        let first = conditions(&json!({}), &left, "2026-01-01T00:00:00Z");
        assert_eq!(
            lines(&first),
            [
                "True Some resources are remaining: persistentvolumeclaims. has 1 resource instances, pods. has 2 resource instances, roles.rbac.authorization.k8s.io has 1 resource instances",
                "True Some finalizers are remaining: example.com/x in 2 resource instances, kubernetes.io/pvc-protection in 1 resource instances",
            ]
        );
        // The time is that of the last change of the status.
        let namespace = json!({"status": {"conditions": first}});
        let fewer = conditions(&namespace, &rest(&[("pods", object("q", &[]))]), "2026-01-01T00:00:09Z");
        assert_eq!(
            lines(&fewer),
            [
                "True Some resources are remaining: pods. has 1 resource instances",
                "False All content successfully removed",
            ]
        );
        let times: Vec<&str> =
            items(&fewer, "").iter().map(|condition| text(condition, "/lastTransitionTime")).collect();
        assert_eq!(times[3..], ["2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"]);
        assert_eq!(
            conditions(
                &json!({"status": {"conditions": &fewer}}),
                &rest(&[("pods", object("q", &[]))]),
                "later"
            ),
            fewer
        );
    }

    #[test]
    fn any_number_of_finalizers_is_ten_names_and_a_number() {
        let objects: Vec<_> = (0..30)
            .map(|at| ("configmaps", object(&format!("m{at}"), &[&format!("example.com/{at:02}")])))
            .collect();
        let found = conditions(&json!({}), &rest(&objects), "now");
        let message = lines(&found).remove(1);
        assert!(message.ends_with("example.com/09 in 1 resource instances, and 20 more"), "{message}");
    }
}
