//! The inputs in `fuzz/corpus`: seeds of fuzz targets, and what fuzzers found.

use std::path::Path;

/// The name of a target, which is also that of its corpus, and the function that runs on each input.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// Runs each target on every input in its corpus. A target panics where it finds a defect.
///
/// # Panics
/// A target does, or has no corpus, or an empty one.
#[expect(clippy::panic, reason = "a test that cannot read its inputs fails, with the reason")]
pub fn run_fuzz_corpus(targets: &[FuzzTarget]) {
    let corpora = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus"));
    for (name, target) in targets {
        let corpus = corpora.join(name);
        let failed = |error: std::io::Error| -> ! { panic!("{}: {error}", corpus.display()) };
        let inputs = std::fs::read_dir(&corpus).unwrap_or_else(|error| failed(error));
        let mut count = 0;
        for input in inputs {
            let path = input.unwrap_or_else(|error| failed(error)).path();
            target(&std::fs::read(&path).unwrap_or_else(|error| failed(error)));
            count += 1;
        }
        assert!(count > 0, "no inputs in {}", corpus.display());
    }
}
