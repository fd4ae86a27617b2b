//! Documents name real things: each path of the repository in a code span exists, and the function in "`name` in `path.rs`" is
//! in that file.
//!
//! Owns the reading of code spans. Links are checked in `links.rs`, and `docs/parity.md` has checks of its own.

use std::path::{Path, PathBuf};

use crate::files::{below, has_extension};
use crate::source::words;
use crate::{CheckError, Finding, read};

/// How paths of the repository begin.
const FOLDERS: &[&str] = &["crates/", "docs/", "fuzz/", "packaging/", "scripts/", "xtask/"];
/// What stands between names that share the file that follows them.
const BETWEEN_NAMES: &[&str] = &[", ", " and ", " or ", " of ", " in "];
const LEFT_OUT: &[&str] = &["docs/parity.md"];

pub(super) fn check(root: &Path) -> Result<Vec<Finding>, CheckError> {
    let mut paths: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md"].iter().map(|name| root.join(name)).collect();
    paths.extend(below(&root.join("docs"), &[], |path| has_extension(path, &["md"]))?);
    let mut findings = Vec::new();
    for path in paths {
        let file = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if !LEFT_OUT.contains(&file.as_str()) {
            findings.extend(check_document(root, &file, &read(&path)?)?);
        }
    }
    Ok(findings)
}

fn check_document(root: &Path, file: &str, text: &str) -> Result<Vec<Finding>, CheckError> {
    let mut findings = Vec::new();
    let mut report = |line, what| findings.push(Finding { file: file.to_owned(), line, what });
    for (line, names, path) in mentions(text) {
        if !root.join(&path).exists() {
            report(line, format!("names `{path}`, which does not exist"));
        } else if path.ends_with(".rs") {
            let code = read(&root.join(&path))?;
            for name in names.iter().filter(|name| !defines(&code, name)) {
                report(line, format!("`{name}` is not in `{path}`"));
            }
        }
    }
    Ok(findings)
}

/// Whether the file has a function of that name; of a type, a constant or a field that a macro may define, whether it occurs.
fn defines(code: &str, name: &str) -> bool {
    let all: Vec<&str> = words(code).collect();
    let is_function = name.starts_with(char::is_lowercase);
    if is_function { all.windows(2).any(|pair| pair == ["fn", name]) } else { all.contains(&name) }
}

/// Paths in code spans, each with its line and the names that stand in front of it.
fn mentions(text: &str) -> Vec<(usize, Vec<String>, String)> {
    let (mut found, mut names) = (Vec::new(), Vec::new());
    let mut line = 1;
    // Code blocks have three backticks at each end, which makes their text one span.
    for (index, part) in text.split('`').enumerate() {
        let is_span = index % 2 == 1;
        if !is_span {
            let between = part.split_whitespace().collect::<Vec<_>>().join(" ");
            let between = if part.starts_with(char::is_whitespace) {
                format!(" {between} ")
            } else {
                format!("{between} ")
            };
            if !BETWEEN_NAMES.contains(&between.as_str()) {
                names.clear();
            }
        } else if is_path(part) {
            found.push((line, std::mem::take(&mut names), part.to_owned()));
        } else if is_name(part) {
            names.push(part.to_owned());
        } else {
            names.clear();
        }
        line += part.matches('\n').count();
    }
    found
}

fn is_path(span: &str) -> bool {
    FOLDERS.iter().any(|folder| span.starts_with(folder)) && !span.contains([' ', '*', '<', '…', ':'])
}

fn is_name(span: &str) -> bool {
    !span.is_empty() && span.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        mentions(text)
            .into_iter()
            .map(|(line, names, path)| format!("{line} {} {path}", names.join("+")))
            .collect()
    }

    #[test]
    fn names_belong_to_the_path_that_follows_them() {
        assert_eq!(names("`a` and `b` in `crates/c.rs`"), ["1 a+b crates/c.rs"]);
        assert_eq!(names("`a`,\n`b` in\n`crates/c.rs`"), ["3 a+b crates/c.rs"]);
        assert_eq!(names("`a` is new. See `crates/c.rs`."), ["1  crates/c.rs"]);
        assert_eq!(names("run `cargo fmt`, or `a` of `crates/c.rs`"), ["1 a crates/c.rs"]);
        assert!(names("`crates/*/src` and `crates/<name>`").is_empty());
    }

    #[test]
    fn functions_must_be_defined_and_types_must_occur() {
        let code = "fn start() { stop(); }\nmacro! { Flags { a: A } }\n";
        assert!(defines(code, "start") && defines(code, "Flags"));
        assert!(!defines(code, "stop") && !defines(code, "Fields"));
    }
}
