//! `different.tsv`: the commands whose answer is not the recorded one.

use super::rows_of_four;

#[derive(Clone, Debug)]
pub(super) struct Difference {
    topic: String,
    pub(super) command: String,
    /// A part of what the command prints here; empty if something is missing only.
    pub(super) shown: String,
    pub(super) reason: String,
}

pub(super) fn all() -> Vec<Difference> {
    let rows = rows_of_four("different.tsv", "topic, command, part of the output, reason");
    rows.into_iter()
        .map(|[topic, command, shown, reason]| Difference { topic, command, shown, reason })
        .collect()
}

pub(super) fn of(topic: &str) -> Vec<Difference> {
    all().into_iter().filter(|difference| difference.topic == topic).collect()
}
