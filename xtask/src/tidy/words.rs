//! Banned words: names without meaning (Manager, Util), and signs of missing work (a stub, an ignored test). Names from the
//! Kubernetes API are allowed.

use crate::Finding;
use crate::source::{Source, words};
use crate::tidy::finding;

/// Suffixes that a type must not have.
const EMPTY_SUFFIXES: &[&str] = &["Manager", "Helper", "Helpers", "Util", "Utils", "Impl"];
/// Names of types that say nothing without their comment.
const UNCLEAR_TYPES: &[&str] = &[
    "AtWork",
    "Ends",
    "For",
    "Happening",
    "LoopSide",
    "Misfit",
    "Of",
    "Offence",
    "Ran",
    "Remains",
    "Then",
    "Tried",
];
/// Names that a module must not have.
const EMPTY_MODULES: &[&str] = &["manager", "helper", "helpers", "util", "utils", "common", "misc"];
/// Macros for missing code.
const STUBS: &[&str] = &["todo!", "unimplemented!"];
/// Comments that postpone work, which belongs in an issue.
const LATER: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];
/// Tests that most machines cannot run are ignored there; `scripts/vm --core` runs every one of them, and fails if it did
/// not.
const IN_THE_GUEST: &str = "crates/kubelet/tests/it/guest";

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.numbered() {
        let ignored = line.code.contains("#[ignore") && !source.path.starts_with(IN_THE_GUEST);
        let ignored = ignored.then(|| "an ignored test: repair or remove it".to_owned());
        for what in in_code(&line.code).into_iter().chain(in_comment(&line.comment)).chain(ignored) {
            findings.push(finding(source, number, what));
        }
    }
    findings
}

fn in_code(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let all: Vec<&str> = words(code).collect();
    for pair in all.windows(2) {
        let [keyword, name] = pair else { continue };
        if ["struct", "enum", "trait", "type"].contains(keyword) {
            if UNCLEAR_TYPES.contains(name) {
                found.push(format!("`{name}` says nothing without its comment: name what the type is"));
            }
            if let Some(suffix) = EMPTY_SUFFIXES.iter().find(|suffix| name.ends_with(*suffix)) {
                found.push(format!(
                    "`{name}` ends in {suffix}, which has no meaning: name what it owns or does"
                ));
            }
        } else if *keyword == "mod" && EMPTY_MODULES.contains(name) {
            found.push(format!("module `{name}` may contain anything: name what is in it"));
        }
    }
    for stub in STUBS.iter().filter(|stub| code.contains(**stub)) {
        found.push(format!("{stub} is a stub: implement it or leave it out"));
    }
    found
}

fn in_comment(comment: &str) -> Vec<String> {
    let put_off = |word: &&&str| words(comment).any(|found| found == **word);
    LATER.iter().filter(put_off).map(|word| format!("{word} in a comment: open an issue instead")).collect()
}
