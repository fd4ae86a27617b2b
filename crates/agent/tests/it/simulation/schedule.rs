//! The events of one run: a list of steps that follows from the seed alone.

use std::time::Duration;

use fakes::{Fault, HostMethod, Method};

use super::random::Dice;
use super::shapes::{self, Shape};

/// Pods that can exist at the same time.
pub(super) const SLOTS: u64 = 5;

/// An event from outside the agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// A manifest is created, or replaced by one of another shape.
    Apply {
        slot: u64,
        shape: Shape,
        keeps_uid: bool,
    },
    /// The manifest in the slot gets its next version.
    Change {
        slot: u64,
    },
    Remove {
        slot: u64,
    },
    EndContainer {
        slot: u64,
        code: i32,
    },
    KillSandboxes {
        slot: u64,
    },
    /// The next call of that method fails.
    Fault {
        method: Method,
        fault: Fault,
    },
    /// Every call of that method fails for a while.
    Storm {
        method: Method,
        fault: Fault,
        lasts: Duration,
    },
    /// The runtime's socket is closed for a while.
    Down {
        lasts: Duration,
    },
    /// The agent is killed, and started again after a while.
    Crash {
        away: Duration,
    },
    /// The agent is killed at its n-th act from now, if that comes soon.
    CrashAtAct {
        n: u64,
        away: Duration,
    },
    DiskFault {
        method: HostMethod,
    },
    /// The probed pods succeed, or not.
    Health {
        is_good: bool,
    },
    /// The manifest server answers, or not.
    Server {
        is_up: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) has_server: bool,
    /// Every so many acts are carried out even if the agent is killed; 0 for none.
    pub(super) outliving_every: u64,
    /// How long each act of the runtime takes.
    pub(super) latencies: Vec<(Method, Duration)>,
    /// Each with the time before it.
    pub(super) steps: Vec<(Duration, Step)>,
}

const ACTS: [Method; 8] = [
    Method::RunPodSandbox,
    Method::StopPodSandbox,
    Method::RemovePodSandbox,
    Method::CreateContainer,
    Method::StartContainer,
    Method::StopContainer,
    Method::RemoveContainer,
    Method::PullImage,
];
const LOOKS: [Method; 5] = [
    Method::ListPodSandbox,
    Method::ListContainers,
    Method::PodSandboxStatus,
    Method::ContainerStatus,
    Method::ImageStatus,
];
const DISK: [HostMethod; 9] = [
    HostMethod::EnsureDir,
    HostMethod::WriteFile,
    HostMethod::ReadFile,
    HostMethod::RemoveTree,
    HostMethod::UnmountTree,
    HostMethod::EnsureTmpfs,
    HostMethod::BindSubPath,
    HostMethod::ReadManifests,
    HostMethod::EnsureSymlink,
];

impl Schedule {
    pub(super) fn of(seed: u64) -> Self {
        let mut frame = Dice::new(seed, "frame");
        let latencies = ACTS.map(|method| (method, Duration::from_millis(frame.between(1, 400))));
        let (has_server, outliving_every) = (frame.one_in(4), frame.pick(&[0, 0, 1, 2, 3]));
        let count = frame.between(10, 35);
        let (mut kinds, mut details, mut times) =
            (Dice::new(seed, "kinds"), Dice::new(seed, "details"), Dice::new(seed, "times"));
        // A run starts with at least one pod.
        let mut steps: Vec<_> = (0..3).map(|slot| (Duration::ZERO, apply(slot, &mut details))).collect();
        steps.extend((0..count).map(|_| {
            let pause = if times.one_in(3) { times.between(0, 1000) } else { times.between(0, 20_000) };
            (Duration::from_millis(pause), step(&mut kinds, &mut details, has_server))
        }));
        Self { has_server, outliving_every, latencies: latencies.to_vec(), steps }
    }
}

fn apply(slot: u64, details: &mut Dice) -> Step {
    Step::Apply { slot, shape: details.pick(&shapes::ALL), keeps_uid: details.one_in(3) }
}

fn step(kinds: &mut Dice, details: &mut Dice, has_server: bool) -> Step {
    let slot = details.between(0, SLOTS);
    let short = Duration::from_secs(details.between(1, 30));
    let weights: [(u64, u8); 13] = [
        (6, 0),
        (4, 1),
        (5, 2),
        (4, 3),
        (3, 4),
        (12, 5),
        (3, 6),
        (2, 7),
        (4, 8),
        (4, 9),
        (4, 10),
        (2, 11),
        (if has_server { 3 } else { 0 }, 12),
    ];
    match kinds.weighted(&weights) {
        0 => apply(slot, details),
        1 => Step::Change { slot },
        2 => Step::Remove { slot },
        3 => Step::EndContainer { slot, code: details.pick(&[0, 1, 137]) },
        4 => Step::KillSandboxes { slot },
        5 => {
            let (method, fault) = fault(details);
            Step::Fault { method, fault }
        }
        6 => {
            let (method, fault) = fault(details);
            Step::Storm { method, fault, lasts: short }
        }
        7 => Step::Down { lasts: short },
        8 => Step::Crash { away: Duration::from_secs(details.between(0, 20)) },
        9 => Step::CrashAtAct { n: details.between(1, 8), away: Duration::from_secs(details.between(0, 5)) },
        10 => Step::DiskFault { method: details.pick(&DISK) },
        11 => Step::Health { is_good: details.one_in(2) },
        _ => Step::Server { is_up: details.one_in(2) },
    }
}

fn fault(details: &mut Dice) -> (Method, Fault) {
    let slow = Fault::Slow(Duration::from_secs(details.between(1, 40)));
    if details.one_in(4) {
        let fault =
            details.pick(&[Fault::Failed("scripted".to_owned()), Fault::Unavailable, Fault::TimedOut, slow]);
        return (details.pick(&LOOKS), fault);
    }
    let faults = [
        Fault::Failed("scripted".to_owned()),
        Fault::Unavailable,
        Fault::TimedOut,
        Fault::TimedOutAfterDoing,
        Fault::UnavailableAfterDoing,
        slow,
    ];
    (details.pick(&ACTS), details.pick(&faults))
}
