//! GET of a collection: selectors, pages, and the requested revision.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use ::http::{Response, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::negotiation::{self, Include, Media};
use super::selection::Selection;
use super::{Call, response};
use crate::http::Body;
use crate::status::ApiError;
use crate::store::{Key, Listing, Revision, Stored};

/// A list that serializes its objects without copying them.
#[derive(Serialize)]
pub(super) struct List<T> {
    pub(super) kind: String,
    #[serde(rename = "apiVersion")]
    pub(super) api_version: String,
    pub(super) metadata: Value,
    pub(super) items: Vec<T>,
}

/// The fields of an object that only the list has.
const LIST_FIELDS: [&str; 2] = ["kind", "apiVersion"];

/// An object without the fields of the list.
pub(super) struct Item<'a>(pub(super) Cow<'a, Value>);

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(field, _)| !LIST_FIELDS.contains(&field.as_str())))
    }
}

/// The text of an object, written without the fields of the list.
struct TextItem<'a>(&'a [u8]);

impl Serialize for TextItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(self.0).map_err(S::Error::custom)?;
        serializer.collect_map(fields.iter().filter(|(field, _)| !LIST_FIELDS.contains(&field.as_str())))
    }
}

pub(super) fn list(call: &Call) -> Result<Response<Body>, ApiError> {
    call.check_list_options()?;
    let selection = Selection::of(call)?;
    let after = call.query.get("continue").map(Continue::decode).transpose()?;
    let listing = at_revision(call, after.as_ref())?;
    let first = after.as_ref().map_or(0, |after| {
        let last = (&after.namespace, &after.name);
        listing.objects.partition_point(|(key, _)| (&key.namespace, &key.name) <= last)
    });
    let mut chosen = listing.objects[first..].iter().filter(|(_, object)| selection.includes(object));
    // Revision 0 is answered from the cache of the real server, which ignores the limit.
    let from_cache = call.query.get("resourceVersion") == Some("0") && after.is_none();
    let limit = call.query.number("limit")?.filter(|limit| *limit > 0 && !from_cache);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let page: Vec<&(Key, Arc<Stored>)> = chosen.by_ref().take(limit).collect();
    let mut metadata = json!({"resourceVersion": listing.revision.to_string()});
    if let (true, Some((last, _))) = (chosen.next().is_some(), page.last()) {
        metadata["continue"] = Value::String(Continue::after(listing.revision, last).encode());
        if selection.is_everything() {
            metadata["remainingItemCount"] = json!(listing.objects.len() - first - page.len());
        }
    }
    write(call, page.into_iter().map(|(_, object)| &**object), metadata)
}

fn write<'a>(
    call: &Call,
    objects: impl Iterator<Item = &'a Stored>,
    metadata: Value,
) -> Result<Response<Body>, ApiError> {
    let resource = call.resource();
    let (kind, api_version) = (format!("{}List", resource.kind), resource.api_version());
    if call.writes_text() {
        let items = objects.map(|object| TextItem(object.text())).collect();
        return Ok(response::json(StatusCode::OK, &List { kind, api_version, metadata, items }));
    }
    let trees: Vec<Arc<Value>> = objects.map(Stored::tree).collect();
    let unknown_fields = call.api.behaviour.unknown_fields;
    let objects = trees.iter().map(|object| negotiation::converted(resource, object, unknown_fields));
    let items = match &call.media {
        Media::Object => objects.map(Item).collect(),
        Media::Metadata(version) => {
            let items = objects.map(|object| negotiation::metadata_only(&object, version)).collect();
            let list = negotiation::metadata_list(items, metadata, version);
            return Ok(response::json(StatusCode::OK, &list));
        }
        Media::Table(version) => {
            let include = Include::parse(call.query.get("includeObject"))?;
            let objects: Vec<Value> = objects.map(Cow::into_owned).collect();
            let mut table = negotiation::as_table(resource, &objects, version, include, call.api.now());
            table["metadata"] = metadata;
            return Ok(response::json(StatusCode::OK, &table));
        }
    };
    Ok(response::json(StatusCode::OK, &List { kind, api_version, metadata, items }))
}

/// The current collection, or that at the revision of the continue token or of the request.
fn at_revision(call: &Call, after: Option<&Continue>) -> Result<Listing, ApiError> {
    let (store, resource) = (&call.api.store, call.resource().name);
    let namespace = call.info.namespace.as_deref();
    let requested = call.revision()?;
    if after.is_some() && requested.is_some() {
        let message = "specifying resource version is not allowed when using continue";
        return Err(ApiError::bad_request(message));
    }
    let exact = match call.query.get("resourceVersionMatch") {
        // A page of a requested revision is of exactly that revision.
        None if call.query.number("limit")?.is_some_and(|limit| limit > 0) => {
            after.map_or(requested, |after| after.revision)
        }
        Some("Exact") => requested,
        None | Some(_) => after.and_then(|after| after.revision),
    };
    call.refuse_future(requested.or(exact))?;
    match exact {
        None => Ok(store.list(resource, namespace)),
        Some(revision) => store.list_at(resource, namespace, revision).map_err(|_| match after {
            Some(after) => ApiError::expired_page(&after.of_now().encode()),
            None => ApiError::expired("The resourceVersion for the provided list is too old."),
        }),
    }
}

/// A continue token: the last key of the previous page, and the revision of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Continue {
    /// `None`: that of each page is its own.
    revision: Option<Revision>,
    namespace: String,
    name: String,
}

impl Continue {
    fn after(revision: Revision, last: &Key) -> Self {
        Self { revision: Some(revision), namespace: last.namespace.clone(), name: last.name.clone() }
    }

    /// The rest as it is now, for a client that takes an inconsistent list over none.
    fn of_now(&self) -> Self {
        Self { revision: None, ..self.clone() }
    }

    fn encode(&self) -> String {
        let revision = self.revision.unwrap_or_default();
        URL_SAFE_NO_PAD.encode(format!("{revision}/{}/{}", self.namespace, self.name))
    }

    fn decode(token: &str) -> Result<Self, ApiError> {
        let read = || {
            let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
            let mut parts = text.splitn(3, '/');
            let revision = Some(parts.next()?.parse().ok()?).filter(|revision| *revision > 0);
            let mut part = || parts.next().map(str::to_owned);
            Some(Self { revision, namespace: part()?, name: part()? })
        };
        read().ok_or_else(|| ApiError::bad_request("continue key is not valid"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_token_round_trips() {
        let token = Continue::after(7, &Key::new("pods", "a", "b"));
        assert_eq!(Continue::decode(&token.encode()).unwrap(), token);
        assert_eq!(Continue::decode(&token.of_now().encode()).unwrap(), token.of_now());
        assert!(Continue::decode("x").is_err());
    }
}
