//! Words we do not use, because they say nothing (Manager, Util) or promise what is not there (a stub, an ignored test,
//! a sleep where a condition belongs). Names that come from Kubernetes' own API are not ours to choose and pass.

use crate::Finding;
use crate::source::{Source, words};
use crate::tidy::finding;

/// What a type of ours is never called.
const EMPTY_SUFFIXES: &[&str] = &["Manager", "Helper", "Helpers", "Util", "Utils", "Impl"];
/// What a module of ours is never called.
const EMPTY_MODULES: &[&str] = &["manager", "helper", "helpers", "util", "utils", "common", "misc"];
/// Macros that stand where work is missing.
const STUBS: &[&str] = &["todo!", "unimplemented!"];
/// Comments that put work off; an issue is the place for it.
const LATER: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.numbered() {
        for what in in_code(&line.code).into_iter().chain(in_comment(&line.comment)) {
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
            if let Some(suffix) = EMPTY_SUFFIXES.iter().find(|suffix| name.ends_with(*suffix)) {
                found.push(format!(
                    "`{name}` ends in {suffix}, which says nothing: name what it owns or does"
                ));
            }
        } else if *keyword == "mod" && EMPTY_MODULES.contains(name) {
            found.push(format!("module `{name}` is a drawer for anything: name what is in it"));
        }
    }
    for stub in STUBS.iter().filter(|stub| code.contains(**stub)) {
        found.push(format!("{stub} is a stub: build it, or leave it out"));
    }
    if code.contains("#[ignore") {
        found.push("an ignored test shows nothing: mend it or remove it".to_owned());
    }
    found
}

fn in_comment(comment: &str) -> Vec<String> {
    let put_off = |word: &&&str| words(comment).any(|found| found == **word);
    LATER.iter().filter(put_off).map(|word| format!("{word} in a comment: open an issue instead")).collect()
}
