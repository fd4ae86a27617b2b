//! The volumes of one pod, as a state machine: which volumes are set up, when a failed setup is retried, and when all are
//! torn down.
//!
//! ```text
//!          Wanted, Changed            Make            Made(Ready)
//!   (absent) ---------> Due ----------------> Making -------------> Ready
//!                        ^  until is over       |  Made(Failed)
//!                        `-------- Failed <-----+
//!                        `------ Uncertain <----'  Made(Unknown)
//! ```
//! The desired state is what the pod's worker requested; the actual state is the disk and the mount table, which every
//! action inspects first. This type keeps only what neither of them shows: which action is under way, how often one failed,
//! and which one timed out before it had ended (*uncertain*: it may still take effect).
//!
//! Invariants, which the tests check on random scenarios: one action at a time for each volume; no volume is set up while
//! the pod's volumes are torn down, and none is torn down while another is set up; the delay grows with each failure.
//! How a volume of some type is set up is in `agent::volumes`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use model::MonoTime;

/// How long a pod waits for its volumes. Then the missing ones are logged, and the wait starts again.
pub const TIMEOUT: Duration = Duration::from_secs(123);
/// How long a volume waits after its first failure; the wait doubles with every further one.
pub const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest such wait.
pub const LONGEST_WAIT: Duration = Duration::from_secs(122);
/// The reason given when a wait times out.
const TIMED_OUT: &str = "timed out waiting for the condition";

/// A volume that containers can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyVolume {
    pub path: PathBuf,
    /// The path is that of a block device, not of files.
    pub is_device: bool,
    /// Read-only even if a container does not request that.
    pub read_only: bool,
    /// A supplementary group for the containers that use the volume.
    pub gid: Option<u32>,
    /// The runtime gives its files the pod's SELinux label, if SELinux is enabled.
    pub relabel: bool,
}

impl ReadyVolume {
    /// Files at that path, to be read and written.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self { path, is_device: false, read_only: false, gid: None, relabel: false }
    }
}

/// How an attempt to make a volume ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    Ready(ReadyVolume),
    /// It failed, and has no effect later.
    Failed,
    /// It timed out before it had ended.
    Unknown,
    /// The volume of the pod cannot be resolved; a retry does not help until an object changes.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeEvent {
    /// The pod worker waits for these volumes. Without `retries`, each is tried once.
    Wanted {
        volumes: Vec<Box<str>>,
        retries: bool,
    },
    /// An object that volumes are made from changed: failed volumes are retried at once.
    Changed,
    /// The pod worker no longer waits.
    Unwatched,
    Made {
        volume: Box<str>,
        attempt: Attempt,
    },
    /// No container of the pod runs: its volumes are to be removed.
    Unwanted,
    TakenDown {
        is_gone: bool,
    },
    /// The time in [`Reaction::wake_at`] has come.
    Wake,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeAct {
    /// Set the volume up, or check that it is set up. `is_uncertain`: an earlier attempt timed out; what it may have
    /// mounted is unmounted first.
    Make { volume: Box<str>, is_uncertain: bool },
    /// Unmount whatever the pod has, and remove its volumes.
    TakeDown,
}

/// The result reported to the pod worker that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ready,
    /// The complete text of the event.
    Missing(String),
    /// What is missing. No event, as in the Go kubelet: each try that failed had its own.
    TimedOut(String),
    /// Every volume was tried once.
    Tried,
    Gone,
    /// The volumes could not be torn down.
    Stuck,
}

/// What follows from an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    pub acts: Vec<VolumeAct>,
    pub verdict: Option<Verdict>,
    pub wake_at: Option<MonoTime>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Due {
        failures: u32,
    },
    /// `again`: an object that it is made from changed meanwhile.
    Making {
        failures: u32,
        again: bool,
    },
    Ready(ReadyVolume),
    Failed {
        failures: u32,
        until: MonoTime,
    },
    Uncertain {
        failures: u32,
        until: MonoTime,
    },
    Refused {
        why: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Nothing,
    /// `until`: `None` if each volume is tried only once.
    Mounted {
        volumes: Vec<Box<str>>,
        until: Option<MonoTime>,
    },
    Gone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TakeDown {
    #[default]
    Idle,
    UnderWay {
        failures: u32,
    },
    Failed {
        times: u32,
        until: MonoTime,
    },
}

/// What is known about one pod's volumes beyond disk and mount table. A settled pod needs none of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodVolumes {
    volumes: BTreeMap<Box<str>, State>,
    wish: Wish,
    take_down: TakeDown,
}

/// The delay after so many failures in a row.
#[must_use]
pub fn wait_after(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_WAIT.saturating_mul(doubled).min(LONGEST_WAIT)
}

