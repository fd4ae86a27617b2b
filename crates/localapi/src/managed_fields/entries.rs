//! The entries of `metadata.managedFields`: which writer owns which paths.
//!
//! Owns their identity, their order, and the bound on how many of them come from updates.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::set::FieldSet;

/// More entries of updates are merged, the oldest first.
const MAX_UPDATES: usize = 10;
/// The name of the entry that the oldest updates are merged into.
const OLD_UPDATES: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// What identifies an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// Empty for [`Operation::Apply`]: a manager has one entry for all versions.
    pub(super) version: String,
    pub(super) subresource: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) api_version: String,
    /// RFC 3339 in whole seconds, or empty.
    pub(super) time: String,
    pub(super) fields: FieldSet,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entries(BTreeMap<Owner, Entry>);

impl Owner {
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let version = match operation {
            Operation::Apply => String::new(),
            Operation::Update => api_version.to_owned(),
        };
        let (manager, subresource) = (manager.to_owned(), subresource.to_owned());
        Self { manager, operation, version, subresource }
    }

    /// As in the message of a conflict.
    pub(super) fn shown(&self) -> String {
        let mut shown = Value::from(self.manager.as_str()).to_string();
        if !self.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {}", Value::from(self.subresource.as_str())));
        }
        if self.operation == Operation::Update {
            shown.push_str(&format!(" using {}", self.version));
        }
        shown
    }
}

impl Entries {
    /// The entries of an object. Those that cannot be decoded have no effect.
    pub(super) fn of(object: &Value) -> Self {
        let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        Self(entries.into_iter().flatten().filter_map(decode).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, owner: &Owner) -> Option<&Entry> {
        self.0.get(owner)
    }

    pub(super) fn insert(&mut self, owner: Owner, entry: Entry) {
        self.0.insert(owner, entry);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Owner, &Entry)> {
        self.0.iter()
    }

    /// Removes paths from all entries but that of `except`.
    pub(super) fn disown(&mut self, fields: &FieldSet, except: Option<&Owner>) {
        for (_, entry) in self.0.iter_mut().filter(|(owner, _)| Some(*owner) != except) {
            entry.fields.subtract(fields);
        }
    }

    pub(super) fn remove_empty(&mut self) {
        self.0.retain(|_, entry| !entry.fields.is_empty());
    }

    /// Adds the paths of an update to the entry of its writer.
    pub(super) fn add_update(&mut self, owner: Owner, api_version: &str, time: &str, fields: FieldSet) {
        let entry = self.0.entry(owner).or_default();
        entry.fields.extend(fields);
        entry.api_version = api_version.to_owned();
        entry.time = time.to_owned();
    }

    /// Merges the oldest updates of each version until there are few enough.
    pub(super) fn limit_updates(&mut self) {
        let mut updates: Vec<(String, Owner)> = self
            .0
            .iter()
            .filter(|(owner, _)| owner.operation == Operation::Update)
            .map(|(owner, entry)| (entry.time.clone(), owner.clone()))
            .collect();
        if updates.len() <= MAX_UPDATES {
            return;
        }
        updates.sort_by(|(time, owner), (other_time, other)| {
            by_time(time, other_time).then_with(|| owner.cmp(other))
        });
        let mut count = updates.len();
        let mut oldest: BTreeMap<String, Owner> = BTreeMap::new();
        for (time, owner) in updates {
            if count <= MAX_UPDATES {
                return;
            }
            let Some(first) = oldest.get(&owner.version) else {
                oldest.insert(owner.version.clone(), owner);
                continue;
            };
            let bucket = Owner::new(OLD_UPDATES, Operation::Update, &owner.version, "");
            if !self.0.contains_key(&bucket)
                && let Some(entry) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), entry);
            }
            if bucket != owner
                && let Some(entry) = self.0.remove(&owner)
            {
                self.add_update(bucket, &entry.api_version, &time, entry.fields);
                count -= 1;
            }
        }
    }

    /// As `metadata.managedFields`.
    pub(super) fn to_value(&self) -> Value {
        let mut entries: Vec<(&Owner, &Entry)> = self.0.iter().collect();
        entries.sort_by(|(owner, entry), (other, other_entry)| {
            owner
                .operation
                .cmp(&other.operation)
                .then_with(|| by_time(&entry.time, &other_entry.time))
                .then_with(|| owner.manager.cmp(&other.manager))
                .then_with(|| entry.api_version.cmp(&other_entry.api_version))
                .then_with(|| owner.subresource.cmp(&other.subresource))
        });
        entries.into_iter().map(|(owner, entry)| encode(owner, entry)).collect()
    }
}

