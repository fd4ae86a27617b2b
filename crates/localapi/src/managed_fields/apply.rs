//! Server-side apply: merges a configuration into an object, removes what its manager no longer applies, and finds the conflicts with
//! other managers.

use serde_json::Value;

use super::Writer;
use super::check::check;
use super::compare::{Comparison, compare};
use super::entries::{Entries, Entry, Operation, Owner};
use super::last_applied;
use super::merge::merge;
use super::owned::owned;
use super::remove::remove;
use super::schema::Type;
use super::set::FieldSet;
use super::stripped::{empty_object, strip};
use super::update;

/// The manager of everything in an object without entries.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The limit on the text of all entries of one object: the real server cannot store more in etcd.
const MAX_ENTRIES_BYTES: usize = 3 * 512 * 1024;

/// A path of the configuration whose value another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// `"name" using v1`.
    pub(crate) manager: String,
    /// `.data.a`.
    pub(crate) path: String,
}

/// Why a configuration is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The configuration does not have the type of the object: the path and the problem.
    Malformed(String),
    Conflicts(Vec<Conflict>),
    /// The object has entries of too many managers.
    TooManyEntries,
}

/// The object with the applied configuration, and its entries.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Applied {
    pub(crate) object: Value,
    /// `metadata.managedFields`, which may be an empty list.
    pub(crate) entries: Value,
}

/// Applies a configuration to the stored object, or to none.
pub(crate) fn apply(
    plural: &str,
    live: Option<&Value>,
    configuration: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Applied, Refused> {
    let kind = Type::of_resource(plural);
    check(kind, configuration).map_err(Refused::Malformed)?;
    let mut entries = live.map(Entries::of).unwrap_or_default();
    if let Some(live) = live.filter(|_| entries.is_empty()) {
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        update::record(&mut entries, stripped(compare(kind, &empty_object(plural), live)), &before);
    }
    let nothing = Value::Object(serde_json::Map::new());
    let live = live.unwrap_or(&nothing);
    let owner = Owner::new(writer.manager, Operation::Apply, writer.api_version, writer.subresource);
    let last = entries.get(&owner).cloned();
    let is_new_manager = last.is_none();
    let last = last.unwrap_or_default();
    let own = owned(kind, configuration);
    entries.insert(owner.clone(), Entry { fields: own.clone(), ..last.clone() });
    let merged = merge(kind, live, configuration);
    let mut object = prune(kind, merged, &entries, &last.fields, &own);
    let comparison = compare(kind, live, &object);
    let removed = comparison.removed.clone();
    let written = comparison.written();
    let conflicts = conflicts(&entries, &owner, &written);
    if !conflicts.is_empty() && !force {
        let allowed = last_applied::allowed_conflicts(kind, live, writer);
        let left = shown(conflicts, &allowed);
        if !left.is_empty() {
            return Err(Refused::Conflicts(left));
        }
    }
    entries.disown(&written, Some(&owner));
    entries.disown(&removed, Some(&owner));
    let time = if object == *live { last.time } else { writer.time.to_owned() };
    entries.insert(owner, Entry { api_version: writer.api_version.to_owned(), time, fields: strip(own) });
    entries.remove_empty();
    last_applied::renew(&mut object, configuration, writer);
    let entries = entries.to_value();
    if is_new_manager && entries.to_string().len() > MAX_ENTRIES_BYTES {
        return Err(Refused::TooManyEntries);
    }
    Ok(Applied { object, entries })
}

fn stripped(comparison: Comparison) -> Comparison {
    Comparison {
        removed: strip(comparison.removed),
        modified: strip(comparison.modified),
        added: strip(comparison.added),
    }
}

/// Removes what the manager applied before and does not apply now, unless another entry has it.
fn prune(kind: Type, merged: Value, entries: &Entries, last: &FieldSet, own: &FieldSet) -> Value {
    let mut dropped = last.clone();
    dropped.subtract(own);
    if dropped.is_empty() {
        return merged;
    }
    let last = last.with_named_fields(kind);
    let all = owned(kind, &merged).with_named_fields(kind);
    let mut kept = owned(kind, &remove(kind, &merged, &last)).with_named_fields(kind);
    for (_, entry) in entries.iter() {
        kept.extend(entry.fields.with_named_fields(kind));
    }
    let mut unowned = all.clone();
    unowned.subtract(&kept);
    // Paths without an owner stay, unless the manager owned them.
    let with_owners = remove(kind, &merged, &unowned);
    let mut lost = all;
    lost.subtract(&owned(kind, &with_owners).with_named_fields(kind));
    remove(kind, &merged, &lost.intersection(&last))
}

/// The paths that are written and that other managers own.
fn conflicts(entries: &Entries, owner: &Owner, written: &FieldSet) -> Vec<(String, FieldSet)> {
    let others = entries.iter().filter(|(other, _)| *other != owner);
    let conflict = |(other, entry): (&Owner, &Entry)| (other.shown(), entry.fields.intersection(written));
    others.map(conflict).filter(|(_, fields)| !fields.is_empty()).collect()
}

fn shown(conflicts: Vec<(String, FieldSet)>, allowed: &FieldSet) -> Vec<Conflict> {
    let mut shown = Vec::new();
    for (manager, mut fields) in conflicts {
        fields.subtract(allowed);
        let conflict = |path: String| Conflict { manager: manager.clone(), path };
        shown.extend(fields.paths().into_iter().map(conflict));
    }
    shown
}
