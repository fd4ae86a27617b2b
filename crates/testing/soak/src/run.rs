//! A soak: real pods of every kind on a real containerd, changed at random, while the kubelet, the runtime, the API server, the disk
//! and DNS fail. `scripts/soak` builds what is measured and runs this.
//!
//! Owns: acting and observing. What happens, what must hold, and the chart are decided by the other modules. Everything follows from
//! one seed, which is printed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a soak is for people")]

mod clock;
mod drive;
mod faults;
mod inventory;
mod observe;
mod phases;
mod report;
mod stand;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::schedule::Extent;
use harness::outcome::{BenchError, Outcome, failed};

/// Random changes keep within eight of it, so there are always at least 60.
const PODS: usize = 68;

#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) seed: u64,
    pub(crate) extent: Extent,
    /// Where the report is written.
    pub(crate) report: PathBuf,
    /// The program that runs.
    pub(crate) kubelet: PathBuf,
    /// The library that is preloaded into it, `crates/adapters/host/examples/wall_clock.rs`.
    pub(crate) clock: PathBuf,
}

impl Arguments {
    fn parse() -> Outcome<Self> {
        let mut arguments = Self {
            seed: random_seed()?,
            extent: Extent { duration: Duration::from_secs(3600), pods: PODS },
            report: "target/soak".into(),
            kubelet: PathBuf::new(),
            clock: "target/debug/examples/libwall_clock.so".into(),
        };
        let mut given = std::env::args().skip(1);
        while let Some(argument) = given.next() {
            let mut value = || given.next().ok_or_else(|| BenchError(format!("{argument} needs a value")));
            match argument.as_str() {
                "--minutes" => {
                    arguments.extent.duration = Duration::from_secs(60 * number(&argument, &value()?)?)
                }
                "--pods" => {
                    let pods = usize::try_from(number(&argument, &value()?)?);
                    arguments.extent.pods = pods.map_err(failed("read --pods"))?;
                }
                "--seed" => arguments.seed = number(&argument, &value()?)?,
                "--report" => arguments.report = value()?.into(),
                "--kubelet" => arguments.kubelet = value()?.into(),
                "--clock" => arguments.clock = value()?.into(),
                // What `cargo bench` adds.
                "--bench" => {}
                unknown => return Err(BenchError(format!("unknown argument {unknown}"))),
            }
        }
        if arguments.kubelet.as_os_str().is_empty() {
            return Err(BenchError("--kubelet must name the program to run".to_owned()));
        }
        Ok(arguments)
    }
}

fn number(argument: &str, value: &str) -> Outcome<u64> {
    value.parse().map_err(failed(format!("read the number of {argument}")))
}

fn random_seed() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(failed("choose a seed"))?;
    let digits = text.split('-').next().unwrap_or_default();
    u64::from_str_radix(digits, 16).map_err(failed("choose a seed"))
}

/// Runs the soak that the arguments of the process ask for.
#[must_use]
pub fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything held.
fn run() -> Outcome<bool> {
    let arguments = Arguments::parse()?;
    println!("seed {}", arguments.seed);
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let tokio = tokio.map_err(failed("start threads"))?;
    let report = tokio.block_on(async {
        tokio::select! {
            report = Box::pin(phases::soak(&arguments)) => report,
            // That future owns everything that runs, and ends it.
            _ = tokio::signal::ctrl_c() => Err(BenchError("interrupted".to_owned())),
        }
    })?;
    report.write(&arguments.report)?;
    print!("{}", report.summary());
    println!("written to {}", arguments.report.display());
    Ok(report.holds())
}
