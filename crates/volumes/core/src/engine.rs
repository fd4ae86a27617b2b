//! The volumes of one pod, as a state machine: which are mounted, which are waited for, when a failed mount is retried, and when
//! the volumes are torn down.
//!
//! ```text
//!          Wanted, Changed           Mount           MountEnded(Ready)
//!   (absent) ---------> Due ---------------> Mounting -----------------> Ready
//!                        ^  until is over       |  MountEnded(Failed)
//!                        `-------- Failed <-----+
//!                        `------ Uncertain <----'  MountEnded(Unknown)
//! ```
//! The desired state is what the pod's worker requested; the actual state is the disk and the mount table, which every act
//! inspects first. Only what neither of them shows is remembered here: which act is under way, how often one failed, and which
//! act was cancelled before its end (*uncertain*: it may still happen).
//!
//! Invariants, which the tests check on random scenarios: one act at a time for each volume; nothing is mounted while the pod's
//! volumes are torn down, and they are not torn down while one is being mounted; the wait after a failure grows each time.
//! Never: how a volume of some type is mounted, which is `agent::volumes`.

mod table;

use std::path::PathBuf;
use std::time::Duration;

use model::MonoTime;
use model::inventory::VolumeState;

use self::table::VolumeTable;

/// How long a pod waits for its volumes; then what is missing is logged, and it waits again.
pub const TIMEOUT: Duration = Duration::from_secs(123);
/// How long a volume waits after its first failure; the wait doubles with every further one.
pub const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest such wait.
pub const LONGEST_WAIT: Duration = Duration::from_secs(122);
/// Why volumes are missing when the wait is over.
const TIMED_OUT: &str = "timed out waiting for the condition";

/// A volume that containers can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyVolume {
    pub path: PathBuf,
    /// The path is that of a block device, not of files.
    pub is_device: bool,
    /// Containers can only read it, whatever their mounts specify.
    pub read_only: bool,
    /// A group that every user of the volume belongs to.
    pub gid: Option<u32>,
    /// The runtime gives its files the pod's SELinux label, where there is SELinux.
    pub relabel: bool,
}

impl ReadyVolume {
    /// Files at that path, to be read and written, that the runtime may relabel.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self { path, is_device: false, read_only: false, gid: None, relabel: true }
    }
}

/// How an attempt to mount a volume ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    Ready(ReadyVolume),
    /// It did not happen, and is not going to happen later.
    Failed,
    /// It was cancelled before its end.
    Unknown,
    /// The pod's volume cannot be planned: waiting does not help.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeEvent {
    /// The pod's worker waits for these volumes. Unless `is_retried`, each is tried once.
    Wanted {
        volumes: Vec<Box<str>>,
        is_retried: bool,
    },
    /// API objects of the volumes changed: failed ones are retried at once.
    Changed,
    /// The pod's worker waits no longer.
    NoWaiter,
    MountEnded {
        volume: Box<str>,
        attempt: Attempt,
    },
    /// No container of the pod runs any more: its volumes are to be torn down.
    Unwanted,
    TearDownEnded {
        is_gone: bool,
    },
    /// The time of [`Reaction::wake_at`] has come.
    Wake,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeAct {
    /// Mount the volume, or find that it is ready. `is_uncertain`: an attempt was cancelled before its end; what it may have
    /// mounted is removed first.
    Mount { volume: Box<str>, is_uncertain: bool },
    /// Unmount whatever the pod has, and remove its volumes.
    TearDown,
}

/// The answer to the pod's worker that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ready,
    /// The complete text of the event.
    Missing(String),
    /// The volumes that are not mounted. No event, as in the Go kubelet: each try that failed had its own.
    TimedOut(Vec<String>),
    /// Every volume was tried once.
    Tried,
    Gone,
    /// The volumes could not be torn down.
    Stuck,
}

