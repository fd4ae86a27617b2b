//! Options of queries for logs of the node's services.

use jiff::Timestamp;

/// Filters for the entries of a service's log. The default is all entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLogOptions {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Number of entries from the end.
    pub tail_lines: Option<i64>,
    /// 0 is the present boot of the machine, -1 the one before.
    pub boot: Option<i64>,
    /// A regular expression; empty for none.
    pub pattern: String,
}
