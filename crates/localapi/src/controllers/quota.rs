//! Keeps `status` of ResourceQuotas: what the objects of their namespace use.

use serde_json::Value;

use super::Controller;
use crate::api::Api;
use crate::quota;
use crate::store::{Change, Event, Key, NotStored, Objects, Write};

pub(super) struct Quotas;

const QUOTAS: &str = "resourcequotas";

impl Controller for Quotas {
    const NAME: &'static str = "quotas";

    fn concerns(key: &Key, _: &Value) -> bool {
        key.resource == QUOTAS
    }

    /// The quotas of the namespace, if the use may be another one: an object came, went, ended, or changed what it requests.
    fn affected(event: &Event, objects: &Objects) -> Vec<Key> {
        let same = |previous: &Value| {
            let fields = ["/spec", "/status/phase"];
            fields.iter().all(|field| previous.pointer(field) == event.object.pointer(field))
        };
        let is_modified = event.change == Change::Modified;
        if event.key.namespace.is_empty() || (is_modified && event.previous.as_deref().is_some_and(same)) {
            return Vec::new();
        }
        objects.of(QUOTAS, Some(&event.key.namespace)).map(|(key, _)| key.clone()).collect()
    }

    fn execute(api: &Api, key: &Key) -> Result<Vec<Key>, NotStored> {
        api.store.write(key, |objects, current| {
            let Some(current) = current else { return Ok(Write::Keep) };
            let status = quota::status(current, objects, &key.namespace);
            if current.get("status") == Some(&status) {
                return Ok::<_, NotStored>(Write::Keep);
            }
            let mut next = (**current).clone();
            next["status"] = status;
            Ok(Write::Put(next))
        })?;
        Ok(Vec::new())
    }
}