/// How one volume is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeReport {
    pub name: Box<str>,
    pub state: VolumeState,
    /// Attempts that failed in a row.
    pub failures: u32,
    pub retry_at: Option<MonoTime>,
    /// Why it cannot be planned.
    pub refusal: String,
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
    /// `again`: its API objects changed meanwhile.
    Mounting {
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
enum Desired {
    #[default]
    Nothing,
    /// The wanted volumes of the table. `until`: `None` where each volume is tried once only.
    Mounted {
        until: Option<MonoTime>,
    },
    Gone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TearDown {
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

/// What is remembered of one pod's volumes, apart from disk and mount table. Nothing of it is needed once they are settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodVolumes {
    volumes: VolumeTable,
    desired: Desired,
    tear_down: TearDown,
}

/// How long to wait after so many failures in a row.
#[must_use]
pub fn wait_after(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_WAIT.saturating_mul(doubled).min(LONGEST_WAIT)
}

impl PodVolumes {
    /// Handles one event and returns what follows from it.
    pub fn on_event(&mut self, event: VolumeEvent, now: MonoTime) -> Reaction {
        match event {
            VolumeEvent::Wanted { volumes, is_retried } => self.want(volumes, is_retried, now),
            VolumeEvent::Changed => self.retry_failed(),
            VolumeEvent::NoWaiter => self.desired = Desired::Nothing,
            VolumeEvent::MountEnded { volume, attempt } => self.handle_attempt(&volume, attempt, now),
            VolumeEvent::Unwanted => self.desired = Desired::Gone,
            VolumeEvent::TearDownEnded { is_gone } => {
                self.handle_tear_down(is_gone, now);
                if self.desired == Desired::Gone {
                    // The worker is answered either way; it repeats its request if it wants another attempt.
                    self.desired = Desired::Nothing;
                    let verdict = Some(if is_gone { Verdict::Gone } else { Verdict::Stuck });
                    return Reaction { verdict, ..Reaction::default() };
                }
            }
            VolumeEvent::Wake => {}
        }
        self.decide(now)
    }

    /// Nothing is under way, no worker waits, and no back-off is running.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.desired == Desired::Nothing && self.tear_down == TearDown::Idle && self.volumes.is_settled()
    }

    /// An act for the pod is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.volumes.is_mounting() || matches!(self.tear_down, TearDown::UnderWay { .. })
    }

    /// How each volume of the latest request is, for people.
    #[must_use]
    pub fn report(&self) -> Vec<VolumeReport> {
        self.volumes.wanted().map(|(name, state)| state.report(name, self.desired == Desired::Gone)).collect()
    }

    /// The volumes that are ready.
    pub fn ready(&self) -> impl Iterator<Item = (&str, &ReadyVolume)> {
        self.volumes.ready()
    }

    fn want(&mut self, volumes: Vec<Box<str>>, is_retried: bool, now: MonoTime) {
        self.volumes.want(volumes, |known| match known {
            // Mounted or not, the disk decides: it is inspected again.
            None | Some(State::Ready(_) | State::Refused { .. }) => Some(State::Due { failures: 0 }),
            Some(State::Mounting { failures, .. }) => {
                Some(State::Mounting { failures: *failures, again: true })
            }
            // The back-off after a failure outlives the request.
            Some(State::Due { .. } | State::Failed { .. } | State::Uncertain { .. }) => None,
        });
        self.desired = Desired::Mounted { until: is_retried.then(|| now + TIMEOUT) };
    }

    fn retry_failed(&mut self) {
        self.volumes.update_all(|state| match state {
            State::Failed { .. } | State::Refused { .. } => Some(State::Due { failures: 0 }),
            State::Mounting { failures, .. } => Some(State::Mounting { failures: *failures, again: true }),
            // A mount that hangs does not hang because of an API object.
            State::Due { .. } | State::Ready(_) | State::Uncertain { .. } => None,
        });
    }

    fn handle_attempt(&mut self, volume: &str, attempt: Attempt, now: MonoTime) {
        self.volumes.update(volume, |state| {
            let State::Mounting { failures, again } = *state else { return None };
            let failures = failures.saturating_add(1);
            let until = now + wait_after(failures);
            Some(match attempt {
                Attempt::Unknown => State::Uncertain { failures, until },
                Attempt::Ready(_) | Attempt::Failed | Attempt::Refused(_) if again => {
                    State::Due { failures: 0 }
                }
                Attempt::Ready(ready) => State::Ready(ready),
                Attempt::Failed => State::Failed { failures, until },
                Attempt::Refused(why) => State::Refused { why },
            })
        });
    }

    fn handle_tear_down(&mut self, is_gone: bool, now: MonoTime) {
        let times = self.tear_down.failures().saturating_add(1);
        if is_gone {
            self.volumes.begin_again();
            self.tear_down = TearDown::Idle;
        } else {
            self.tear_down = TearDown::Failed { times, until: now + wait_after(times) };
        }
    }

    fn decide(&mut self, now: MonoTime) -> Reaction {
        match std::mem::take(&mut self.desired) {
            Desired::Nothing => Reaction::default(),
            Desired::Mounted { until } => self.mount(until, now),
            Desired::Gone => self.tear_down(now),
        }
    }

    /// Starts what is due, and decides the answer to the worker that waits.
    fn mount(&mut self, until: Option<MonoTime>, now: MonoTime) -> Reaction {
        let mut reaction = Reaction::default();
        // Unmount before mount: the pod came back while its volumes were torn down.
        if !matches!(self.tear_down, TearDown::UnderWay { .. }) {
            self.tear_down = TearDown::Idle;
            while let Some((volume, is_uncertain)) = self.volumes.start_next(now) {
                reaction.acts.push(VolumeAct::Mount { volume, is_uncertain });
            }
        }
        reaction.verdict = self.verdict(until, now);
        if reaction.verdict.is_none() {
            reaction.wake_at = self.volumes.retry_at(now).into_iter().chain(until).min();
            self.desired = Desired::Mounted { until };
        }
        reaction
    }

    fn verdict(&self, until: Option<MonoTime>, now: MonoTime) -> Option<Verdict> {
        let is_ready = self.volumes.is_ready();
        let Some(until) = until else {
            return self.volumes.is_over().then_some(if is_ready { Verdict::Ready } else { Verdict::Tried });
        };
        if is_ready {
            return Some(Verdict::Ready);
        }
        if !self.volumes.has_refused() && now < until {
            return None;
        }
        let unmounted = self.volumes.wanted().filter(|(_, state)| state.ready().is_none());
        let unmounted: Vec<&str> = unmounted.map(|(name, _)| name).collect();
        let refused = self.volumes.wanted().filter_map(|(name, state)| Some((name, state.refusal()?)));
        let (refused, why): (Vec<&str>, Vec<&str>) = refused.unzip();
        Some(match why.as_slice() {
            [] => Verdict::TimedOut(unmounted.into_iter().map(str::to_owned).collect()),
            _ => {
                Verdict::Missing(format!("{MISSING} {}", details(&unmounted, &[], &refused, &why.join("; "))))
            }
        })
    }

    /// Only when no mount is under way: one that succeeded later would stay.
    fn tear_down(&mut self, now: MonoTime) -> Reaction {
        let mut reaction = Reaction::default();
        match self.tear_down {
            TearDown::UnderWay { .. } => {}
            TearDown::Failed { until, .. } if until > now => reaction.wake_at = Some(until),
            TearDown::Idle | TearDown::Failed { .. } if self.volumes.is_mounting() => {}
            TearDown::Idle | TearDown::Failed { .. } => {
                self.tear_down = TearDown::UnderWay { failures: self.tear_down.failures() };
                reaction.acts.push(VolumeAct::TearDown);
            }
        }
        self.desired = Desired::Gone;
        reaction
    }
}

