//! Dependencies between crates. The table here is the one in docs/ARCHITECTURE.md, and is compared with `cargo metadata`. A new
//! dependency is a change of the architecture: it belongs in both, in a separate commit.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::source::crate_in_folder;
use crate::tidy::purity::is_decision_core;
use crate::{CheckError, Finding, read};

/// A crate, and the crates it may import.
const CRATES: &[(&str, &[&str])] = &[
    (
        "agent",
        &[
            "api-agent",
            "api-core",
            "base-agent",
            "base-core",
            "config",
            "explain-core",
            "images-agent",
            "images-core",
            "kubelet-core",
            "logs-core",
            "model",
            "ports",
            "resources-agent",
            "resources-core",
            "sources-agent",
            "sources-core",
            "stats-agent",
            "stats-core",
            "volumes-agent",
            "volumes-core",
        ],
    ),
    ("base-agent", &["base-core", "config", "model", "ports", "stats-core"]),
    ("sources-agent", &["base-agent", "base-core", "config", "model", "ports", "sources-core"]),
    (
        "api-agent",
        &[
            "api-core",
            "base-agent",
            "base-core",
            "config",
            "images-core",
            "model",
            "ports",
            "sources-agent",
            "sources-core",
            "stats-core",
            "volumes-core",
        ],
    ),
    (
        "volumes-agent",
        &[
            "api-agent",
            "api-core",
            "base-agent",
            "base-core",
            "config",
            "model",
            "ports",
            "stats-core",
            "volumes-core",
        ],
    ),
    (
        "resources-agent",
        &["base-agent", "base-core", "config", "model", "ports", "resources-core", "stats-core"],
    ),
    (
        "images-agent",
        &[
            "api-agent",
            "base-agent",
            "base-core",
            "config",
            "images-core",
            "model",
            "ports",
            "stats-agent",
            "stats-core",
            "volumes-core",
        ],
    ),
    (
        "stats-agent",
        &[
            "base-agent",
            "logs-core",
            "model",
            "ports",
            "resources-core",
            "stats-core",
            "volumes-agent",
            "volumes-core",
        ],
    ),
    ("base-core", &["config", "model"]),
    ("cluster", &["model", "ports", "yaml"]),
    ("config", &["model", "yaml"]),
    ("cri", &["cri-api", "model", "ports"]),
    ("cri-api", &[]),
    ("grpc-api", &[]),
    ("host", &["model", "ports"]),
    (
        "kubelet",
        &[
            "agent",
            "api-agent",
            "api-core",
            "base-agent",
            "base-core",
            "cli",
            "cluster",
            "config",
            "cri",
            "explain-core",
            "grpc-api",
            "host",
            "images-core",
            "kubelet-core",
            "localapi",
            "model",
            "net",
            "plugins",
            "ports",
            "resources-core",
            "server",
            "sources-core",
            "stats-core",
            "volumes-core",
        ],
    ),
    (
        "kubelet-core",
        &[
            "api-core",
            "base-core",
            "config",
            "images-core",
            "logs-core",
            "model",
            "resources-core",
            "sources-core",
            "stats-core",
            "volumes-core",
            "yaml",
        ],
    ),
    ("localapi", &["model", "tunnel", "volumes-core", "yaml"]),
    ("model", &[]),
    ("net", &["model", "ports"]),
    ("plugins", &["grpc-api", "model", "ports"]),
    ("ports", &["model"]),
    ("resources-core", &["base-core", "config", "model"]),
    ("server", &["config", "explain-core", "grpc-api", "model", "ports", "tunnel"]),
    ("fixtures", &["model"]),
    ("fakes", &["cri-api", "fixtures", "grpc-api", "localapi", "model", "ports"]),
    ("harness", &["cluster", "cri-api", "fixtures", "localapi", "model", "ports"]),
    ("soak", &["cluster", "cri", "fakes", "fixtures", "harness", "localapi", "model", "ports"]),
    ("bench", &["cluster", "cri", "fakes", "fixtures", "harness", "localapi", "model", "ports"]),
    ("volumes-core", &["base-core", "config", "model"]),
    ("tunnel", &[]),
    ("xtask", &[]),
    ("yaml", &[]),
    ("images-core", &["base-core", "config", "model"]),
    ("explain-core", &["base-core", "model"]),
    ("cli", &["config", "explain-core", "model"]),
    ("logs-core", &["model"]),
    ("stats-core", &["model"]),
    ("sources-core", &["base-core", "config", "images-core", "model", "yaml"]),
    ("api-core", &["base-core", "model", "sources-core"]),
];
/// Crates that tests of any crate may also import: the fakes, the protocol of the fake runtime, and localapi.
const FOR_TESTS: &[&str] = &["cri-api", "fakes", "fixtures", "harness", "localapi"];
/// The suites that run with fake and real implementations of a port need these adapters, and no others.
const CONTRACT_SUITES: [(&str, &str); 3] = [("fakes", "cluster"), ("fakes", "cri"), ("fakes", "plugins")];
/// Crates without side effects, next to the decision cores; and the dependencies that would add some.
const PURE: &[&str] = &["config", "model", "yaml"];
const CRATES_WITH_SIDE_EFFECTS: &[&str] =
    &["axum", "hyper", "parking_lot", "reqwest", "rustix", "tokio", "tonic", "tracing"];

