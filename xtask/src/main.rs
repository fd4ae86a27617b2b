//! Developer tasks: `cargo run -p xtask -- <task>`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its terminal")]

mod codegen;
mod cold_code;

use std::path::PathBuf;
use std::process::ExitCode;

use xtask::{CheckError, Finding, parity, tidy, workspace_root};

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("codegen") => report(codegen::regenerate().map(|path| format!("wrote {}", path.display()))),
        Some("cold-code") => report(cold_code()),
        Some("parity-summary") => report(parity_summary()),
        Some("tidy") => report(tidy_up()),
        Some(_) | None => {
            eprintln!(
                "usage: cargo run -p xtask -- codegen | cold-code LISTING TRACE... | parity-summary | tidy [CHECKOUT]"
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

/// Takes the listing of the program's symbols, then what callgrind wrote.
fn cold_code() -> Result<String, cold_code::ColdCodeError> {
    let mut files = std::env::args_os().skip(2).map(PathBuf::from);
    let listing = files.next().unwrap_or_default();
    cold_code::rewrite(&listing, &files.collect::<Vec<_>>(), &workspace_root())
}

fn parity_summary() -> Result<String, CheckError> {
    let rows = parity::read_map(&workspace_root())?;
    let counts = parity::summary(&rows).into_iter().map(|(state, count)| format!("{state:<9} {count:>4}"));
    Ok(counts.chain([format!("{:<9} {:>4}", "rows", rows.len())]).collect::<Vec<_>>().join("\n"))
}

/// Looks at this repository, or at the checkout named after the task.
fn tidy_up() -> Result<String, String> {
    let root = std::env::args_os().nth(2).map_or_else(workspace_root, PathBuf::from);
    let mut findings = tidy::check(&root).map_err(|error| error.to_string())?;
    findings.extend(parity::check(&root).map_err(|error| error.to_string())?);
    if findings.is_empty() {
        return Ok("tidy".to_owned());
    }
    Err(findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n"))
}
