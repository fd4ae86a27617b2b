//! The tidy checks of this repository, and of small files that violate each rule.

use xtask::source::Source;
use xtask::{Finding, parity, tidy, workspace_root};

#[track_caller]
fn assert_none(findings: &[Finding]) {
    let list: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(list.is_empty(), "\n{}\n", list.join("\n"));
}

#[test]
fn repository_passes_the_tidy_checks() {
    assert_none(&tidy::check(&workspace_root()).unwrap());
}

#[test]
fn parity_rows_name_existing_tests_and_the_page_is_up_to_date() {
    assert_none(&parity::check(&workspace_root()).unwrap());
}

/// The findings in one file, as `line: first words`.
fn found_in(path: &str, text: &str) -> Vec<String> {
    let findings = tidy::check_sources(&[Source::new(path, text)]);
    findings.iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
}

#[track_caller]
fn check(path: &str, text: &str, expected: &[&str]) {
    let found = found_in(path, text);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found:?} should begin with {expected:?}");
    }
}

#[test]
fn every_file_needs_a_module_comment() {
    check("crates/agent/src/a.rs", "use std::fmt;\n", &["1: begins without `//!`"]);
    check("crates/agent/src/a.rs", "//! Owns a.\n", &[]);
    check("crates/agent/src/a/tests.rs", "use super::*;\n", &[]);
}

#[test]
fn crate_roots_forbid_unsafe_code_except_in_host() {
    let soft = "//! A crate.\n#![deny(unsafe_code)]\n";
    check("crates/agent/src/lib.rs", soft, &["1: is a crate root without"]);
    check("crates/adapters/host/src/lib.rs", soft, &[]);
    check("crates/kubelet/src/main.rs", "//! A binary.\n", &["1: is a crate root without"]);
}

#[test]
fn names_without_meaning_are_reported() {
    let text =
        "//! A page.\npub struct PodManager;\nenum ImplDetail {}\nmod util;\nlet cpu_manager_policy = 1;\n";
    check("crates/agent/src/a.rs", text, &["2: `PodManager` ends in Manager", "4: module `util`"]);
}

#[test]
fn stubs_postponed_work_and_ignored_tests_are_reported() {
    let text =
        "//! A page.\nfn a() { todo!() }\n// TODO later\n#[ignore]\nlet path = \"/tmp/XXX // TODO\";\n";
    check("crates/agent/src/a.rs", text, &["2: todo!", "3: TODO in a comment", "4: an ignored test"]);
    check("crates/kubelet/tests/it/node.rs", "//! A page.\n#[ignore]\n", &["2: an ignored test"]);
    check("crates/kubelet/tests/it/guest/systemd.rs", "//! A page.\n#[ignore]\n", &[]);
}

#[test]
fn decision_cores_have_no_side_effects() {
    let text = "//! A page.\nuse std::net::IpAddr;\nuse std::{\n    collections::BTreeMap,\n    fs,\n};\nfn f() { std::env::var(\"A\"); }\n\
                use std::collections::HashMap;\nlet env = 1;\n";
    let expected =
        ["5: `fs` in a decision core", "7: `env` in a decision core", "8: `HashMap` in a decision core"];
    check("crates/kubelet-core/src/a.rs", text, &expected);
    check("crates/volumes/core/src/a.rs", text, &expected);
    check("crates/volumes/agent/src/a.rs", text, &[]);
    check("crates/agent/src/a.rs", text, &[]);
}

#[test]
fn functions_and_files_stay_short() {
    let long = format!("//! A page.\nfn long() {{\n{}}}\n", "    step();\n    // why\n\n".repeat(99));
    check("crates/agent/src/a.rs", &long, &["2: function `long` has 101 lines; the limit is 100"]);
    check("crates/agent/tests/it/a.rs", &long, &[]);
    let file = format!("//! A page.\n{}", "const A: u8 = 1;\n".repeat(800));
    check("crates/agent/src/a.rs", &file, &["0: this file has 801 lines without tests; the limit is 800"]);
    check("crates/agent/tests/it/a.rs", &file, &[]);
}

#[test]
fn braces_in_strings_characters_and_comments_do_not_count() {
    let text = "//! A page.\nfn a() {\n    let open = '{'; // {\n    let quote = '\\'';\n    let raw = r#\"{\"{\"#;\n    /* { */\n}\nfn b<'a>(x: &'a [u8; 3]);\nfn c() {}\n";
    let functions = Source::new("crates/agent/src/a.rs", text).functions();
    let seen: Vec<(&str, usize, usize)> =
        functions.iter().map(|f| (f.name.as_str(), f.line, f.length)).collect();
    assert_eq!(seen, [("a", 2, 5), ("c", 9, 1)]);
}

#[test]
fn sleeps_in_tests_are_reported() {
    let text = "//! A page.\n#[cfg(test)]\nmod tests {\n    fn t() { std::thread::sleep(d); }\n}\n";
    check("crates/agent/src/a.rs", text, &["4: a test sleeps"]);
}
