//! The beginning of a file: a module comment, and `forbid(unsafe_code)` at the root of a crate.

use crate::Finding;
use crate::source::Source;
use crate::tidy::finding;

/// The only crate that may use unsafe code, block by block, each with its reason.
const MAY_ALLOW_UNSAFE: &str = "host";

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let first = source.lines.first().map(|line| line.comment.as_str()).unwrap_or_default();
    // A `tests.rs` has the module comment of the file that it tests.
    if !first.starts_with("//!") && !source.path.ends_with("/tests.rs") {
        findings.push(finding(
            source,
            1,
            "begins without `//!`: describe what this file owns and what it never does",
        ));
    }
    if is_crate_root(&source.path) && !forbids_unsafe_code(source) {
        findings.push(finding(source, 1, "is a crate root without `#![forbid(unsafe_code)]`"));
    }
    findings
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

fn forbids_unsafe_code(source: &Source) -> bool {
    source.lines.iter().any(|line| {
        line.code.contains("#![forbid(unsafe_code)]")
            || (source.crate_name == MAY_ALLOW_UNSAFE && line.code.contains("#![deny(unsafe_code)]"))
    })
}
