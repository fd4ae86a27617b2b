//! Keeps `kubelet-core` pure: it decides, and has no side effects. Its dependencies are checked with those of all crates; here it is
//! what the standard library would let it do.

use crate::Finding;
use crate::source::{Source, words};
use crate::tidy::finding;

const DECISION_CORE: &str = "kubelet-core";
/// Modules of `std` that reach outside. Addresses (`std::net::IpAddr`) are plain data and stay allowed.
const REACHING_MODULES: &[&str] = &["fs", "process", "env", "thread", "os"];
/// Names that reach outside, or differ from run to run, wherever they come from.
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
    // Whether we are inside a `use std::{…}` that spans lines.
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
                "`{name}` in the decision core: time, randomness and everything outside come in as arguments"
            );
            findings.push(finding(source, number, what));
        }
    }
    findings
}
