//! How a file begins: with a page that says what it owns; and, at the root of a crate, with a word on unsafe code.

use crate::Finding;
use crate::source::Source;
use crate::tidy::finding;

/// The one crate that may need unsafe code, block by block, each with its reason.
const MAY_ALLOW_UNSAFE: &str = "host";

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let first = source.lines.first().map(|line| line.comment.as_str()).unwrap_or_default();
    // The page of a `tests.rs` is the one of the file it tests.
    if !first.starts_with("//!") && !source.path.ends_with("/tests.rs") {
        findings.push(finding(
            source,
            1,
            "begins without `//!`: say what this file owns and what it never does",
        ));
    }
    if is_crate_root(&source.path) && !says_unsafe_is_out(source) {
        findings.push(finding(source, 1, "is a crate's root without `#![forbid(unsafe_code)]`"));
    }
    findings
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

fn says_unsafe_is_out(source: &Source) -> bool {
    source.lines.iter().any(|line| {
        line.code.contains("#![forbid(unsafe_code)]")
            || (source.crate_name == MAY_ALLOW_UNSAFE && line.code.contains("#![deny(unsafe_code)]"))
    })
}
