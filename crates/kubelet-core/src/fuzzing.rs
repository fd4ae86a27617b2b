//! What fuzzers (`scripts/fuzz`) throw at the readers of texts from outside: each function takes any bytes, and panics
//! where a promise is broken. What was found once lies in `fuzz/corpus`, and is tried again with every test run.

use config::Features;
use jiff::Timestamp;

use crate::container_log::{LogFilter, LogReader, TailSearch};
use crate::image::keyring::Keyring;
use crate::image::name;
use crate::static_pod::{Manifest, Origin, parse_manifest};
use crate::stats::cgroup::{self, Detail, Hierarchy};

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("log_lines", log_lines),
    ("log_tail", log_tail),
    ("manifest", manifest),
    ("docker_config", docker_config),
    ("cgroup_files", cgroup_files),
];

/// A log is shown the same in whatever pieces it is read, and never more of it than was asked for.
pub fn log_lines(data: &[u8]) {
    let Some((choice, log)) = data.split_first() else { return };
    let has = |bit: u8| choice & bit != 0;
    let limit = has(4).then_some(u64::from(choice >> 4));
    let filter = LogFilter {
        since: has(1).then_some(Timestamp::UNIX_EPOCH),
        timestamps: has(2),
        stream: has(8).then_some("stdout"),
        limit_bytes: limit,
    };
    let shown = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut reader = LogReader::new(filter.clone());
        let mut shown: Vec<u8> = pieces.flat_map(|piece| reader.feed(piece)).collect();
        shown.extend(reader.finish());
        shown
    };
    let whole = shown(&mut std::iter::once(log));
    let pieces = shown(&mut log.chunks(usize::from(choice >> 4) + 1));
    assert_eq!(whole, pieces, "the size of pieces does not show");
    assert!(limit.is_none_or(|limit| whole.len() as u64 <= limit), "no more than asked for");
}

/// The last lines of a log are as many as were asked for, or all.
pub fn log_tail(data: &[u8]) {
    let Some((lines, log)) = data.split_first() else { return };
    let mut search = TailSearch::new(log.len() as u64, u64::from(*lines));
    while let Some((from, length)) = search.next_block() {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        search.feed(&log[from..from + length]);
    }
    let start = usize::try_from(search.start()).unwrap_or(usize::MAX);
    let found = log[start..].split_inclusive(|byte| *byte == b'\n').count();
    let all = log.split_inclusive(|byte| *byte == b'\n').count();
    assert_eq!(found, all.min(usize::from(*lines)));
}

/// A manifest is refused with words, or read; and what was read once is read the same again.
pub fn manifest(data: &[u8]) {
    let origin = Origin::File("/etc/kubernetes/manifests/fuzz.yaml".to_owned());
    let read = || parse_manifest(data, &origin, "node", Features::default());
    let (one, other) = (read(), read());
    assert!(one.as_ref().err().is_none_or(|problems| !problems.is_empty()), "a refusal without a word");
    let pods = |read: Result<Manifest, _>| read.ok().map(|manifest| manifest.pods);
    assert_eq!(pods(one), pods(other));
}

/// Credentials that can be read are found for the places they name, and for no name of an image that cannot be one.
pub fn docker_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for keyring in [Keyring::parse_config_json(&text), Keyring::parse_dockercfg(&text)].into_iter().flatten()
    {
        let _ = keyring.credentials_for("registry.example/team/app:1");
    }
    if let Ok(image) = name::with_default_tag(&text) {
        assert_eq!(name::with_default_tag(&image).as_ref(), Ok(&image), "a whole name is left as it is");
    }
}

/// Files of cgroups say something or nothing.
pub fn cgroup_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    for hierarchy in [Hierarchy::V1, Hierarchy::V2] {
        let count = cgroup::files(hierarchy, Detail::Full).len();
        let _ = cgroup::parse(hierarchy, Detail::Full, &vec![Some(text.clone()); count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fuzzers_were_given_and_found_is_read_as_promised() {
        for (name, target) in TARGETS {
            let corpus =
                std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(name);
            let inputs =
                std::fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
            for input in inputs {
                target(&std::fs::read(input.unwrap().path()).unwrap());
            }
        }
    }
}
