//! Which cgroup driver to use: the runtime's, if it says which one, because two drivers on one node fight over cgroups
//! (docs/behaviour/container-runtime.md). Asks nobody.

use std::time::Duration;

use model::CgroupDriver;

/// From a call that led nowhere to the next.
const PAUSE: Duration = Duration::from_secs(2);
/// How often a runtime may answer with an error before it is taken to be unable to answer.
const TRIES: u32 = 3;

/// The first release that will not start on a runtime that does not say its driver: a label of the metric.
pub const LOSING_SUPPORT_IN: &str = "1.37.0";

/// What came of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverAnswer {
    Says(CgroupDriver),
    /// The runtime is too old to know the question.
    NotOffered,
    /// It answered with an error.
    Refused,
    /// Nobody answered. Such a runtime runs no pod either, so nothing is lost by asking on.
    NoAnswer,
}

/// Why a driver is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverReason {
    RuntimeSays,
    RuntimeTooOld,
    RuntimeRefuses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverPlan {
    Use { driver: CgroupDriver, why: DriverReason },
    AskAgain { after: Duration },
}

/// What to do with the answer to the `tries`-th question (from 1); `configured` is `cgroupDriver`.
#[must_use]
pub const fn compute_cgroup_driver(answer: DriverAnswer, tries: u32, configured: CgroupDriver) -> DriverPlan {
    match answer {
        DriverAnswer::Says(driver) => DriverPlan::Use { driver, why: DriverReason::RuntimeSays },
        DriverAnswer::NotOffered => DriverPlan::Use { driver: configured, why: DriverReason::RuntimeTooOld },
        DriverAnswer::Refused if tries >= TRIES => {
            DriverPlan::Use { driver: configured, why: DriverReason::RuntimeRefuses }
        }
        DriverAnswer::Refused | DriverAnswer::NoAnswer => DriverPlan::AskAgain { after: PAUSE },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_word_counts_and_silence_is_no_word() {
        use CgroupDriver::{Cgroupfs, Systemd};
        use DriverAnswer::{NoAnswer, NotOffered, Refused, Says};
        use DriverReason::{RuntimeRefuses, RuntimeSays, RuntimeTooOld};
        let again = DriverPlan::AskAgain { after: Duration::from_secs(2) };
        let with = |driver, why| DriverPlan::Use { driver, why };
        let table = [
            (Says(Systemd), 1, Cgroupfs, with(Systemd, RuntimeSays)),
            (Says(Cgroupfs), 1, Systemd, with(Cgroupfs, RuntimeSays)),
            (Says(Cgroupfs), 9, Systemd, with(Cgroupfs, RuntimeSays)),
            (NotOffered, 1, Systemd, with(Systemd, RuntimeTooOld)),
            (NotOffered, 1, Cgroupfs, with(Cgroupfs, RuntimeTooOld)),
            (Refused, 1, Systemd, again),
            (Refused, 2, Systemd, again),
            (Refused, 3, Systemd, with(Systemd, RuntimeRefuses)),
            (NoAnswer, 1, Systemd, again),
            (NoAnswer, 1000, Systemd, again),
        ];
        for (answer, tries, configured, expected) in table {
            assert_eq!(compute_cgroup_driver(answer, tries, configured), expected, "{answer:?} {tries}");
        }
    }
}
