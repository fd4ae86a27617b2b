//! Names of an older private vocabulary, and the term of the field that is used instead (docs/GLOSSARY.md).
//!
//! Owns the list. A word counts wherever it is a part of an identifier: `next_turn`, `ClusterDoors`, `MOST_BYTES`. Comments
//! and documents are not checked.

use crate::Finding;
use crate::source::{Source, words};
use crate::tidy::finding;

/// The word in lower case, and what to write.
const BANNED: &[(&str, &str)] = &[
    ("anew", "again"),
    ("brain", "decision core"),
    ("chance", "rng, random"),
    ("door", "port"),
    ("doors", "ports"),
    ("figures", "metrics"),
    ("grants", "allocate responses"),
    ("ledger", "allocations"),
    ("linger", "drain timeout, idle timeout"),
    ("mend", "repair"),
    ("oracle", "invariant checker"),
    ("patience", "timeout"),
    ("rooms", "crates"),
    ("stories", "scenarios"),
    ("teller", "writer"),
    ("unfit", "invalid"),
];
/// Identifiers from other crates.
const EXTERNAL: &[&str] = &["set_socket_linger"];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.numbered() {
        for name in words(&line.code).filter(|name| !EXTERNAL.contains(name)) {
            findings.extend(complaint(name).map(|what| finding(source, number, what)));
        }
    }
    findings
}

fn complaint(name: &str) -> Option<String> {
    if name.starts_with("MOST_") || name.ends_with("_MOST") {
        return Some(format!("`{name}`: call a limit MAX_"));
    }
    let parts = parts(name);
    let (word, term) = BANNED.iter().find(|(word, _)| parts.iter().any(|part| part == word))?;
    Some(format!("`{name}`: instead of \"{word}\" write {term}"))
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
        let found = |code: &str| check(&Source::new("crates/agent/src/a.rs", code));
        let said = found("struct ClusterDoors;\n");
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].what, "`ClusterDoors`: instead of \"doors\" write ports");
        assert_eq!(found("const MOST_BYTES: usize = 1;\n").len(), 1);
        assert!(found("// the doors of old\nlet text = \"doors\"; let indoors = almost;\n").is_empty());
    }
}
