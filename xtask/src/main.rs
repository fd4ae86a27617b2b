//! Developer tasks: `cargo run -p xtask -- <task>`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its terminal")]

mod codegen;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("codegen") => report(codegen::regenerate().map(|path| format!("wrote {}", path.display()))),
        Some(_) | None => {
            eprintln!("usage: cargo run -p xtask -- codegen");
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
