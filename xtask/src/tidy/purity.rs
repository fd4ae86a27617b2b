//! Keeps `kubelet-core` free of side effects. Its dependencies are checked with those of all crates; this rule is about the
//! standard library.

use crate::Finding;
use crate::source::{Source, words};
use crate::tidy::finding;

const DECISION_CORE: &str = "kubelet-core";
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

pub(super) fn check(source: &Source) -> Vec<Finding> {
    if source.crate_name != DECISION_CORE {
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
                "`{name}` in the decision core: pass time, randomness and everything from outside as arguments"
            );
            findings.push(finding(source, number, what));
        }
    }
    findings
}
