//! Modules of one folder must not use each other in a circle, or none of them can be read, tested or moved alone. A module
//! counts with everything below it; that a module uses its own submodules, and they use it, is no circle.
//!
//! Owns the rule; it has no exceptions.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::source::Source;

/// By module of a folder: the other modules of the folder that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let circle = |(folder, uses): (String, Uses)| {
        let modules = in_circles(&uses);
        (!modules.is_empty()).then(|| Finding {
            file: folder,
            line: 0,
            what: format!("modules use each other in a circle: {}", modules.join(", ")),
        })
    };
    folders(sources).into_iter().filter_map(circle).collect()
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
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(&format!("crates/a/src/{path}"), text)).collect();
        check(&sources).into_iter().map(|finding| format!("{}: {}", finding.file, finding.what)).collect()
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