impl State {
    /// How many attempts in a row failed.
    const fn failures(&self) -> u32 {
        match self {
            Self::Due { failures }
            | Self::Mounting { failures, .. }
            | Self::Failed { failures, .. }
            | Self::Uncertain { failures, .. } => *failures,
            Self::Ready(_) | Self::Refused { .. } => 0,
        }
    }

    fn report(&self, name: &str, is_unwanted: bool) -> VolumeReport {
        let state = match self {
            _ if is_unwanted => VolumeState::Unmounting,
            Self::Due { .. } | Self::Mounting { .. } => VolumeState::Mounting,
            Self::Ready(_) => VolumeState::Mounted,
            Self::Failed { .. } | Self::Uncertain { .. } => VolumeState::Failed,
            Self::Refused { .. } => VolumeState::Refused,
        };
        VolumeReport {
            name: name.into(),
            state,
            failures: self.failures(),
            retry_at: self.retry_at(),
            refusal: self.refusal().unwrap_or_default().to_owned(),
        }
    }

    const fn retry_at(&self) -> Option<MonoTime> {
        match self {
            Self::Failed { until, .. } | Self::Uncertain { until, .. } => Some(*until),
            Self::Due { .. } | Self::Mounting { .. } | Self::Ready(_) | Self::Refused { .. } => None,
        }
    }

    /// Its attempt has not ended.
    const fn is_open(&self) -> bool {
        matches!(self, Self::Due { .. } | Self::Mounting { .. })
    }

    const fn ready(&self) -> Option<&ReadyVolume> {
        match self {
            Self::Ready(volume) => Some(volume),
            Self::Due { .. }
            | Self::Mounting { .. }
            | Self::Failed { .. }
            | Self::Uncertain { .. }
            | Self::Refused { .. } => None,
        }
    }

    fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused { why } => Some(why),
            Self::Due { .. }
            | Self::Mounting { .. }
            | Self::Ready(_)
            | Self::Failed { .. }
            | Self::Uncertain { .. } => None,
        }
    }
}

impl TearDown {
    const fn failures(self) -> u32 {
        match self {
            Self::Idle => 0,
            Self::UnderWay { failures } | Self::Failed { times: failures, .. } => failures,
        }
    }
}

const MISSING: &str = "Unable to attach or mount volumes:";
const NODE_IS_FULL: &str = "Node has reached its volume attachment limit, rejecting pod.";

/// Why a pod waits after the time for its volumes. `unattached` are those of `unmounted` that are not attached to the node.
#[must_use]
pub fn timed_out(unmounted: &[String], unattached: &[String]) -> String {
    format!("{MISSING} {}", timed_out_details(unmounted, unattached))
}

/// Why a pod is rejected that has waited for volumes for which the node has no place.
#[must_use]
pub fn node_is_full(unmounted: &[String], unattached: &[String]) -> String {
    format!("{NODE_IS_FULL} {}", timed_out_details(unmounted, unattached))
}

fn timed_out_details(unmounted: &[String], unattached: &[String]) -> String {
    let [unmounted, unattached] =
        [unmounted, unattached].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    details(&unmounted, &unattached, &[], TIMED_OUT)
}

fn details(unmounted: &[&str], unattached: &[&str], refused: &[&str], why: &str) -> String {
    format!(
        "unmounted volumes=[{}], unattached volumes=[{}], failed to process volumes=[{}]: {why}",
        unmounted.join(" "),
        unattached.join(" "),
        refused.join(" "),
    )
}

#[cfg(test)]
mod tests;
