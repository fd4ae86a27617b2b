//! The linker script that places cold code last (docs/decisions/0034) names functions that exist: the linker does not report a
//! pattern that matches nothing, so a module that is renamed would silently be placed as before.
//!
//! Checks the paths of our own crates down to the first name that is not a module. Functions of dependencies are not checked.

use std::path::Path;

use crate::mangled::{self, Part};
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
        let Some((_, name)) = line.split_once("*(.text.") else { continue };
        let missing = paths(name).into_iter().filter(|path| !exists(path, sources));
        for path in missing {
            let what = format!(
                "`{}` does not exist: correct the line, or write the file again with scripts/cold-code",
                path.join("::")
            );
            findings.push(Finding { file: SCRIPT.to_owned(), line: index + 1, what });
        }
    }
    findings
}

/// The paths in a name that begin with a crate.
fn paths(name: &str) -> Vec<Vec<&str>> {
    let mut paths: Vec<Vec<&str>> = Vec::new();
    let mut is_path = false;
    for part in mangled::parts(name) {
        match (part, paths.last_mut()) {
            (Part::Crate(_), _) => {
                paths.push(Vec::new());
                is_path = true;
            }
            (Part::Identifier { name, .. }, Some(path)) if is_path => path.push(name),
            // Which of several of one name.
            (Part::Other(number), _) if is_path && number.starts_with('s') => {}
            (Part::Identifier { .. } | Part::Reference(_) | Part::Other(_), _) => is_path = false,
        }
    }
    paths
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

/// By a keyword, or as an argument of a macro on a line of its own.
fn defines(source: &Source, name: &str) -> bool {
    source.lines.iter().any(|line| {
        let all: Vec<&str> = words(&line.code).collect();
        all.first() == Some(&name)
            || all.windows(2).any(|pair| KEYWORDS.contains(&pair[0]) && pair[1] == name)
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
        assert_eq!(complaints("_RNvNtCs??_7cri_api5codec5write"), [problem]);
        assert_eq!(complaints("_RNvNtCs??_7cri_api4wire").len(), 1, "a module");
    }

    #[test]
    fn patterns_of_modules_types_functions_and_implementations_are_found_in_the_sources() {
        let codec = "Cs??_7cri_api5codec";
        for pattern in [
            "_RNvNtCs??_7cri_api",
            "_RNvNtCs??_7cri_api5codec",
            "_RNvMs_NtCs??_7cri_api5codecNtB?_5Codec6decode",
        ] {
            assert!(complaints(pattern).is_empty(), "{pattern}");
        }
        assert!(complaints(&format!("_RNCNvNt{codec}4read0")).is_empty(), "a closure in a function");
        assert!(complaints(&format!("_RNvXs_NvNt{codec}s_1__NtB?_5Codec")).is_empty(), "what a macro wrote");
        assert!(complaints("_RNvNtCs??_11miniz_oxide7inflate").is_empty(), "dependencies are not checked");
    }

    #[test]
    fn types_of_a_generic_function_are_checked_too() {
        let problem = "`cri_api::codec::Gone` does not exist";
        let found = complaints("_RINvNtCs??_4core3ptr13drop_in_placeNtNtCs??_7cri_api5codec4Gone");
        assert!(found.len() == 1 && found[0].contains(problem), "{found:?}");
    }
}
