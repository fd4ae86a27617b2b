//! Keeps the decision cores, the crates whose names end in `-core`, free of side effects. Their dependencies are checked with those
//! of all crates; this rule is about the standard library.

use crate::Finding;
use crate::source::{Source, words};
use crate::tidy::finding;

/// How the names of decision cores end.
const CORE: &str = "-core";
/// Modules of `std` with side effects. Addresses (`std::net::IpAddr`) are plain data and allowed.
const REACHING_MODULES: &[&str] = &["fs", "process", "env", "thread", "os"];
/// Names with side effects, or with values that differ from run to run, from any module.
const REACHING_NAMES: &[&str] = &[
    "tokio",
    "tracing",
    "rand",
    "parking_lot",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
];

/// Whether the crate has only decisions: pure functions from what is desired and what was observed to a plan.
pub(super) fn is_decision_core(crate_name: &str) -> bool {
    crate_name.ends_with(CORE)
}

pub(super) fn check(source: &Source) -> Vec<Finding> {
    if !is_decision_core(&source.crate_name) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    // Whether the line is inside a `use std::{…}` that spans lines.
    let mut importing_std = false;
    for (number, line) in source.numbered().filter(|(_, line)| !line.test) {
        let code = line.code.trim();
        importing_std |= code.contains("use std::");
        let mut found: Vec<&str> = words(code).filter(|word| REACHING_NAMES.contains(word)).collect();
        found.extend(words(code).filter(|word| {
            REACHING_MODULES.contains(word) && (importing_std || code.contains(&format!("std::{word}")))
        }));
        importing_std &= !code.ends_with(';');
        found.dedup();
        for name in found {
            let what = format!(
                "`{name}` in a decision core: pass time, randomness and everything from outside as arguments"
            );
            findings.push(finding(source, number, what));
        }
    }
    findings
}
