//! Parses JSON into objects: single ones, lists, and the lines of a watch.
//!
//! Unknown fields are ignored, for compatibility with newer servers. `managedFields` are dropped as soon as an object is
//! parsed, because they are a third of its size and unused.

use model::k8s::{Metadata, ObjectMeta, Resource};
use ports::cluster::{Change, ClusterError, Listed};
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::status;

/// Requirements for every kind of API object.
pub(crate) trait Object:
    Resource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Send + Sync + 'static
{
}
impl<K: Resource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned + Send + Sync + 'static> Object
    for K
{
}

pub(crate) fn object<K: Object>(json: &[u8]) -> serde_json::Result<K> {
    serde_json::from_slice(json).map(without_managed_fields)
}

/// # Errors
/// An item is malformed; the error names it.
pub(crate) fn list<K: Object>(json: &[u8]) -> serde_json::Result<Listed<K>> {
    let list: ListJson<K> = serde_json::from_slice(json)?;
    let resource_version = list.metadata.resource_version.unwrap_or_default();
    if resource_version.is_empty() {
        return Err(serde_json::Error::custom("the list has no metadata.resourceVersion"));
    }
    Ok(Listed { items: list.items.0, resource_version })
}

/// Parses one line of a watch. An event of type ERROR becomes the error of its status.
pub(crate) fn event<K: Object>(call: &str, line: &[u8]) -> Result<Change<K>, ClusterError> {
    let malformed = |problem: &dyn std::fmt::Display| ClusterError::Failed {
        call: call.to_owned(),
        code: 200,
        message: format!("malformed watch event: {problem}"),
    };
    let event: EventJson<'_> = serde_json::from_slice(line).map_err(|error| malformed(&error))?;
    let object = event.object.get();
    let decoded = || item(object).map_err(|error: serde_json::Error| malformed(&error));
    match event.kind.as_str() {
        "ADDED" => Ok(Change::Added(decoded()?)),
        "MODIFIED" => Ok(Change::Modified(decoded()?)),
        "DELETED" => Ok(Change::Deleted(decoded()?)),
        "BOOKMARK" => {
            let bookmark: Head = serde_json::from_str(object).map_err(|error| malformed(&error))?;
            match bookmark.metadata.resource_version.filter(|version| !version.is_empty()) {
                Some(resource_version) => Ok(Change::Bookmark { resource_version }),
                None => Err(malformed(&"a bookmark without metadata.resourceVersion")),
            }
        }
        "ERROR" => Err(status::to_error(call.to_owned(), 500, None, object.as_bytes())),
        other => Err(malformed(&format_args!("its type is {other:?}"))),
    }
}

fn without_managed_fields<K: Object>(mut object: K) -> K {
    object.metadata_mut().managed_fields = None;
    object
}

/// Parses an item of a list or event; the error names the item.
fn item<K: Object>(json: &str) -> serde_json::Result<K> {
    object(json.as_bytes()).map_err(|error| {
        let head: Head = serde_json::from_str(json).unwrap_or_default();
        let name = head.metadata.name.unwrap_or_else(|| "without a name".to_owned());
        let name = match head.metadata.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        serde_json::Error::custom(format_args!("{} {name}: {error}", K::KIND))
    })
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

#[derive(Deserialize)]
#[serde(bound = "K: Object")]
struct ListJson<K> {
    #[serde(default)]
    metadata: HeadMeta,
    #[serde(default = "no_items")]
    items: Items<K>,
}

struct Items<K>(Vec<K>);

const fn no_items<K>() -> Items<K> {
    Items(Vec::new())
}

impl<'de, K: Object> Deserialize<'de> for Items<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemsVisitor(std::marker::PhantomData))
    }
}

struct ItemsVisitor<K>(std::marker::PhantomData<K>);

impl<'de, K: Object> Visitor<'de> for ItemsVisitor<K> {
    type Value = Items<K>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of objects")
    }

    /// Go encodes an empty list as null.
    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(no_items())
    }

    /// Parses one item after another, so that only one is in memory twice.
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(json) = sequence.next_element::<&'de RawValue>()? {
            items.push(item(json.get()).map_err(A::Error::custom)?);
        }
        Ok(Items(items))
    }
}
