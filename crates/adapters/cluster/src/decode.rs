//! Parses JSON into objects: single ones, items of lists, and the lines of a watch.
//!
//! Unknown fields are ignored, for compatibility with newer servers. `managedFields` are cut out of the text before an object is
//! parsed: they are a third of its size, unused, and any user may write there what no parser accepts. An object that cannot be
//! parsed is a [`MalformedObject`], and what comes after it is read. The spare capacity of lists is dropped.

mod head;
mod list;

use std::borrow::Cow;
use std::fmt;

use model::MalformedObject;
use model::k8s::{Metadata, ObjectMeta, Resource};
use model::text::cut;
use ports::cluster::{Change, ClusterError};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::head::Head;
pub(crate) use self::list::{EachItem, ItemText, ListScanner};
use crate::status;

/// Limit for one object in bytes. Objects in etcd have at most 1.5 MiB.
pub(crate) const MAX_OBJECT: usize = 8 << 20;
/// Limit for the text of a problem, which may quote any value of the object.
const MAX_PROBLEM: usize = 512;

/// What the objects of a list or watch are decoded as.
pub(crate) trait Decoded: DeserializeOwned + Clone + Send + Sync + 'static {}
impl<K: DeserializeOwned + Clone + Send + Sync + 'static> Decoded for K {}

/// Requirements for every kind of API object that is also read one by one, or written.
pub(crate) trait Object: Decoded + Resource + Metadata<Ty = ObjectMeta> + Serialize {}
impl<K: Decoded + Resource + Metadata<Ty = ObjectMeta> + Serialize> Object for K {}

pub(crate) fn object<K: Decoded>(json: &[u8]) -> serde_json::Result<K> {
    serde_json::from_slice(&without_managed_fields(json)?).map(compact)
}

/// The JSON of an object without `metadata.managedFields`, which are skipped without recursion, whatever they hold.
fn without_managed_fields(json: &[u8]) -> serde_json::Result<Cow<'_, [u8]>> {
    #[derive(Deserialize)]
    struct WithMetadata<'a> {
        #[serde(borrow)]
        metadata: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct WithManagedFields<'a> {
        #[serde(borrow, rename = "managedFields")]
        managed_fields: Option<&'a RawValue>,
    }
    let Some(metadata) = serde_json::from_slice::<WithMetadata<'_>>(json)?.metadata else {
        return Ok(Cow::Borrowed(json));
    };
    let Some(unused) = serde_json::from_str::<WithManagedFields<'_>>(metadata.get())?.managed_fields else {
        return Ok(Cow::Borrowed(json));
    };
    let start = unused.get().as_ptr().addr().saturating_sub(json.as_ptr().addr());
    let (before, rest) = json.split_at_checked(start).unwrap_or((json, &[]));
    let after = rest.get(unused.get().len()..).unwrap_or_default();
    Ok(Cow::Owned([before, b"null", after].concat()))
}

/// The resource version from which a watch continues after the list with this metadata.
pub(crate) fn list_version(metadata: &[u8]) -> serde_json::Result<String> {
    let metadata = if metadata.is_empty() { b"{}" } else { metadata };
    match serde_json::from_slice::<Version>(metadata)?.resource_version {
        Some(version) if !version.is_empty() => Ok(version),
        Some(_) | None => Err(serde_json::Error::custom("the list has no metadata.resourceVersion")),
    }
}

/// Parses an item of a list.
pub(crate) fn item<K: Decoded>(text: ItemText<'_>) -> Result<K, MalformedObject> {
    if text.is_cut {
        return Err(malformed(Head::of_object(text.json), &too_large()));
    }
    object(text.json).map_err(|error| malformed(Head::of_object(text.json), &error))
}

/// One line of a watch, or the beginning of one that is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) json: bytes::Bytes,
    pub(crate) is_cut: bool,
}

