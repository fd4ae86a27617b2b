//! The operator's book, `docs/operate`: each fence says who runs or reads its block, each page is in the summary, and the tests that a
//! page names exist (docs/decisions/0120-commands-of-the-book-are-run.md).
//!
//! Owns the words that a fence may have. `crates/kubelet/tests/it/book.rs` runs the blocks.

use std::path::Path;

use crate::files::{below, has_extension};
use crate::parity::Evidence;
use crate::{CheckError, Finding, read};

const FOLDER: &str = "docs/operate";
const SUMMARY: &str = "SUMMARY.md";
/// What a fence may have after its backticks; the three first ones may be followed by exit codes.
const CLASSES: &[&str] =
    &["sh node", "sh cluster", "sh single", "sh other", "yaml kubelet", "yaml prometheus", "text"];
/// Programs of blocks that no test runs.
const OTHER_PROGRAMS: &[&str] = &["kubeadm"];
/// Pages with steps of `scripts/guest/packages` and of releases.
const OF_PACKAGES: &[&str] = &["packages", "releases"];
/// Recorded answers, which tests write and `scripts/book` adds to the summary.
const RECORDED: &str = "transcripts/";
const INDEX_OF_RECORDED: &str = "transcripts/README.md";

pub(super) fn check(root: &Path) -> Result<Vec<Finding>, CheckError> {
    let folder = root.join(FOLDER);
    let known = Evidence::read(root)?;
    let summary = read(&folder.join(SUMMARY))?;
    let mut findings = Vec::new();
    for path in below(&folder, &[], |path| has_extension(path, &["md"]))? {
        let name = path.strip_prefix(&folder).unwrap_or(&path).to_string_lossy().into_owned();
        let file = format!("{FOLDER}/{name}");
        let is_recorded = name.starts_with(RECORDED) && name != INDEX_OF_RECORDED;
        if name != SUMMARY && !is_recorded && !summary.contains(&format!("]({name})")) {
            findings.push(Finding { file: file.clone(), line: 0, what: format!("is not in {SUMMARY}") });
        }
        if !is_recorded && !OF_PACKAGES.iter().any(|page| name.starts_with(page)) {
            findings
                .extend(check_page(&file, &read(&path)?, |test| known.has(test) || known.has_module(test)));
        }
    }
    Ok(findings)
}

fn check_page(file: &str, text: &str, is_test: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line: usize, what: String| findings.push(Finding { file: file.to_owned(), line, what });
    let (mut open, mut before) = (None, "");
    for (number, line) in (1..).zip(text.lines()) {
        match (line.strip_prefix("```"), open) {
            (Some(_), Some(_)) => open = None,
            (Some(info), None) => {
                if class_of(info).is_none() {
                    report(number, format!("a fence has {info:?}, and none of {}", CLASSES.join(", ")));
                }
                open = Some(info);
            }
            (None, Some("sh other")) => {
                let program = line.split_whitespace().next().unwrap_or_default();
                if !OTHER_PROGRAMS.contains(&program) {
                    report(
                        number,
                        format!("no test runs `{program}`: only {} may be there", OTHER_PROGRAMS.join(", ")),
                    );
                }
            }
            (None, Some(_)) => {}
            (None, None) => {
                if line.starts_with("    ") && before.is_empty() {
                    report(number, "an indented block does not say who runs it: use a fence".to_owned());
                }
                for test in named_tests(line).filter(|test| !is_test(test)) {
                    report(
                        number,
                        format!("names `{test}`, which is neither a test nor a module with tests"),
                    );
                }
            }
        }
        before = line;
    }
    findings
}

/// The class of a fence, if it is one of those that are known.
fn class_of(info: &str) -> Option<&'static str> {
    let is_class = |class: &&&str| match info.strip_prefix(**class) {
        Some("") => true,
        Some(codes) => {
            matches!(**class, "sh node" | "sh cluster" | "sh single")
                && codes
                    .strip_prefix(' ')
                    .is_some_and(|codes| codes.split('|').all(|code| code.parse::<u8>().is_ok()))
        }
        None => false,
    };
    CLASSES.iter().find(is_class).copied()
}

/// Code spans of the form `crate::module::name`.
fn named_tests(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |span: &&str| {
        span.contains("::")
            && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:-".contains(c))
    };
    line.split('`').skip(1).step_by(2).filter(is_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check_page("p.md", text, |test| test == "kubelet::it::known")
            .iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn fence_without_a_class_is_found() {
        assert_eq!(lines("```sh\nls\n```\n```sh node 0|3\nls\n```\n```sh node x\n```\n"), [1, 7]);
        assert!(lines("```yaml kubelet\nmaxPods: 1\n```\n").is_empty());
        assert_eq!(lines("```yaml kubelet 3\n```\n"), [1]);
    }

    #[test]
    fn blocks_that_no_test_runs_have_only_listed_programs_and_indented_blocks_are_found() {
        assert_eq!(lines("```sh other\nkubeadm join\nrm -r /\n```\n"), [3]);
        assert_eq!(lines("a\n\n    ls\n\n- b\n    c\n"), [3]);
    }

    #[test]
    fn tests_that_a_page_names_must_exist() {
        assert_eq!(lines("`kubelet::it::known` and `kubelet::it::gone`\n`Enum::Variant` is no test\n"), [1]);
    }
}
