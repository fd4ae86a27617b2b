//! What fuzzers (`scripts/fuzz`) throw at the readers of state files: each function takes any bytes, and panics where a promise is
//! broken. What was found once lies in `fuzz/corpus`, and is tried again with every test run.

use crate::cpus::{parse_cpu_state, write_cpu_state};
use crate::devices::checkpoint;
use crate::memory::checkpoint as memory;

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("cpu_state", cpu_state),
    ("device_checkpoint", device_checkpoint),
    ("memory_checkpoint", memory_checkpoint),
];

/// The CPUs of containers are refused with words, or are the same when they are written and read again. A file without a checksum is accepted,
/// so that every state can be reached.
pub fn cpu_state(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for pod_level in [false, true] {
        let container_of = |id: &str| Some(("pod".into(), id.to_owned()));
        match parse_cpu_state(&text, "static", pod_level, container_of) {
            Ok((state, _)) => {
                let written = write_cpu_state("static", &state, pod_level);
                let again = parse_cpu_state(&written, "static", pod_level, |_| None);
                assert_eq!(again.ok().map(|(state, _)| state), Some(state));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// A checkpoint of devices is refused with words, or names pods and resources that stand in it.
pub fn device_checkpoint(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // An attacker who can write the file can also compute its checksum, so it must not be what protects us.
    for text in [text.as_ref().to_owned(), checkpoint::with_right_checksum(&text).unwrap_or_default()] {
        match checkpoint::parse_checkpoint(&text, |bytes| bytes.is_empty().then(Default::default)) {
            Ok(remembered) => {
                let devices = remembered.pods.values().flat_map(|pod| pod.containers.values());
                let given = devices.flat_map(|resources| resources.values());
                assert!(given.map(|given| given.devices.len()).sum::<usize>() <= text.len());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Allocations of memory that are read can be written, read again and released.
pub fn memory_checkpoint(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let texts = [text.as_ref().to_owned(), memory::with_right_checksum(&text).unwrap_or_default()];
    for (text, has_pods) in texts.iter().flat_map(|text| [(text, false), (text, true)]) {
        match memory::parse_memory_checkpoint(text, "Static", has_pods) {
            Ok(mut state) => {
                let written = memory::write_memory_checkpoint("Static", &state, true);
                let again = memory::parse_memory_checkpoint(&written, "Static", true);
                assert!(again.is_ok_and(|again| again == state), "{written}");
                state.retain(|_, _| false);
                assert!(state.containers.is_empty());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
