//! Passes two options to the linker that make the released program smaller, where the linker supports them, and to the program which
//! commit it is made from.
//!
//! Relocations are packed (half a megabyte that every start would read and keep), and functions with equal code are kept once. Neither
//! changes what the program does. Two builds of one commit are equal: the date is that of the commit, or `SOURCE_DATE_EPOCH`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_release = variable("PROFILE") == "release";
    // On this target Rust links with its own lld.
    let links_with_lld = variable("TARGET") == "x86_64-unknown-linux-gnu";
    if is_release && links_with_lld {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
    println!("cargo:rerun-if-env-changed={COMMIT}");
    println!("cargo:rerun-if-env-changed={DATE}");
    // A developer's build would be made again after each commit.
    let is_tracked = is_release && git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let from_git = |arguments: &[&str]| if is_tracked { git(arguments) } else { None };
    if let Some(log) = from_git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    let given = |name| Some(variable(name)).filter(|value| !value.is_empty());
    let commit = given(COMMIT).or_else(|| from_git(&["rev-parse", "HEAD"])).unwrap_or_default();
    let seconds = given(DATE).or_else(|| from_git(&["log", "-1", "--format=%ct"]));
    let date = seconds.and_then(|seconds| seconds.parse().ok()).map(utc).unwrap_or_default();
    println!("cargo:rustc-env=KUBELET_RS_COMMIT={commit}");
    println!("cargo:rustc-env=KUBELET_RS_DATE={date}");
}

/// The commit, for a build without a repository.
const COMMIT: &str = "KUBELET_COMMIT";
/// The date in seconds since 1970 (reproducible-builds.org).
const DATE: &str = "SOURCE_DATE_EPOCH";

/// The first line of git's answer; `None` without git, or without a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}

/// `2026-11-27T22:33:05Z`.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    while day >= days_of(year) {
        day -= days_of(year);
        year += 1;
    }
    let february = 28 + days_of(year) - 365;
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

const fn days_of(year: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    if is_leap { 366 } else { 365 }
}
