//! What fuzzers (`scripts/fuzz`) throw at the readers of manifests: each function takes any bytes, and panics where a promise
//! is broken. What was found once lies in `fuzz/corpus`, and is tried again with every test run.

use config::Features;

use crate::static_pod::{Manifest, Origin, parse_manifest};

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("manifest", manifest)];

/// A manifest is refused with words, or read; and what was read once is read the same again.
pub fn manifest(data: &[u8]) {
    let origin = Origin::File("/etc/kubernetes/manifests/fuzz.yaml".to_owned());
    let read = || parse_manifest(data, &origin, "node", Features::default());
    let (one, other) = (read(), read());
    assert!(one.as_ref().err().is_none_or(|problems| !problems.is_empty()), "a refusal without a word");
    let pods = |read: Result<Manifest, _>| read.ok().map(|manifest| manifest.pods);
    assert_eq!(pods(one), pods(other));
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
