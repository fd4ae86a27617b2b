//! Words of an older private vocabulary, and the term that is used instead (docs/GLOSSARY.md).
//!
//! Owns the list. A word counts wherever it stands in code, comments, strings, documents and scripts, alone or as a part of
//! an identifier: `next_turn`, `ClusterDoors`, `MOST_BYTES`. There are no exceptions; data is not checked: the parts of a path
//! (`/work/…`) and of a record (`nobody:x:65534`).

use std::path::Path;

use crate::files::{below, has_extension};
use crate::source::words;
use crate::{CheckError, Finding, read};

/// The word in lower case, and what to write.
const BANNED: &[(&str, &str)] = &[
    ("anew", "again"),
    ("beside", "next to, with"),
    ("brain", "decision core"),
    ("bury", "finish"),
    ("door", "port"),
    ("doors", "ports"),
    ("figures", "metrics, numbers"),
    ("grants", "allocate responses"),
    ("judge", "evaluate, check"),
    ("judged", "evaluated, checked"),
    ("judges", "evaluates, checks"),
    ("laws", "invariants"),
    ("ledger", "allocations"),
    ("lingers", "stays"),
    ("mend", "repair"),
    ("mended", "repaired"),
    ("mends", "repairs"),
    ("news", "event, progress"),
    ("nobody", "the program, pod or client that does not"),
    ("oracle", "invariant checker"),
    ("patience", "timeout"),
    ("room", "crate, space, capacity"),
    ("rooms", "crates"),
    ("scene", "case, step"),
    ("scenes", "cases, steps"),
    ("somebody", "the program, pod or client that does"),
    ("stories", "scenarios"),
    ("story", "scenario"),
    ("teller", "writer"),
    ("tells", "reports"),
    ("tell", "report"),
    ("tiers", "QoS cgroups"),
    ("told", "reported"),
    ("unfit", "invalid"),
    ("witness", "recording runtime"),
];
/// Whole names, and what to write.
const BANNED_NAMES: &[(&str, &str)] = &[
    ("DevicePlaces", "DevicePaths"),
    ("Followed", "tokio::sync::watch"),
    ("Follower", "tokio::sync::watch"),
    ("GivenUp", "NotFinished, Unknown"),
    ("LeavingPod", "TerminatingPod"),
    ("PassNote", "PassEvent"),
    ("given_up", "timed_out, must_exit"),
    ("in_vain", "ignored"),
    ("place_again", "reallocate"),
];
/// Two words that are one of ours.
const BANNED_PHRASES: &[(&str, &str)] = &[
    ("for ever", "forever"),
    ("given up", "timed out, cancelled"),
    ("gave up", "timed out"),
    ("stands alone", "is standalone"),
];

/// Where words are checked, with all folders below.
const FOLDERS: &[&str] = &["crates", "docs", "fuzz", "packaging", "scripts", "xtask", ".ci"];
/// Documents outside of these folders.
const DOCUMENTS: &[&str] =
    &["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "docs/parity.tsv", "justfile"];
/// Not written by us, or not in words: generated code, protocols of others, recorded and minimised input.
const NOT_OURS: &[&str] = &["target", "generated", "proto", "corpus", "proptest-regressions"];
/// The only file that holds the words.
const THIS_FILE: &str = "xtask/src/tidy/vocabulary.rs";

/// Every banned word in the workspace at `root`.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, CheckError> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        paths.extend(below(&root.join(folder), NOT_OURS, has_words)?);
    }
    paths.extend(DOCUMENTS.iter().map(|name| root.join(name)));
    let mut findings = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if name != THIS_FILE {
            findings.extend(check_text(&name, &read(&path)?));
        }
    }
    Ok(findings)
}

/// Rust, documents, scripts and manifests. Other files hold data.
fn has_words(path: &Path) -> bool {
    match path.extension() {
        Some(_) => has_extension(path, &["rs", "md", "sh", "toml"]),
        None => path.parent().and_then(Path::file_name).is_some_and(|dir| dir == "scripts" || dir == ".ci"),
    }
}

