//! Compares what two kubelets said and asked for over the same scenarios: the final status of each pod, the states it went
//! through, events, Node and Lease, requests to the runtime, and what the endpoints answer.
//!
//! Owns the comparison, which is pure: two recordings in, differences out. `scripts/compare` makes a recording of our
//! kubelet; that of the Go kubelet is in `crates/localapi/tests/recorded`. What stays different is listed with its reason in
//! `docs/compare-allowed.tsv`.

mod allowed;
mod endpoints;
mod exposition;
mod normal;
mod pods;
mod recording;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::{CheckError, read};

use self::allowed::Allowed;
pub use self::recording::{Recording, assemble};

/// One thing that the two say differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// `final runs`, `events runs`, `states runs`, `node`, `cri runs/main`, `metrics`.
    pub subject: String,
    /// What it is: a path, an event, a family.
    pub what: String,
    /// As the Go kubelet has it.
    pub theirs: String,
    /// As ours has it.
    pub ours: String,
}

impl Difference {
    fn new(
        subject: impl Into<String>,
        what: impl Into<String>,
        theirs: impl ToString,
        ours: impl ToString,
    ) -> Self {
        Self {
            subject: subject.into(),
            what: what.into(),
            theirs: theirs.to_string(),
            ours: ours.to_string(),
        }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}\n      go:   {}\n      ours: {}", self.subject, self.what, self.theirs, self.ours)
    }
}

/// Everything that differs, in order.
#[must_use]
pub fn compare(theirs: &Recording, ours: &Recording) -> Vec<Difference> {
    let mut found = Vec::new();
    pods::compare(theirs, ours, &mut found);
    endpoints::compare(theirs, ours, &mut found);
    found.sort();
    found.dedup();
    found
}

/// Where the allowed differences are listed.
pub const ALLOWED: &str = "docs/compare-allowed.tsv";

/// Compares two directories, and says what differs beyond what is allowed.
///
/// # Errors
/// Something cannot be read.
pub fn report(root: &Path, theirs: &Path, ours: &Path) -> Result<(String, bool), CheckError> {
    let allowed = Allowed::parse(&read(&root.join(ALLOWED))?);
    let found = compare(&Recording::read(theirs)?, &Recording::read(ours)?);
    let (listed, unexplained): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|difference| allowed.reason(difference).is_some());
    let mut lines: Vec<String> = unexplained.iter().map(Difference::to_string).collect();
    for (entry, reason) in allowed.unused(&listed) {
        lines.push(format!("note: {ALLOWED} allows {entry:?} ({reason}), which does not occur here"));
    }
    lines.push(format!("{} differences without a reason, {} with one", unexplained.len(), listed.len()));
    Ok((lines.join("\n"), unexplained.is_empty()))
}