/// Parses one line of a watch on this kind. An event of type ERROR becomes the error of its status.
///
/// # Errors
/// Changes are lost: it is not known which object the event is about, or how the watch can go on after it.
pub(crate) fn event<K: Decoded>(call: &str, kind: &str, line: &Line) -> Result<Change<K>, ClusterError> {
    let problem = match read_event(call, line)? {
        Event::Bookmark { resource_version } => return Ok(Change::Bookmark { resource_version }),
        Event::Of(event, json) => match object(json.as_bytes()) {
            Ok(object) => return Ok(event.change(object)),
            Err(error) => error.to_string(),
        },
        Event::Malformed(problem) => problem,
    };
    malformed_event(call, kind, &line.json, &problem)
}

enum Event<'a> {
    /// With the JSON of the object.
    Of(EventKind, &'a str),
    Bookmark {
        resource_version: String,
    },
    /// With the problem.
    Malformed(String),
}

#[derive(Clone, Copy)]
enum EventKind {
    Added,
    Modified,
    Deleted,
}

impl EventKind {
    fn of(text: &str) -> Option<Self> {
        match text {
            "ADDED" => Some(Self::Added),
            "MODIFIED" => Some(Self::Modified),
            "DELETED" => Some(Self::Deleted),
            _ => None,
        }
    }

    const fn change<K>(self, object: K) -> Change<K> {
        match self {
            Self::Added => Change::Added(object),
            Self::Modified => Change::Modified(object),
            Self::Deleted => Change::Deleted(object),
        }
    }
}

/// An event of a watch on any kind.
fn read_event<'a>(call: &str, line: &'a Line) -> Result<Event<'a>, ClusterError> {
    if line.is_cut {
        return Ok(Event::Malformed(too_large()));
    }
    let event: EventJson<'a> = match serde_json::from_slice(&line.json) {
        Ok(event) => event,
        Err(error) => return Ok(Event::Malformed(error.to_string())),
    };
    let object = event.object.get();
    if let Some(kind) = EventKind::of(&event.kind) {
        return Ok(Event::Of(kind, object));
    }
    match event.kind.as_str() {
        "BOOKMARK" => {
            let head = Head::of_object(object.as_bytes());
            match head.resource_version {
                version if version.is_empty() => {
                    Err(broken(call, &"a bookmark without metadata.resourceVersion"))
                }
                resource_version => Ok(Event::Bookmark { resource_version }),
            }
        }
        "ERROR" => Err(status::to_error(call.to_owned(), 500, None, object.as_bytes())),
        other => Err(broken(call, &format_args!("its type is {other:?}"))),
    }
}

/// Whether the beginning of a line has the name and version of an object.
pub(crate) fn is_about_an_object(line: &[u8]) -> bool {
    let head = Head::of_event(line);
    EventKind::of(&head.event).is_some() && head.is_known()
}

/// The watch goes on if it is known which object the event is about, and at which version.
fn malformed_event<K>(call: &str, kind: &str, line: &[u8], problem: &str) -> Result<Change<K>, ClusterError> {
    let head = Head::of_event(line);
    let (event, is_known) = (EventKind::of(&head.event), head.is_known());
    let object = malformed(head, &problem);
    match event {
        Some(event) if is_known => {
            Ok(Change::Malformed { object, is_deleted: matches!(event, EventKind::Deleted) })
        }
        Some(_) => Err(broken(call, &format_args!("{kind} {object}"))),
        None => Err(broken(call, &object.problem)),
    }
}

fn malformed(head: Head, problem: &dyn fmt::Display) -> MalformedObject {
    let problem = cut(&problem.to_string(), MAX_PROBLEM).into_owned();
    let Head { namespace, name, uid, resource_version, .. } = head;
    MalformedObject { namespace, name, uid, resource_version, problem }
}

fn too_large() -> String {
    format!("it is larger than {} MiB", MAX_OBJECT >> 20)
}

fn broken(call: &str, problem: &dyn fmt::Display) -> ClusterError {
    let message = format!("malformed watch event: {problem}");
    ClusterError::Failed { call: call.to_owned(), code: 200, message }
}

