//! Parses JSON into objects: single ones, lists, and the lines of a watch.
//!
//! Unknown fields are ignored, for compatibility with newer servers. `managedFields` are dropped as soon as an object is
//! parsed, because they are a third of its size and unused, and so is the spare capacity of lists.

use std::fmt;

use model::k8s::{Metadata, ObjectMeta, Resource};
use ports::cluster::{Change, ClusterError, Listed};
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::status;

/// Requirements for every kind of API object.
pub(crate) trait Object:
    Resource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Clone + Send + Sync + 'static
{
}
impl<K> Object for K where
    K: Resource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Clone + Send + Sync + 'static
{
}

pub(crate) fn object<K: Object>(json: &[u8]) -> serde_json::Result<K> {
    serde_json::from_slice(json).map(compact)
}

/// # Errors
/// An item is malformed; the error names it.
pub(crate) fn list<K: Object>(json: &[u8]) -> serde_json::Result<Listed<K>> {
    let mut items = Vec::new();
    let resource_version = read_list(json, &mut |json| {
        items.push(item(json)?);
        Ok(())
    })?;
    Ok(Listed { items, resource_version })
}

/// Reads a list of any kind: passes the JSON of one item after another to `item`, so that only one is in memory twice, and returns
/// the resource version.
fn read_list(json: &[u8], item: &mut ReadItem<'_>) -> serde_json::Result<String> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let metadata = ListReader(item).deserialize(&mut reader)?;
    reader.end()?;
    let resource_version = metadata.resource_version.unwrap_or_default();
    if resource_version.is_empty() {
        return Err(serde_json::Error::custom("the list has no metadata.resourceVersion"));
    }
    Ok(resource_version)
}

/// Parses one line of a watch. An event of type ERROR becomes the error of its status.
pub(crate) fn event<K: Object>(call: &str, line: &[u8]) -> Result<Change<K>, ClusterError> {
    let (kind, object) = match read_event(call, line)? {
        Event::Of(kind, object) => (kind, object),
        Event::Bookmark { resource_version } => return Ok(Change::Bookmark { resource_version }),
    };
    let object = item(object).map_err(|error| malformed(call, &error))?;
    Ok(match kind {
        EventKind::Added => Change::Added(object),
        EventKind::Modified => Change::Modified(object),
        EventKind::Deleted => Change::Deleted(object),
    })
}

enum Event<'a> {
    /// With the JSON of the object.
    Of(EventKind, &'a str),
    Bookmark {
        resource_version: String,
    },
}

enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// An event of a watch on any kind.
fn read_event<'a>(call: &str, line: &'a [u8]) -> Result<Event<'a>, ClusterError> {
    let event: EventJson<'a> = serde_json::from_slice(line).map_err(|error| malformed(call, &error))?;
    let object = event.object.get();
    match event.kind.as_str() {
        "ADDED" => Ok(Event::Of(EventKind::Added, object)),
        "MODIFIED" => Ok(Event::Of(EventKind::Modified, object)),
        "DELETED" => Ok(Event::Of(EventKind::Deleted, object)),
        "BOOKMARK" => {
            let bookmark: Head = serde_json::from_str(object).map_err(|error| malformed(call, &error))?;
            match bookmark.metadata.resource_version.filter(|version| !version.is_empty()) {
                Some(resource_version) => Ok(Event::Bookmark { resource_version }),
                None => Err(malformed(call, &"a bookmark without metadata.resourceVersion")),
            }
        }
        "ERROR" => Err(status::to_error(call.to_owned(), 500, None, object.as_bytes())),
        other => Err(malformed(call, &format_args!("its type is {other:?}"))),
    }
}

fn malformed(call: &str, problem: &dyn fmt::Display) -> ClusterError {
    let message = format!("malformed watch event: {problem}");
    ClusterError::Failed { call: call.to_owned(), code: 200, message }
}

fn compact<K: Object>(mut object: K) -> K {
    object.metadata_mut().managed_fields = None;
    // The lists of a copy have no spare capacity. Those that were parsed have space for four elements, up to a kilobyte each.
    object.clone()
}

/// Parses an item of a list or event; the error names the item.
fn item<K: Object>(json: &str) -> serde_json::Result<K> {
    object(json.as_bytes()).map_err(|error| item_error(K::KIND, json, &error))
}

fn item_error(kind: &str, json: &str, error: &serde_json::Error) -> serde_json::Error {
    let head: Head = serde_json::from_str(json).unwrap_or_default();
    let name = head.metadata.name.unwrap_or_else(|| "without a name".to_owned());
    let name = match head.metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    };
    serde_json::Error::custom(format_args!("{kind} {name}: {error}"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Head {
    metadata: HeadMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HeadMeta {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
}

#[derive(Debug, Deserialize)]
struct EventJson<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

type ReadItem<'a> = dyn FnMut(&str) -> serde_json::Result<()> + 'a;

/// Reads a list object, and returns its metadata.
struct ListReader<'a, 'f>(&'a mut ReadItem<'f>);

impl<'de> DeserializeSeed<'de> for ListReader<'_, '_> {
    type Value = HeadMeta;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<HeadMeta, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ListReader<'_, '_> {
    type Value = HeadMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<HeadMeta, A::Error> {
        let mut metadata = HeadMeta::default();
        while let Some(name) = fields.next_key::<String>()? {
            match name.as_str() {
                "metadata" => metadata = fields.next_value()?,
                "items" => fields.next_value_seed(ItemsReader(&mut *self.0))?,
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(metadata)
    }
}

struct ItemsReader<'a, 'f>(&'a mut ReadItem<'f>);

impl<'de> DeserializeSeed<'de> for ItemsReader<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsReader<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    /// Go encodes an empty list as null.
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while let Some(json) = sequence.next_element::<&'de RawValue>()? {
            (self.0)(json.get()).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
