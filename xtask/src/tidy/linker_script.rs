//! The linker script that places cold code last (docs/decisions/0034) names functions that exist: the linker does not report a
//! pattern that matches nothing, so a module that is renamed would silently be placed as before.
//!
//! Checks the paths of our own crates down to the first name that is not a module. Functions of dependencies are not checked.

use std::path::Path;

use crate::source::{Source, words};
use crate::{CheckError, Finding, read};

const SCRIPT: &str = "crates/kubelet/cold-code.ld";
/// What stands before the name of an item where it is defined.
const KEYWORDS: &[&str] = &["const", "enum", "fn", "mod", "static", "struct", "trait", "type"];

pub(super) fn check(root: &Path, sources: &[Source]) -> Result<Vec<Finding>, CheckError> {
    Ok(check_script(&read(&root.join(SCRIPT))?, sources))
}

fn check_script(script: &str, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in script.lines().enumerate() {
        let Some((_, name)) = line.split_once("*(.text._ZN") else { continue };
        let path = parts(name);
        if !exists(&path, sources) {
            let what = format!(
                "`{}` does not exist: correct the line, or write the file again with scripts/cold-code",
                path.join("::")
            );
            findings.push(Finding { file: SCRIPT.to_owned(), line: index + 1, what });
        }
    }
    findings
}

/// The parts of a mangled path, each of which has its length before it.
fn parts(mut name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    while let Some((part, rest)) = first_part(name) {
        parts.push(part);
        name = rest;
    }
    parts
}

fn first_part(name: &str) -> Option<(&str, &str)> {
    let (digits, rest) = name.split_at(name.find(|c: char| !c.is_ascii_digit())?);
    rest.split_at_checked(digits.parse().ok()?)
}

fn exists(path: &[&str], sources: &[Source]) -> bool {
    let Some((crate_name, path)) = path.split_first() else { return true };
    let folder = format!("crates/{}/src", crate_name.replace('_', "-"));
    let roots = [format!("{folder}/lib.rs"), format!("{folder}/main.rs")];
    let find = |file: &str| sources.iter().find(|source| source.path == file);
    let Some(mut source) = roots.iter().find_map(|root| find(root)) else { return true };
    let mut folder = folder;
    for part in path {
        folder = format!("{folder}/{part}");
        match find(&format!("{folder}.rs")) {
            Some(module) => source = module,
            // An item, or an implementation, which has no name of its own.
            None => return part.starts_with('_') || defines(source, part),
        }
    }
    true
}

fn defines(source: &Source, name: &str) -> bool {
    source.lines.iter().any(|line| {
        let all: Vec<&str> = words(&line.code).collect();
        all.windows(2).any(|pair| KEYWORDS.contains(&pair[0]) && pair[1] == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(pattern: &str) -> Vec<String> {
        let sources = [
            Source::new("crates/cri-api/src/lib.rs", "mod codec;\n"),
            Source::new(
                "crates/cri-api/src/codec.rs",
                "pub struct Codec;\nimpl Codec {}\nasync fn read() {}\n",
            ),
        ];
        let script = format!("SECTIONS\n{{\n    *(.text.{pattern}*)\n}}\n");
        check_script(&script, &sources).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn pattern_of_a_function_that_does_not_exist_is_found() {
        let problem = "crates/kubelet/cold-code.ld:3: `cri_api::codec::write` does not exist: correct the line, or write the \
                       file again with scripts/cold-code";
        assert_eq!(complaints("_ZN7cri_api5codec5write"), [problem]);
        assert_eq!(complaints("_ZN7cri_api4wire").len(), 1, "a module");
    }

    #[test]
    fn patterns_of_modules_types_functions_and_implementations_are_found_in_the_sources() {
        for pattern in
            ["_ZN7cri_api", "_ZN7cri_api5codec", "_ZN7cri_api5codec5Codec6decode", "_ZN7cri_api5codec4read"]
        {
            assert!(complaints(pattern).is_empty(), "{pattern}");
        }
        assert!(complaints("_ZN7cri_api5codec??_$LT$impl$u20$..*").is_empty());
        assert!(complaints("_ZN11miniz_oxide7inflate").is_empty(), "dependencies are not checked");
    }
}
