//! The entries after a request that is no apply: its writer owns what it changed.

use serde_json::Value;

use super::Writer;
use super::compare::{Comparison, compare};
use super::entries::{Entries, Operation, Owner};
use super::schema::Type;
use super::stripped::{empty_object, strip};

/// Gives the paths that differ between `current` and `new` to the writer, in the entries of `new`. Without a stored object, those that
/// differ from an empty one.
pub(crate) fn track(
    plural: &str,
    current: Option<&Value>,
    new: &Value,
    writer: &Writer<'_>,
) -> Option<Value> {
    let kind = Type::of_resource(plural);
    let mut comparison = match current {
        Some(current) => compare(kind, current, new),
        None => compare(kind, &empty_object(plural), new),
    };
    comparison.removed = strip(comparison.removed);
    comparison.modified = strip(comparison.modified);
    comparison.added = strip(comparison.added);
    if comparison == Comparison::default() {
        return None;
    }
    let mut entries = Entries::of(new);
    record(&mut entries, comparison, writer);
    entries.limit_updates();
    Some(entries.to_value())
}

pub(super) fn record(entries: &mut Entries, comparison: Comparison, writer: &Writer<'_>) {
    entries.disown(&comparison.removed, None);
    let written = comparison.written();
    entries.disown(&written, None);
    entries.remove_empty();
    if !written.is_empty() {
        let owner = Owner::new(writer.manager, Operation::Update, writer.api_version, writer.subresource);
        entries.add_update(owner, writer.api_version, writer.time, written);
    }
}
