//! The API server as a program of its own. Everything is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    localapi::command::run(std::env::args().skip(1), None)
}
