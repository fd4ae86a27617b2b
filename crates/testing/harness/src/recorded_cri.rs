//! Recordings of what a container runtime answers, request by request: written by a proxy in front of a real runtime, and played
//! to the adapter by a server without a runtime.
//!
//! Both know a message only by its definition in `cri-api`, so that fields which our code does not read are recorded, too.

use std::io;
use std::path::Path;

mod exchange;
mod player;
mod recorder;
mod serve;
mod text;

pub use player::RecordedCri;
pub use recorder::CriRecorder;

/// The name and version of the CRI-O whose answers are in `tests/recorded`.
pub const CRIO: &str = "cri-o-1.36.3";

/// The recording of a case of the contract suite.
pub fn recording(runtime: &str, case: &str) -> io::Result<String> {
    let recordings = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/recorded"));
    std::fs::read_to_string(recordings.join(runtime).join(format!("{case}.txt")))
}