/// What clippy refuses in each decision core.
const LINTS_OF_CORES: &str = "crates/kubelet-core/clippy.toml";

pub(super) fn check(root: &Path) -> Result<Vec<Finding>, CheckError> {
    let metadata = metadata(root)?;
    let packages = metadata["packages"].as_array().ok_or_else(|| broken("no packages"))?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let crate_name = package["name"].as_str().ok_or_else(|| broken("a package without a name"))?;
        let file = manifest(root, package).ok_or_else(|| broken("a package outside of the workspace"))?;
        let mut report = |what| findings.push(Finding { file: file.to_owned(), line: 0, what });
        for (target, for_tests) in dependencies(package) {
            let complaint = if names.contains(&target) {
                edge(crate_name, target, for_tests)
            } else {
                side_effects(crate_name, target, for_tests)
            };
            complaint.map(&mut report);
        }
        is_unlisted(crate_name).map(&mut report);
        is_misplaced(crate_name, file).map(&mut report);
        is_without_lints(root, crate_name, file)?.map(&mut report);
    }
    findings.extend(unmapped(root, &names)?);
    Ok(findings)
}

fn metadata(root: &Path) -> Result<Value, CheckError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| broken(&error.to_string()))?;
    if !output.status.success() {
        return Err(broken(&String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| broken(&error.to_string()))
}

fn broken(what: &str) -> CheckError {
    CheckError::Metadata(what.trim().to_owned())
}

/// The names a package depends on, and whether only its tests do.
fn dependencies(package: &Value) -> Vec<(&str, bool)> {
    let all = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .filter_map(|dependency| {
            Some((dependency["name"].as_str()?, dependency["kind"].as_str() == Some("dev")))
        })
        .collect()
}

fn edge(crate_name: &str, target: &str, for_tests: bool) -> Option<String> {
    let allowed =
        CRATES.iter().find(|(name, _)| *name == crate_name).map(|(_, allowed)| *allowed).unwrap_or_default();
    let in_tests = FOR_TESTS.contains(&target) || CONTRACT_SUITES.contains(&(crate_name, target));
    let fine = allowed.contains(&target) || (for_tests && in_tests);
    (!fine).then(|| format!("{crate_name} may not import {target}: see the table in docs/ARCHITECTURE.md"))
}

fn side_effects(crate_name: &str, target: &str, for_tests: bool) -> Option<String> {
    let is_pure = PURE.contains(&crate_name) || is_decision_core(crate_name);
    let loud = !for_tests && is_pure && CRATES_WITH_SIDE_EFFECTS.contains(&target);
    loud.then(|| format!("{crate_name} has only data and decisions; {target} has side effects"))
}

fn is_unlisted(crate_name: &str) -> Option<String> {
    let what = "is a new crate: add its row to xtask/src/tidy/dependencies.rs and to docs/ARCHITECTURE.md";
    (!CRATES.iter().any(|(name, _)| *name == crate_name)).then(|| what.to_owned())
}

/// The other rules know a crate by its folder.
fn is_misplaced(crate_name: &str, manifest: &str) -> Option<String> {
    let name_of_folder = crate_in_folder(manifest.trim_end_matches("/Cargo.toml"));
    (name_of_folder != crate_name).then(|| format!("{crate_name} is not in a folder of its name"))
}

/// A decision core has the list of banned methods and types of all decision cores: clippy reads the one next to the manifest.
fn is_without_lints(root: &Path, crate_name: &str, manifest: &str) -> Result<Option<String>, CheckError> {
    if !is_decision_core(crate_name) {
        return Ok(None);
    }
    let list = manifest.replace("Cargo.toml", "clippy.toml");
    let is_same = root.join(&list).is_file() && read(&root.join(&list))? == read(&root.join(LINTS_OF_CORES))?;
    Ok((!is_same).then(|| {
        format!("{crate_name} has not the lints of decision cores: link {list} to {LINTS_OF_CORES}")
    }))
}

/// Crates that the table in docs/ARCHITECTURE.md lacks.
fn unmapped(root: &Path, names: &[&str]) -> Result<Vec<Finding>, CheckError> {
    let map = read(&root.join("docs/ARCHITECTURE.md"))?;
    let missing = names.iter().filter(|crate_name| !map.contains(&format!("`{crate_name}`")));
    let what = |crate_name: &&str| format!("the code map does not name `{crate_name}`");
    let file = "docs/ARCHITECTURE.md".to_owned();
    Ok(missing.map(|crate_name| Finding { file: file.clone(), line: 0, what: what(crate_name) }).collect())
}

/// The path of the manifest below the root.
fn manifest<'a>(root: &Path, package: &'a Value) -> Option<&'a str> {
    Path::new(package["manifest_path"].as_str()?).strip_prefix(root).ok()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_never_import_each_other_or_the_decision_core() {
        for (crate_name, target) in
            [("cri", "host"), ("host", "net"), ("cri", "kubelet-core"), ("server", "agent")]
        {
            assert!(edge(crate_name, target, false).is_some(), "{crate_name} -> {target}");
        }
        assert_eq!(edge("cri", "ports", false), None);
    }

    #[test]
    fn fakes_are_for_tests() {
        assert!(edge("agent", "fakes", false).is_some());
        assert_eq!(edge("agent", "fakes", true), None);
        assert!(edge("fakes", "cri", false).is_some());
        assert_eq!(edge("fakes", "cri", true), None);
        assert!(edge("fakes", "cluster", false).is_some());
        assert_eq!(edge("fakes", "cluster", true), None);
        assert!(edge("fakes", "host", true).is_some());
    }

    #[test]
    fn decision_cores_depend_on_no_runtime() {
        assert!(side_effects("kubelet-core", "tokio", false).is_some());
        assert!(side_effects("volumes-core", "tokio", false).is_some());
        assert_eq!(side_effects("agent", "tokio", false), None);
        assert_eq!(side_effects("model", "proptest", true), None);
    }

    #[test]
    fn crate_without_a_row_is_reported() {
        assert_eq!(is_unlisted("model"), None);
        assert!(is_unlisted("kitchen").is_some());
    }

    #[test]
    fn crate_has_the_name_of_its_folders() {
        assert_eq!(is_misplaced("volumes-core", "crates/volumes/core/Cargo.toml"), None);
        assert_eq!(is_misplaced("cri", "crates/adapters/cri/Cargo.toml"), None);
        assert_eq!(is_misplaced("xtask", "xtask/Cargo.toml"), None);
        assert!(is_misplaced("volumes", "crates/volumes/core/Cargo.toml").is_some());
    }
}