impl PodVolumes {
    /// Applies the event, and returns what to do next.
    pub fn on_event(&mut self, event: VolumeEvent, now: MonoTime) -> Reaction {
        match event {
            VolumeEvent::Wanted { volumes, retries } => self.want(volumes, retries, now),
            VolumeEvent::Changed => self.retry_failed(),
            VolumeEvent::Unwatched => self.wish = Wish::Nothing,
            VolumeEvent::Made { volume, attempt } => self.record_attempt(&volume, attempt, now),
            VolumeEvent::Unwanted => self.wish = Wish::Gone,
            VolumeEvent::TakenDown { is_gone } => {
                self.record_take_down(is_gone, now);
                if self.wish == Wish::Gone {
                    // Reported in both cases; a pod worker that wants to continue requests it again.
                    self.wish = Wish::Nothing;
                    let verdict = Some(if is_gone { Verdict::Gone } else { Verdict::Stuck });
                    return Reaction { verdict, ..Reaction::default() };
                }
            }
            VolumeEvent::Wake => {}
        }
        self.decide(now)
    }

    /// Nothing is under way or waited for, and no volume waits for its back-off.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_quiet = |state: &State| matches!(state, State::Ready(_) | State::Due { .. });
        self.wish == Wish::Nothing && self.take_down == TakeDown::Idle && self.volumes.values().all(is_quiet)
    }

    /// An action for the pod is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_making() || matches!(self.take_down, TakeDown::UnderWay { .. })
    }

    /// The volumes that are ready.
    pub fn ready(&self) -> impl Iterator<Item = (&str, &ReadyVolume)> {
        self.volumes.iter().filter_map(|(name, state)| match state {
            State::Ready(volume) => Some((&**name, volume)),
            State::Due { .. }
            | State::Making { .. }
            | State::Failed { .. }
            | State::Uncertain { .. }
            | State::Refused { .. } => None,
        })
    }

    fn is_making(&self) -> bool {
        self.volumes.values().any(|state| matches!(state, State::Making { .. }))
    }

    fn want(&mut self, volumes: Vec<Box<str>>, retries: bool, now: MonoTime) {
        for name in &volumes {
            match self.volumes.get_mut(name) {
                // The disk decides whether it is set up: it is inspected again.
                None | Some(State::Ready(_) | State::Refused { .. }) => {
                    self.volumes.insert(name.clone(), State::Due { failures: 0 });
                }
                Some(State::Making { again, .. }) => *again = true,
                // The back-off after a failure continues, also for a new request.
                Some(State::Due { .. } | State::Failed { .. } | State::Uncertain { .. }) => {}
            }
        }
        self.wish = Wish::Mounted { volumes, until: retries.then(|| now + TIMEOUT) };
    }

    fn retry_failed(&mut self) {
        for state in self.volumes.values_mut() {
            match state {
                State::Failed { .. } | State::Refused { .. } => *state = State::Due { failures: 0 },
                State::Making { again, .. } => *again = true,
                // A hanging setup does not hang because of an object.
                State::Due { .. } | State::Ready(_) | State::Uncertain { .. } => {}
            }
        }
    }

    fn record_attempt(&mut self, volume: &str, attempt: Attempt, now: MonoTime) {
        let Some(state) = self.volumes.get_mut(volume) else { return };
        let State::Making { failures, again } = *state else { return };
        let failures = failures.saturating_add(1);
        let until = now + wait_after(failures);
        *state = match attempt {
            Attempt::Unknown => State::Uncertain { failures, until },
            Attempt::Ready(_) | Attempt::Failed | Attempt::Refused(_) if again => State::Due { failures: 0 },
            Attempt::Ready(ready) => State::Ready(ready),
            Attempt::Failed => State::Failed { failures, until },
            Attempt::Refused(why) => State::Refused { why },
        };
    }

    fn record_take_down(&mut self, is_gone: bool, now: MonoTime) {
        let times = self.take_down.failures().saturating_add(1);
        if is_gone {
            self.volumes.clear();
            self.take_down = TakeDown::Idle;
        } else {
            self.take_down = TakeDown::Failed { times, until: now + wait_after(times) };
        }
    }

    fn decide(&mut self, now: MonoTime) -> Reaction {
        match std::mem::take(&mut self.wish) {
            Wish::Nothing => Reaction::default(),
            Wish::Mounted { volumes, until } => self.mount(volumes, until, now),
            Wish::Gone => self.take_down(now),
        }
    }

    /// Starts the volumes that are due, and computes the result for the pod worker that waits.
    fn mount(&mut self, volumes: Vec<Box<str>>, until: Option<MonoTime>, now: MonoTime) -> Reaction {
        let mut reaction = Reaction::default();
        // Unmount before mount: the pod came back while its volumes were torn down.
        if !matches!(self.take_down, TakeDown::UnderWay { .. }) {
            self.take_down = TakeDown::Idle;
            for name in &volumes {
                let state = self.volumes.entry(name.clone()).or_insert(State::Due { failures: 0 });
                if let Some(failures) = state.due(now) {
                    let is_uncertain = matches!(state, State::Uncertain { .. });
                    *state = State::Making { failures, again: false };
                    reaction.acts.push(VolumeAct::Make { volume: name.clone(), is_uncertain });
                }
            }
        }
        reaction.verdict = self.verdict(&volumes, until, now);
        if reaction.verdict.is_none() {
            let states = volumes.iter().filter_map(|name| self.volumes.get(name));
            let retry = states.filter_map(State::retry_at).min();
            reaction.wake_at = retry.into_iter().chain(until).min();
            self.wish = Wish::Mounted { volumes, until };
        }
        reaction
    }

    fn verdict(&self, volumes: &[Box<str>], until: Option<MonoTime>, now: MonoTime) -> Option<Verdict> {
        let states = || volumes.iter().map(|name| (&**name, self.volumes.get(name)));
        let unmounted: Vec<&str> =
            states().filter(|(_, state)| !state.is_some_and(State::is_ready)).map(|(name, _)| name).collect();
        let refused = states().filter_map(|(name, state)| Some((name, state?.refusal()?)));
        let (refused, why): (Vec<&str>, Vec<&str>) = refused.unzip();
        let Some(until) = until else {
            let is_over = !states().any(|(_, state)| state.is_some_and(State::is_open));
            return is_over.then_some(if unmounted.is_empty() { Verdict::Ready } else { Verdict::Tried });
        };
        if unmounted.is_empty() {
            return Some(Verdict::Ready);
        }
        if !why.is_empty() {
            return Some(Verdict::Missing(missing(&unmounted, &refused, &why.join("; "))));
        }
        (until <= now).then(|| Verdict::TimedOut(missing(&unmounted, &[], TIMED_OUT)))
    }

    /// Only when no setup is under way: a volume whose setup ended later would stay mounted.
    fn take_down(&mut self, now: MonoTime) -> Reaction {
        let mut reaction = Reaction::default();
        match self.take_down {
            TakeDown::UnderWay { .. } => {}
            TakeDown::Failed { until, .. } if until > now => reaction.wake_at = Some(until),
            TakeDown::Idle | TakeDown::Failed { .. } if self.is_making() => {}
            TakeDown::Idle | TakeDown::Failed { .. } => {
                self.take_down = TakeDown::UnderWay { failures: self.take_down.failures() };
                reaction.acts.push(VolumeAct::TakeDown);
            }
        }
        self.wish = Wish::Gone;
        reaction
    }
}

