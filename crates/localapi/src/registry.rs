//! Create, update and delete of objects in the store, with everything that every request of that kind does: admission,
//! defaults, validation, preconditions and metadata. It does not depend on HTTP requests.

pub(crate) mod aggregated_roles;
mod create;
mod delete;
pub(crate) mod deletion;
mod managed_fields;
pub(crate) mod namespaces;
mod update;
mod validate;

pub(crate) use create::create;
pub(crate) use delete::delete;
pub(crate) use update::{Scope, update};

use serde_json::Value;

use crate::store::Write;

/// Stores an object, or removes it if its deletion waited for nothing else.
pub(crate) fn put_or_remove(object: Value) -> Write {
    if deletion::is_finished(&object) { Write::Remove(object) } else { Write::Put(object) }
}
