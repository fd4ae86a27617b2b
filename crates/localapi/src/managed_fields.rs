//! Field management: which manager owns which fields of an object (`metadata.managedFields`), and server-side apply, which uses it.
//!
//! Owns: the sets of paths, the types that decide which maps and lists are merged, the merge, the conflicts, and the entries after each
//! request. Pure functions over JSON trees. The semantics are those of structured-merge-diff, which the real server uses.

mod apply;
mod check;
mod compare;
mod element;
mod entries;
mod last_applied;
mod merge;
mod owned;
#[cfg(test)]
mod properties;
mod remove;
mod schema;
mod set;
mod stripped;
#[cfg(test)]
mod tests;
mod update;

pub(crate) use apply::{Applied, Conflict, Refused, apply};
pub(crate) use update::track;

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    /// Empty for the main resource.
    pub(crate) subresource: &'a str,
    /// RFC 3339 in whole seconds.
    pub(crate) time: &'a str,
}
