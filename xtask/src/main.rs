//! Developer tasks: `cargo run -p xtask -- <task>`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod codegen;

use std::path::PathBuf;
use std::process::ExitCode;

use xtask::{Finding, compare, parity, site, tidy, workspace_root};

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("codegen") => report(codegen::regenerate().map(|path| format!("wrote {}", path.display()))),
        Some("compare") => compare_recordings(),
        Some("compare-assemble") => report(assemble_recording()),
        Some("parity") => {
            report(parity::generate(&workspace_root()).map(|path| format!("wrote {}", path.display())))
        }
        Some("site") => report(check_site()),
        Some("tidy") => report(tidy_up()),
        Some(_) | None => {
            eprintln!(
                "usage: cargo run -p xtask -- codegen | compare RECORDING [REFERENCE] | compare-assemble RECORDING | parity | site DIRECTORY | tidy [CHECKOUT]"
            );
            ExitCode::from(2)
        }
    }
}

fn report<E: std::fmt::Display>(outcome: Result<String, E>) -> ExitCode {
    match outcome {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Compares a recording of `scripts/compare` with that of the Go kubelet, or with the one in the argument.
fn compare_recordings() -> ExitCode {
    let root = workspace_root();
    let mut directories = std::env::args_os().skip(2).map(PathBuf::from);
    let ours = directories.next().unwrap_or_default();
    let theirs = directories.next().unwrap_or_else(|| root.join("crates/localapi/tests/recorded"));
    match compare::report(&root, &theirs, &ours) {
        Ok((text, is_explained)) => {
            println!("{text}");
            if is_explained { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Writes `pods/<pod>.json` out of `audit.jsonl`, `pods.json` and `events.json` of the directory.
fn assemble_recording() -> Result<String, String> {
    let directory = std::env::args_os().nth(2).map(PathBuf::from).unwrap_or_default();
    let read = |name: &str| {
        std::fs::read_to_string(directory.join(name)).map_err(|error| format!("{name}: {error}"))
    };
    let json = |name: &str| serde_json::from_str(&read(name)?).map_err(|error| format!("{name}: {error}"));
    let pods = compare::assemble(&read("audit.jsonl")?, &json("pods.json")?, &json("events.json")?, "diff");
    let target = directory.join("pods");
    std::fs::create_dir_all(&target).map_err(|error| error.to_string())?;
    for (name, pod) in &pods {
        std::fs::write(target.join(format!("{name}.json")), pod.to_string())
            .map_err(|error| error.to_string())?;
    }
    Ok(format!("{} pods recorded in {}", pods.len(), directory.display()))
}

/// Checks the links of the built site in the argument.
fn check_site() -> Result<String, String> {
    let directory = std::env::args_os().nth(2).map(PathBuf::from).ok_or("the directory is missing")?;
    let (count, findings) = site::check(&directory).map_err(|error| error.to_string())?;
    if findings.is_empty() {
        return Ok(format!("{count} links of the site lead to a page and a heading"));
    }
    Err(findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n"))
}

/// Checks this repository, or the checkout in the argument.
fn tidy_up() -> Result<String, String> {
    let root = std::env::args_os().nth(2).map_or_else(workspace_root, PathBuf::from);
    let mut findings = tidy::check(&root).map_err(|error| error.to_string())?;
    findings.extend(parity::check(&root).map_err(|error| error.to_string())?);
    if findings.is_empty() {
        return Ok("tidy".to_owned());
    }
    Err(findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n"))
}