fn compact<K: Decoded>(object: K) -> K {
    // The lists of a copy have no spare capacity. Those that were parsed have space for four elements, up to a kilobyte each.
    object.clone()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Version {
    resource_version: Option<String>,
}

#[derive(Debug, Deserialize)]
struct EventJson<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use model::k8s::Pod;

    use super::*;

    fn brief(change: Result<Change<Pod>, ClusterError>) -> String {
        match change {
            Ok(Change::Added(pod)) => format!("added {}", pod.metadata.name.unwrap()),
            Ok(Change::Malformed { object, is_deleted }) => {
                format!("malformed at {} deleted {is_deleted}: {object}", object.resource_version)
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("error: {error}"),
        }
    }

    fn event_of(json: &str) -> String {
        brief(event(
            "watch pods",
            "Pod",
            &Line { json: Bytes::copy_from_slice(json.as_bytes()), is_cut: false },
        ))
    }

    /// Managed fields as a real API server 1.36 stored them, and deeper than the parser goes.
    fn poisons() -> [String; 4] {
        let deep = format!("{}1{}", r#"{"f:a":"#.repeat(20_000), "}".repeat(20_000));
        [
            r#"[{"manager":"m","operation":"Update","time":"10000-01-01T19:59:59Z"}]"#.to_owned(),
            format!(r#"[{{"fieldsV1":{deep}}}]"#),
            "7".to_owned(),
            r#"{"a":"]}"}"#.to_owned(),
        ]
    }

    #[test]
    fn managed_fields_are_never_parsed() {
        for poison in poisons() {
            let json = format!(
                r#"{{"kind":"Pod","metadata":{{"name":"web","managedFields":{poison},"namespace":"a"}},"spec":{{"containers":[]}}}}"#
            );
            let pod: Pod = object(json.as_bytes()).unwrap();
            assert_eq!(
                (pod.metadata.name.as_deref(), pod.metadata.namespace.as_deref()),
                (Some("web"), Some("a"))
            );
            assert_eq!(pod.metadata.managed_fields, None);
            assert!(pod.spec.is_some());
            let line = format!(r#"{{"type":"ADDED","object":{json}}}"#);
            assert_eq!(event_of(&line), "added web");
        }
        assert!(object::<Pod>(b"{}").is_ok());
        assert!(object::<Pod>(br#"{"metadata":null}"#).is_ok());
    }

    #[test]
    fn malformed_watch_event_is_about_one_object_if_its_name_and_version_are_known() {
        let head = r#""name":"web","namespace":"a","uid":"u","resourceVersion":"7""#;
        let bad = format!(r#"{{"metadata":{{{head},"creationTimestamp":"10000-01-01T00:00:00Z"}}}}"#);
        for (kind, is_deleted) in [("ADDED", false), ("MODIFIED", false), ("DELETED", true)] {
            let seen = event_of(&format!(r#"{{"type":"{kind}","object":{bad}}}"#));
            assert!(seen.starts_with(&format!("malformed at 7 deleted {is_deleted}: a/web: ")), "{seen}");
        }
        // Not even JSON, but what comes before the problem is enough.
        let seen = event_of(&format!(r#"{{"type":"ADDED","object":{{"metadata":{{{head},"labels":{{]"#));
        assert!(seen.starts_with("malformed at 7 deleted false: a/web: "), "{seen}");
        let seen = event_of(r#"{"type":"ADDED","object":{"metadata":{"name":"web"},"spec":1}}"#);
        assert!(
            seen.starts_with("error: watch pods: malformed watch event: Pod web: invalid type"),
            "{seen}"
        );
        let seen = event_of(r#"{"object":7"#);
        assert!(seen.starts_with("error: watch pods: malformed watch event: "), "{seen}");
    }

    #[test]
    fn problem_of_a_malformed_object_quotes_no_long_value() {
        let json = format!(r#"{{"metadata":{{"name":"web"}},"spec":"{}"}}"#, "x".repeat(1 << 20));
        let malformed = item::<Pod>(ItemText { json: json.as_bytes(), is_cut: false }).unwrap_err();
        assert_eq!(malformed.name, "web");
        assert!(malformed.problem.len() <= MAX_PROBLEM, "{}", malformed.problem.len());
    }
}
