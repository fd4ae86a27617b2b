//! Modules of one folder must not use each other in a circle, or none of them can be read, tested or moved alone. A module
//! counts with everything below it; that a module uses its own submodules, and they use it, is no circle.
//!
//! Owns the rule and the folders that broke it when it was made. Their number of modules in circles may only fall.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::source::Source;

/// Folders with circles, and how many of their modules are part of one.
const KNOWN: &[(&str, usize)] = &[("crates/kubelet-core/src", 16)];

/// By module of a folder: the other modules of the folder that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    evaluate(sources, KNOWN)
}

fn evaluate(sources: &[Source], known: &[(&str, usize)]) -> Vec<Finding> {
    let mut known: BTreeMap<&str, usize> = known.iter().copied().collect();
    let mut findings = Vec::new();
    for (folder, uses) in folders(sources) {
        let modules = in_circles(&uses);
        let what = match (modules.len(), known.remove(&*folder)) {
            (0, None) => continue,
            (0, Some(_)) => "is on the list in circles.rs and gone: remove its entry".to_owned(),
            (found, Some(allowed)) if found == allowed => continue,
            (found, Some(allowed)) => {
                format!("{found} modules are in circles; the list in circles.rs says {allowed}")
            }
            (_, None) => format!("modules use each other in a circle: {}", modules.join(", ")),
        };
        findings.push(Finding { file: folder, line: 0, what });
    }
    let gone = |folder: &str| Finding {
        file: folder.to_owned(),
        line: 0,
        what: "is on the list in circles.rs and gone: remove its entry".to_owned(),
    };
    findings.extend(known.into_keys().map(gone));
    findings
}

/// By folder: what its modules use of each other.
fn folders(sources: &[Source]) -> BTreeMap<String, Uses> {
    let mut crates: BTreeMap<&str, Vec<(Vec<&str>, &Source)>> = BTreeMap::new();
    for source in sources {
        if let Some((root, module)) = module_of(&source.path) {
            crates.entry(root).or_default().push((module, source));
        }
    }
    let mut folders: BTreeMap<String, Uses> = BTreeMap::new();
    for (root, modules) in crates {
        let names: BTreeSet<&[&str]> = modules.iter().map(|(module, _)| &**module).collect();
        for (module, source) in &modules {
            for path in paths(source, module) {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                let Some(used) = (1..=path.len()).rev().map(|n| &path[..n]).find(|path| names.contains(path))
                else {
                    continue;
                };
                let shared = module.iter().zip(used).take_while(|(a, b)| a == b).count();
                let (Some(by), Some(of)) = (module.get(shared), used.get(shared)) else { continue };
                let folder = [&[root][..], &module[..shared]].concat().join("/");
                folders
                    .entry(folder)
                    .or_default()
                    .entry((*by).to_owned())
                    .or_default()
                    .insert((*of).to_owned());
            }
        }
    }
    folders
}

/// The `src` of the crate, and the path of the module in it; none for tests and for the roots of crates.
fn module_of(path: &str) -> Option<(&str, Vec<&str>)> {
    let at = path.find("/src/")? + "/src".len();
    let module: Vec<&str> = path[at + 1..].strip_suffix(".rs")?.split('/').collect();
    let is_counted =
        !matches!(*module, ["lib" | "main"]) && !module.contains(&"tests") && !module.contains(&"test");
    is_counted.then_some((&path[..at], module))
}

/// Every path that begins at the crate, at this module or above it, as seen from the root of the crate.
fn paths(source: &Source, module: &[&str]) -> Vec<Vec<String>> {
    let code: Vec<&str> = source.lines.iter().filter(|line| !line.test).map(|line| &*line.code).collect();
    let code = code.join("\n");
    let tokens = tokens(&code);
    let mut paths = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_first = at == 0 || !matches!(tokens[at - 1], "::" | "$");
        if !is_first || tokens.get(at + 1) != Some(&"::") {
            continue;
        }
        let mut base: Vec<String> = module.iter().map(|part| (*part).to_owned()).collect();
        let mut next = at;
        match *token {
            "crate" => base.clear(),
            "self" => {}
            "super" => {
                base.pop();
                while tokens.get(next + 2) == Some(&"super") {
                    base.pop();
                    next += 2;
                }
            }
            _ => continue,
        }
        read_tree(&tokens, next + 2, &base, &mut paths);
    }
    paths
}

