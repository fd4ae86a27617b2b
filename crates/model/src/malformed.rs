//! API objects that cannot be decoded: what is known of one nevertheless.

use std::fmt;

/// An object of a list or a watch that cannot be decoded. Its other versions, and all other objects, are not affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MalformedObject {
    /// Empty for a kind without namespaces; empty like the name if it cannot be read either.
    pub namespace: String,
    pub name: String,
    pub uid: Option<String>,
    /// Empty if it cannot be read.
    pub resource_version: String,
    /// Why it cannot be decoded, without its name.
    pub problem: String,
}

impl fmt::Display for MalformedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, problem, .. } = self;
        match (namespace.is_empty(), name.is_empty()) {
            (_, true) => write!(f, "without a name: {problem}"),
            (true, false) => write!(f, "{name}: {problem}"),
            (false, false) => write!(f, "{namespace}/{name}: {problem}"),
        }
    }
}
