//! Compares recordings of two kubelets with the same scenarios: the final status of each pod, its states, events, Node and
//! Lease, requests to the runtime, and responses of the endpoints.
//!
//! Owns the comparison, which is pure. `scripts/compare` records our kubelet; the recording of the Go kubelet is in
//! `crates/localapi/tests/recorded`. Allowed differences are listed with their reasons in `docs/compare-allowed.tsv`.

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

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// `final runs`, `events runs`, `states runs`, `node`, `cri runs/main`, `metrics`.
    pub subject: String,
    /// The differing path, event or family.
    pub what: String,
    /// The Go kubelet's value.
    pub theirs: String,
    /// Our kubelet's value.
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

/// All differences, in order.
#[must_use]
pub fn compare(theirs: &Recording, ours: &Recording) -> Vec<Difference> {
    let mut found = Vec::new();
    pods::compare(theirs, ours, &mut found);
    endpoints::compare(theirs, ours, &mut found);
    found.sort();
    found.dedup();
    found
}

/// The list of allowed differences.
pub const ALLOWED: &str = "docs/compare-allowed.tsv";

/// Compares two directories, and reports the differences that are not allowed.
///
/// # Errors
/// A file cannot be read.
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
