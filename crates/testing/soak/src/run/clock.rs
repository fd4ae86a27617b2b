//! The wall clock of the kubelet, which jumps while the machine's does not.
//!
//! Owns the file with the difference in seconds. `crates/adapters/host/examples/wall_clock.rs` reads it, preloaded into the kubelet.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::run::{Outcome, failed};

#[derive(Debug)]
pub(crate) struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// Without a difference.
    pub(crate) fn new(library: &Path, file: &Path) -> Outcome<Self> {
        let library = library.canonicalize().map_err(failed(format!("find {}", library.display())))?;
        std::fs::write(file, 0_i64.to_ne_bytes()).map_err(failed("write the difference of the clock"))?;
        Ok(Self { library, file: file.to_path_buf() })
    }

    /// Starts a program with this clock, and becomes it.
    pub(crate) fn wrapper(&self) -> [String; 3] {
        [
            "env".to_owned(),
            format!("LD_PRELOAD={}", self.library.display()),
            format!("WALL_CLOCK_OFFSET_FILE={}", self.file.display()),
        ]
    }

    /// From now on the clock differs by so many seconds. The file keeps its length, because it is mapped.
    pub(crate) fn set(&self, seconds: i64) -> Outcome<()> {
        let file = File::options().write(true).open(&self.file).map_err(failed("open the clock"))?;
        file.write_all_at(&seconds.to_ne_bytes(), 0).map_err(failed("set the clock"))
    }
}