/// Times in whole seconds, of which those of the years with five digits are the last.
fn by_time(time: &str, other: &str) -> Ordering {
    time.len().cmp(&other.len()).then_with(|| time.cmp(other))
}

fn encode(owner: &Owner, entry: &Entry) -> Value {
    let operation = match owner.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut value = json!({
        "manager": owner.manager,
        "operation": operation,
        "apiVersion": entry.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields.to_value(),
    });
    if !entry.time.is_empty() {
        value["time"] = json!(entry.time);
    }
    if !owner.subresource.is_empty() {
        value["subresource"] = json!(owner.subresource);
    }
    value
}

fn decode(entry: &Value) -> Option<(Owner, Entry)> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let fields = match entry.get("fieldsV1") {
        Some(fields) => FieldSet::parse(fields).ok()?,
        None => FieldSet::default(),
    };
    let owner = Owner::new(text("manager"), operation, text("apiVersion"), text("subresource"));
    let entry = Entry { api_version: text("apiVersion").to_owned(), time: text("time").to_owned(), fields };
    Some((owner, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, time: &str, field: &str) -> Value {
        json!({
            "manager": manager,
            "operation": operation,
            "apiVersion": "v1",
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": {field: {}},
        })
    }

    fn entries(list: &[Value]) -> Entries {
        Entries::of(&json!({"metadata": {"managedFields": list}}))
    }

    #[test]
    fn entries_are_sorted_by_operation_time_and_manager() {
        let sorted = json!([
            entry("b", "Apply", "2026-01-02T00:00:00Z", "f:a"),
            entry("z", "Update", "2026-01-01T00:00:00Z", "f:b"),
            entry("a", "Update", "2026-01-02T00:00:00Z", "f:c"),
            entry("c", "Update", "2026-01-02T00:00:00Z", "f:d"),
            entry("a", "Update", "10000-01-01T19:59:59Z", "f:e"),
        ]);
        let mut list = sorted.as_array().cloned().unwrap_or_default();
        // One manager has one entry for each subresource and version.
        list[4]["subresource"] = json!("status");
        let sorted = json!(list);
        list.reverse();
        assert_eq!(entries(&list).to_value(), sorted);
    }

    #[test]
    fn entries_that_cannot_be_decoded_are_left_out() {
        let invalid = [
            json!(1),
            json!({"operation": "Delete", "fieldsV1": {}}),
            json!({"operation": "Update", "fieldsV1": {"name": {}}}),
        ];
        assert!(entries(&invalid).is_empty());
        assert!(Entries::of(&json!({"metadata": {"managedFields": 7}})).is_empty());
    }

    #[test]
    fn eleventh_update_is_merged_into_ancient_changes() {
        let time = |day: usize| format!("2026-01-{day:02}T00:00:00Z");
        let list: Vec<Value> = (1..=12)
            .map(|day| entry(&format!("m{day}"), "Update", &time(day), &format!("f:{day}")))
            .collect();
        let mut all = entries(&list);
        all.limit_updates();
        let limited = all.to_value();
        let limited = limited.as_array().unwrap();
        assert_eq!(limited.len(), MAX_UPDATES);
        assert_eq!(limited[0]["manager"], "ancient-changes");
        assert_eq!(limited[0]["time"], json!(time(3)));
        assert_eq!(limited[0]["fieldsV1"], json!({"f:1": {}, "f:2": {}, "f:3": {}}));
        assert_eq!(limited[1]["manager"], "m4");
        // The next one is merged into the same entry.
        all.add_update(
            Owner::new("m13", Operation::Update, "v1", ""),
            "v1",
            &time(13),
            FieldSet::of_fields(&["13"]),
        );
        all.limit_updates();
        let limited = all.to_value();
        assert_eq!(limited.as_array().unwrap().len(), MAX_UPDATES);
        assert_eq!(limited[0]["fieldsV1"], json!({"f:1": {}, "f:2": {}, "f:3": {}, "f:4": {}}));
    }

    #[test]
    fn applied_entries_are_not_limited() {
        let list: Vec<Value> = (1..=12).map(|n| entry(&format!("m{n}"), "Apply", "", "f:a")).collect();
        let mut all = entries(&list);
        all.limit_updates();
        assert_eq!(all.to_value().as_array().unwrap().len(), 12);
    }
}
