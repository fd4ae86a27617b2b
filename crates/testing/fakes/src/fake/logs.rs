//! Container logs as files, in the CRI log format: time, stream, `F` for a whole line, text.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;

/// Appends lines of standard output to a log, creating it and its directory.
pub(super) fn append(path: &Path, lines: &[String], at: Timestamp) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut file = fs::File::options().create(true).append(true).open(path)?;
    for line in lines {
        writeln!(file, "{at:.9} stdout F {line}")?;
    }
    Ok(())
}
