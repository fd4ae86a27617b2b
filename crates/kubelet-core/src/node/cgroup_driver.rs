//! Which cgroup driver to use: the one that the runtime reports, because two drivers on one node would both write the same
//! cgroups (docs/behaviour/container-runtime.md). Makes no calls.

use std::time::Duration;

use model::CgroupDriver;

/// Delay between two calls without an answer: a runtime that is absent refuses the connection at once.
const PAUSE: Duration = Duration::from_secs(2);
/// After an error the delay doubles, up to this.
const MAX_PAUSE: Duration = Duration::from_secs(16);

/// The first release that does not start with a runtime that does not report its driver: a label of the metric.
pub const LOSING_SUPPORT_IN: &str = "1.37.0";

/// The outcome of the call to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverAnswer {
    Reported(CgroupDriver),
    /// The runtime is too old to implement the call.
    NotOffered,
    /// The runtime returned an error, as it does while it starts. Another driver than the runtime's would give every running pod
    /// another cgroup, so the call is repeated.
    Refused,
    /// The runtime did not answer. It cannot run pods either, so the call is repeated.
    NoAnswer,
}

/// Why a driver is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverReason {
    RuntimeReported,
    RuntimeTooOld,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverPlan {
    Use { driver: CgroupDriver, why: DriverReason },
    AskAgain { after: Duration },
}

/// What to do after an answer; `refusals` is the number of errors in a row, this one included, and `configured` is `cgroupDriver`.
#[must_use]
pub fn compute_cgroup_driver(answer: DriverAnswer, refusals: u32, configured: CgroupDriver) -> DriverPlan {
    match answer {
        DriverAnswer::Reported(driver) => DriverPlan::Use { driver, why: DriverReason::RuntimeReported },
        DriverAnswer::NotOffered => DriverPlan::Use { driver: configured, why: DriverReason::RuntimeTooOld },
        DriverAnswer::Refused => {
            let factor = 1 << refusals.saturating_sub(1).min(8);
            DriverPlan::AskAgain { after: PAUSE.saturating_mul(factor).min(MAX_PAUSE) }
        }
        DriverAnswer::NoAnswer => DriverPlan::AskAgain { after: PAUSE },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_driver_reported_by_the_runtime_is_used_and_errors_are_retried_with_back_off() {
        use CgroupDriver::{Cgroupfs, Systemd};
        use DriverAnswer::{NoAnswer, NotOffered, Refused, Reported};
        use DriverReason::{RuntimeReported, RuntimeTooOld};
        let again = |seconds| DriverPlan::AskAgain { after: Duration::from_secs(seconds) };
        let with = |driver, why| DriverPlan::Use { driver, why };
        let table = [
            (Reported(Systemd), 0, Cgroupfs, with(Systemd, RuntimeReported)),
            (Reported(Cgroupfs), 0, Systemd, with(Cgroupfs, RuntimeReported)),
            (Reported(Cgroupfs), 9, Systemd, with(Cgroupfs, RuntimeReported)),
            (NotOffered, 0, Systemd, with(Systemd, RuntimeTooOld)),
            (NotOffered, 3, Cgroupfs, with(Cgroupfs, RuntimeTooOld)),
            (Refused, 1, Systemd, again(2)),
            (Refused, 2, Systemd, again(4)),
            (Refused, 3, Systemd, again(8)),
            (Refused, 4, Systemd, again(16)),
            (Refused, 5, Systemd, again(16)),
            (Refused, u32::MAX, Systemd, again(16)),
            (NoAnswer, 0, Systemd, again(2)),
            (NoAnswer, 9, Systemd, again(2)),
        ];
        for (answer, refusals, configured, expected) in table {
            assert_eq!(
                compute_cgroup_driver(answer, refusals, configured),
                expected,
                "{answer:?} {refusals}"
            );
        }
    }
}
