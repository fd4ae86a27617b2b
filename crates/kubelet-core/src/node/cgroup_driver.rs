//! Which cgroup driver to use: the one that the runtime reports, because two drivers on one node would both write the same
//! cgroups (docs/behaviour/container-runtime.md). Makes no calls.

use std::time::Duration;

use model::CgroupDriver;

/// Delay between two calls without an answer.
const PAUSE: Duration = Duration::from_secs(2);
/// Number of error responses after which the runtime is taken not to support the call.
const TRIES: u32 = 3;

/// The first release that does not start with a runtime that does not report its driver: a label of the metric.
pub const LOSING_SUPPORT_IN: &str = "1.37.0";

/// The outcome of the call to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverAnswer {
    Reported(CgroupDriver),
    /// The runtime is too old to implement the call.
    NotOffered,
    /// The runtime returned an error.
    Refused,
    /// The runtime did not answer. It cannot run pods either, so the call is repeated.
    NoAnswer,
}

/// Why a driver is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverReason {
    RuntimeReported,
    RuntimeTooOld,
    RuntimeRefuses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverPlan {
    Use { driver: CgroupDriver, why: DriverReason },
    AskAgain { after: Duration },
}

/// What to do after call number `tries` (from 1); `configured` is `cgroupDriver`.
#[must_use]
pub const fn compute_cgroup_driver(answer: DriverAnswer, tries: u32, configured: CgroupDriver) -> DriverPlan {
    match answer {
        DriverAnswer::Reported(driver) => DriverPlan::Use { driver, why: DriverReason::RuntimeReported },
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
    fn cgroup_driver_reported_by_the_runtime_is_used_and_no_answer_is_retried() {
        use CgroupDriver::{Cgroupfs, Systemd};
        use DriverAnswer::{NoAnswer, NotOffered, Refused, Reported};
        use DriverReason::{RuntimeRefuses, RuntimeReported, RuntimeTooOld};
        let again = DriverPlan::AskAgain { after: Duration::from_secs(2) };
        let with = |driver, why| DriverPlan::Use { driver, why };
        let table = [
            (Reported(Systemd), 1, Cgroupfs, with(Systemd, RuntimeReported)),
            (Reported(Cgroupfs), 1, Systemd, with(Cgroupfs, RuntimeReported)),
            (Reported(Cgroupfs), 9, Systemd, with(Cgroupfs, RuntimeReported)),
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