fn check_text(name: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let whats = prose(line).filter_map(complaint).chain(phrases(line));
        findings.extend(whats.map(|what| Finding { file: name.to_owned(), line: index + 1, what }));
    }
    findings
}

/// The words of a line that are not part of a path or a record.
fn prose(line: &str) -> impl Iterator<Item = &str> {
    words(line).filter(move |word| {
        let at = word.as_ptr().addr() - line.as_ptr().addr();
        let (before, after) =
            (line.get(..at).unwrap_or_default(), line.get(at + word.len()..).unwrap_or_default());
        let is_in_record = after
            .strip_prefix(':')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_alphanumeric() || c == '/'));
        !before.ends_with('/') && !is_in_record
    })
}

fn complaint(name: &str) -> Option<String> {
    if name.starts_with("MOST_") || name.ends_with("_MOST") {
        return Some(format!("`{name}`: call a limit MAX_"));
    }
    if name.starts_with("note_") {
        return Some(format!("`{name}`: instead of \"note\" write record or handle"));
    }
    if let Some((_, term)) = BANNED_NAMES.iter().find(|(banned, _)| *banned == name) {
        return Some(format!("`{name}`: write {term}"));
    }
    let parts = parts(name);
    let (word, term) = BANNED.iter().find(|(word, _)| parts.iter().any(|part| part == word))?;
    Some(format!("`{name}`: instead of \"{word}\" write {term}"))
}

fn phrases(line: &str) -> impl Iterator<Item = String> {
    let line = line.to_lowercase();
    BANNED_PHRASES
        .iter()
        .filter(move |(phrase, _)| {
            line.match_indices(phrase)
                .any(|(at, _)| !line[at + phrase.len()..].starts_with(char::is_alphabetic))
        })
        .map(|(phrase, term)| format!("instead of \"{phrase}\" write {term}"))
}

/// `ClusterDoors` and `cluster_doors` are `cluster` and `doors`.
fn parts(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut was_lower = false;
    for character in name.chars() {
        let begins_word = character.is_uppercase() && was_lower;
        if character == '_' || begins_word || parts.is_empty() {
            parts.push(String::new());
        }
        if character != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(character.to_lowercase());
        }
        was_lower = character.is_lowercase() || character.is_numeric();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_split_at_underscores_and_capitals() {
        assert_eq!(parts("ClusterDoors"), ["cluster", "doors"]);
        assert_eq!(parts("next_turn2"), ["next", "turn2"]);
        assert_eq!(parts("_MOST_BYTES"), ["most", "bytes"]);
    }

    #[test]
    fn banned_words_are_reported_with_their_replacement() {
        let found = check_text("a.md", "The pods.\nstruct ClusterDoors;\n");
        assert_eq!((found.len(), found[0].line), (1, 2));
        assert_eq!(found[0].what, "`ClusterDoors`: instead of \"doors\" write ports");
        for line in
            ["const MOST_BYTES: usize = 1;", "self.note_start(pod);", "struct PassNote;", "It gave up."]
        {
            assert_eq!(check_text("a.rs", line).len(), 1, "{line}");
        }
        for line in ["let indoors = almost;", "nobody:x:65534:", "/work/room/file", "for every pod"] {
            assert!(check_text("a.rs", line).is_empty(), "{line}");
        }
    }

    #[test]
    fn banned_words_are_found_in_comments_strings_and_documents() {
        for line in ["// the doors of old", "let text = \"no doors\";", "- Doors open.", "It waits for ever."]
        {
            assert_eq!(check_text("a", line).len(), 1, "{line}");
        }
    }

    #[test]
    fn documents_scripts_and_rust_files_are_checked_and_data_is_not() {
        for path in
            ["README.md", "a/src/a.rs", "a/Cargo.toml", "scripts/test", ".ci/run", "scripts/guest/build.sh"]
        {
            assert!(has_words(Path::new(path)), "{path}");
        }
        for path in ["Cargo.lock", "crates/a/src/golden/a.txt", "docs/compare-allowed.tsv"] {
            assert!(!has_words(Path::new(path)), "{path}");
        }
    }
}