impl State {
    /// The number of earlier failures, if it is to be set up now.
    fn due(&self, now: MonoTime) -> Option<u32> {
        match self {
            Self::Due { failures } => Some(*failures),
            Self::Failed { failures, until } | Self::Uncertain { failures, until } => {
                (*until <= now).then_some(*failures)
            }
            Self::Making { .. } | Self::Ready(_) | Self::Refused { .. } => None,
        }
    }

    fn retry_at(&self) -> Option<MonoTime> {
        match self {
            Self::Failed { until, .. } | Self::Uncertain { until, .. } => Some(*until),
            Self::Due { .. } | Self::Making { .. } | Self::Ready(_) | Self::Refused { .. } => None,
        }
    }

    /// Its attempt has not ended.
    const fn is_open(&self) -> bool {
        matches!(self, Self::Due { .. } | Self::Making { .. })
    }

    const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }

    fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused { why } => Some(why),
            Self::Due { .. }
            | Self::Making { .. }
            | Self::Ready(_)
            | Self::Failed { .. }
            | Self::Uncertain { .. } => None,
        }
    }
}

impl TakeDown {
    const fn failures(self) -> u32 {
        match self {
            Self::Idle => 0,
            Self::UnderWay { failures } | Self::Failed { times: failures, .. } => failures,
        }
    }
}

/// No volume type of this kubelet is attached to the node, so no volume is ever unattached.
fn missing(unmounted: &[&str], refused: &[&str], why: &str) -> String {
    format!(
        "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[], failed to process volumes=[{}]: {why}",
        unmounted.join(" "),
        refused.join(" "),
    )
}

#[cfg(test)]
mod tests;