/// Reads `a::b` or `a::{b, c::d}` from `at` on; returns where it ends.
fn read_tree(tokens: &[&str], mut at: usize, base: &[String], paths: &mut Vec<Vec<String>>) -> usize {
    let mut path = base.to_vec();
    while let Some(token) = tokens.get(at) {
        if *token == "{" {
            at += 1;
            while tokens.get(at).is_some_and(|token| *token != "}") {
                let end = read_tree(tokens, at, &path, paths);
                at = end.max(at + 1);
            }
            return at + 1;
        }
        if !token.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            break;
        }
        path.push((*token).to_owned());
        at += 1;
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    paths.push(path);
    at
}

/// Identifiers, `::`, and every other character by itself.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            word => word,
        };
        let (token, left) = rest.split_at(length);
        tokens.push(token);
        rest = left.trim_start();
    }
    tokens
}

/// The modules from which there is a way back to themselves.
fn in_circles(uses: &Uses) -> Vec<String> {
    let returns = |start: &&String| {
        let mut open: Vec<&String> = uses[*start].iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(module) = open.pop() {
            if module == *start {
                return true;
            }
            if seen.insert(module) {
                open.extend(uses.get(module).into_iter().flatten());
            }
        }
        false
    };
    uses.keys().filter(returns).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        found_beyond(&[], files)
    }

    fn found_beyond(known: &[(&str, usize)], files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(&format!("crates/a/src/{path}"), text)).collect();
        evaluate(&sources, known)
            .into_iter()
            .map(|finding| format!("{}: {}", finding.file, finding.what))
            .collect()
    }

    #[test]
    fn modules_that_use_each_other_in_a_circle_are_found() {
        let circle = [
            ("x.rs", "use crate::{y::Y, other::Z};"),
            ("y.rs", "fn f() { crate::z::inner::g() }"),
            ("z/inner.rs", "use super::super::x::X;"),
            ("z.rs", "mod inner;"),
            ("w.rs", "use crate::x::X;"),
        ];
        assert_eq!(found(&circle), ["crates/a/src: modules use each other in a circle: x, y, z"]);
        assert!(found(&circle[..2]).is_empty());
    }

    #[test]
    fn a_known_circle_may_only_become_smaller_and_then_the_list_says_so() {
        let circle = [("x.rs", "use crate::y::Y;"), ("y.rs", "use crate::x::X;")];
        assert!(found_beyond(&[("crates/a/src", 2)], &circle).is_empty());
        assert_eq!(
            found_beyond(&[("crates/a/src", 3)], &circle),
            ["crates/a/src: 2 modules are in circles; the list in circles.rs says 3"]
        );
        assert_eq!(
            found_beyond(&[("crates/a/src", 2)], &circle[..1]),
            ["crates/a/src: is on the list in circles.rs and gone: remove its entry"]
        );
    }

    #[test]
    fn circle_of_submodules_is_found_in_their_folder() {
        let circle = [("m/x.rs", "use super::y::Y;"), ("m/y.rs", "use crate::m::x;"), ("m.rs", "")];
        assert_eq!(found(&circle), ["crates/a/src/m: modules use each other in a circle: x, y"]);
    }

    #[test]
    fn module_and_its_submodules_and_tests_are_no_circle() {
        let files = [
            ("m.rs", "use self::x::X;"),
            ("m/x.rs", "use super::Y;"),
            ("n.rs", "#[cfg(test)]\nmod tests {\n    use crate::m::X;\n}"),
            ("m/tests.rs", "use crate::n::N;"),
        ];
        assert!(found(&files).is_empty());
    }
}
