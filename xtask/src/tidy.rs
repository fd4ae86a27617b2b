//! Rules of this repository that no compiler checks: dependencies of crates, sizes of functions and files, banned words.
//! Each rule has a file; this one owns only the order in which they run.

use std::path::Path;

use crate::source::{self, Source};
use crate::{CheckError, Finding};

mod book;
mod circles;
mod decisions;
mod dependencies;
mod documents;
mod links;
mod purity;
mod ratchet;
mod roots;
mod sleeps;
mod tuples;
mod unread;
mod vocabulary;
mod words;

/// Every violation of the rules in the workspace at `root`, in order of file and line.
pub fn check(root: &Path) -> Result<Vec<Finding>, CheckError> {
    let sources = source::read_all(root)?;
    let mut findings = check_sources(&sources);
    findings.extend(book::check(root)?);
    findings.extend(circles::check(&sources));
    findings.extend(tuples::check(&sources));
    findings.extend(unread::check(&sources));
    findings.extend(decisions::check(root)?);
    findings.extend(dependencies::check(root)?);
    findings.extend(documents::check(root)?);
    findings.extend(links::check(root, &sources)?);
    findings.extend(vocabulary::check(root)?);
    findings.sort();
    Ok(findings)
}

/// The rules that check single files.
pub fn check_sources(sources: &[Source]) -> Vec<Finding> {
    let each = sources.iter().flat_map(|source| {
        [words::check(source), purity::check(source), roots::check(source), sleeps::check(source)]
            .into_iter()
            .flatten()
    });
    each.chain(ratchet::check(sources)).collect()
}

fn finding(source: &Source, line: usize, what: impl Into<String>) -> Finding {
    Finding { file: source.path.clone(), line, what: what.into() }
}
