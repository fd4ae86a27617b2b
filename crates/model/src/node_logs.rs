//! What may be asked of the logs of the node's own services.

use jiff::Timestamp;

/// Which entries of a service's log are wanted. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLogOptions {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// So many from the end.
    pub tail_lines: Option<i64>,
    /// 0 is the present boot of the machine, -1 the one before.
    pub boot: Option<i64>,
    /// A regular expression; empty for none.
    pub pattern: String,
}
