//! What fuzzers (`scripts/fuzz`) throw at the readers of files of the kernel: each function takes any bytes, and panics where a promise
//! is broken. What was found once lies in `fuzz/corpus`, and is tried again with every test run.

use crate::cgroup;
use crate::cgroup::{Detail, Hierarchy};
use crate::process::ProcessFacts;
use crate::procfs;

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("cgroup_files", cgroup_files), ("process_stat", process_stat)];

/// Files of cgroups say something or nothing.
pub fn cgroup_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    for hierarchy in [Hierarchy::V1, Hierarchy::V2] {
        let count = cgroup::files(hierarchy, Detail::Full).len();
        let _ = cgroup::parse(hierarchy, Detail::Full, &vec![Some(text.clone()); count]);
    }
}

/// Files of `/proc` say something or nothing.
pub fn process_stat(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = ProcessFacts::parse([&text, &text, &text, &text, &text], 1);
    let _ = (procfs::cpu_times(&text), procfs::running_tasks(&text), procfs::default_interface(&text));
    let lines = text.lines().count();
    assert!(procfs::interfaces(&text).len() <= lines && procfs::disks(&text).len() <= lines);
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
