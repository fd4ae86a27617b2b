//! The faults of calls, and those that hang.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::CsiMethod;

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsiDriverFault {
    /// Answers with this gRPC code (`Internal`) and message; nothing was done.
    Fails(&'static str, &'static str),
    /// The same, but the call was carried out.
    FailsAfterDoing(&'static str, &'static str),
    /// No answer, and nothing is done until [`super::TestCsiDriver::release`].
    Hangs,
    /// Carried out at once, and answered after this long.
    AnswersAfter(Duration),
    /// All connections break; nothing was done. The driver accepts new ones.
    Breaks,
    /// The same, but the call was carried out.
    BreaksAfterDoing,
    /// The process ends, and starts again with [`super::TestCsiDriver::start`]. Nothing was done.
    Dies,
    /// The same, but the call was carried out.
    DiesAfterDoing,
}

/// What happens to all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// They end; the driver accepts new ones.
    Connections,
    /// The process ends.
    Process,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    queued: Mutex<BTreeMap<CsiMethod, VecDeque<CsiDriverFault>>>,
    always: Mutex<BTreeMap<CsiMethod, CsiDriverFault>>,
    random: Mutex<Random>,
    /// The number of releases so far.
    releases: watch::Sender<u64>,
    held: Mutex<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Random {
    state: u64,
    percent: u64,
}

impl Random {
    /// `SplitMix64`.
    const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn fault(&mut self) -> Option<CsiDriverFault> {
        if self.percent == 0 || self.next() % 100 >= self.percent {
            return None;
        }
        Some(match self.next() % 6 {
            0 => CsiDriverFault::Fails("Internal", "chosen by the seed"),
            1 => CsiDriverFault::FailsAfterDoing("Internal", "chosen by the seed, after the act"),
            2 => CsiDriverFault::Fails("Unavailable", "chosen by the seed"),
            3 => CsiDriverFault::Breaks,
            4 => CsiDriverFault::BreaksAfterDoing,
            _ => CsiDriverFault::AnswersAfter(Duration::from_millis(100)),
        })
    }
}

/// A call that hangs, until it is released or its connection breaks.
struct Held<'a>(&'a Mutex<usize>);

impl<'a> Held<'a> {
    fn new(count: &'a Mutex<usize>) -> Self {
        *count.lock() += 1;
        Self(count)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

impl Faults {
    pub(super) fn push(&self, method: CsiMethod, fault: CsiDriverFault) {
        self.queued.lock().entry(method).or_default().push_back(fault);
    }

    pub(super) fn set_always(&self, method: CsiMethod, fault: Option<CsiDriverFault>) {
        match fault {
            Some(fault) => self.always.lock().insert(method, fault),
            None => self.always.lock().remove(&method),
        };
    }

    pub(super) fn set_random(&self, seed: u64, percent: u64) {
        *self.random.lock() = Random { state: seed, percent };
    }

    pub(super) fn clear(&self) {
        self.queued.lock().clear();
        self.always.lock().clear();
        self.random.lock().percent = 0;
    }

    pub(super) fn take(&self, method: CsiMethod) -> Option<CsiDriverFault> {
        let queued = self.queued.lock().get_mut(&method).and_then(VecDeque::pop_front);
        let scripted = queued.or_else(|| self.always.lock().get(&method).cloned());
        scripted.or_else(|| if method.is_read() { None } else { self.random.lock().fault() })
    }

    /// Waits until the next release.
    pub(super) async fn hang(&self) {
        let mut releases = self.releases.subscribe();
        releases.mark_unchanged();
        let _held = Held::new(&self.held);
        // The sender lives as long as this.
        let _ = releases.changed().await;
    }

    pub(super) fn release(&self) {
        self.releases.send_modify(|count| *count += 1);
    }

    pub(super) fn held(&self) -> usize {
        *self.held.lock()
    }
}
