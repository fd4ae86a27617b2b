//! `different.tsv`: the commands whose answer is not the recorded one.

use super::{directory, read};

#[derive(Clone, Debug)]
pub(super) struct Difference {
    topic: String,
    pub(super) command: String,
    /// A part of what the command prints here; empty if something is missing only.
    pub(super) shown: String,
    pub(super) reason: String,
}

pub(super) fn all() -> Vec<Difference> {
    let text = read(&directory().join("different.tsv"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let [topic, command, shown, reason]: [String; 4] =
                line.split('\t').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap_or_else(|_| {
                    panic!("a line of different.tsv has topic, command, part of the output, reason: {line:?}")
                });
            Difference { topic, command, shown, reason }
        })
        .collect()
}

pub(super) fn of(topic: &str) -> Vec<Difference> {
    all().into_iter().filter(|difference| difference.topic == topic).collect()
}
