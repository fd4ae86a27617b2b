//! What fuzzers (`scripts/fuzz`) throw at the readers of state files: each function takes any bytes, and panics where a promise is
//! broken. What was found once lies in `fuzz/corpus`, and is tried again with every test run.

use std::time::Duration;

use jiff::Timestamp;
use model::dra::ClaimId;
use model::{MonoTime, Now, PodUid};

use crate::claims::checkpoint as claims;
use crate::claims::health_file::{parse_health_state, write_health_state};
use crate::claims::table::{Batches, Begin, ClaimTable};
use crate::cpus::{parse_cpu_state, write_cpu_state};
use crate::devices::checkpoint;
use crate::memory::checkpoint as memory;

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("cpu_state", cpu_state),
    ("device_checkpoint", device_checkpoint),
    ("dra_health_state", dra_health_state),
    ("dra_manager_state", dra_manager_state),
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

/// The health of devices is refused with words, or is within the limits, ends some time, and is the same when it is written and read again
/// at that time.
pub fn dra_health_state(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let wall = Timestamp::from_second(1_767_225_600).unwrap_or_default();
    let now = Now { wall, mono: MonoTime::from_start(Duration::from_secs(1000)) };
    let mut table = match parse_health_state(&text, now) {
        Ok(table) => table,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let written = write_health_state(&table).unwrap_or_default();
    assert_eq!(parse_health_state(&written, now).ok().as_ref(), Some(&table), "{written}");
    let day = Duration::from_secs(24 * 3600);
    assert!(
        table.next_expiry().is_none_or(|at| now.mono < at && at <= now.mono + day + Duration::from_secs(1))
    );
    table.expire(now.mono + day + Duration::from_secs(1));
    assert_eq!(table.next_expiry(), None);
}

/// Claims are refused with words, or are the same when they are written and read again, and each can be unprepared.
pub fn dra_manager_state(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for text in [text.as_ref().to_owned(), claims::with_right_checksum(&text).unwrap_or_default()] {
        let mut table = match claims::parse_dra_state(&text) {
            Ok(table) => table,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        let written = claims::write_dra_state(&table).unwrap_or_default();
        assert_eq!(claims::parse_dra_state(&written).ok().as_ref(), Some(&table), "{written}");
        // Claims that have one UID, in a damaged file, are unprepared one after another.
        for _ in 0..table.claims().count() {
            for pod in table.pods() {
                unprepare(&mut table, &pod);
            }
        }
        assert!(table.is_empty(), "{written}");
    }
}

fn unprepare(table: &mut ClaimTable, pod: &PodUid) {
    let batches = match table.begin_unprepare(pod) {
        Begin::Ready(batches) => batches,
        Begin::Busy => Batches::new(),
    };
    for (driver, asked) in &batches {
        let answer = |claim: &ClaimId| (claim.uid.clone(), Ok(()));
        let _ = table.unprepared(driver, asked, asked.iter().map(answer).collect());
    }
    table.end_unprepare(pod);
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
