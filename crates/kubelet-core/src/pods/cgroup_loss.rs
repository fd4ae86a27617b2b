//! What it means that the cgroup of a running pod does not exist where this kubelet looks for it: it was removed, and the pod is
//! restarted; or this kubelet looks in the wrong place, and the pod goes on. Never looks itself.
//!
//! A wrong name (another cgroup driver, another `cgroupRoot`) or a hierarchy that is not mounted makes every pod look like one
//! without a cgroup. Restarting them would stop everything on the node.

use std::fmt;

/// The other pods of this node that may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPods {
    /// The runtime was not listed yet.
    Unknown,
    None,
    /// At least one of them has its cgroup.
    SomeHaveCgroups,
    /// None of them has its cgroup.
    NoneHasItsCgroup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupLossInputs<'a> {
    /// This kubelet has observed or created the pod's cgroup under the same name.
    pub was_seen: bool,
    /// The cgroup that the runtime recorded when it created the pod's sandbox; empty if it does not report one.
    pub recorded: &'a str,
    /// Where this kubelet looks for it.
    pub expected: &'a str,
    pub others: OtherPods,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupLoss {
    /// Another program removed it: the pod is restarted in a new one.
    Removed,
    /// The pod goes on, and the node is not ready.
    Keep(KeepReason),
}

/// Why a running pod without a cgroup is not restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// It is not known yet which other pods run.
    NotListed,
    /// No running pod has its cgroup.
    AllMissing { expected: String },
    /// The sandbox was created in another cgroup.
    Elsewhere { recorded: String, expected: String },
    /// The runtime does not report where the sandbox was created.
    NotReported { expected: String },
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed => {
                write!(f, "its cgroup is missing, and the other pods of the node are not known yet")
            }
            Self::AllMissing { expected } => {
                write!(f, "no running pod of the node has its cgroup, its own would be {expected}")
            }
            Self::Elsewhere { recorded, expected } => {
                write!(f, "its cgroup is {recorded}, which the configuration expects at {expected}")
            }
            Self::NotReported { expected } => {
                write!(f, "there is no cgroup {expected}, and the runtime does not report the pod's cgroup")
            }
        }
    }
}

/// Decides about one running pod whose cgroup is missing.
#[must_use]
pub fn compute_cgroup_loss(inputs: CgroupLossInputs<'_>) -> CgroupLoss {
    let CgroupLossInputs { was_seen, recorded, expected, others } = inputs;
    let expected_text = || expected.to_owned();
    match others {
        OtherPods::Unknown => return CgroupLoss::Keep(KeepReason::NotListed),
        OtherPods::NoneHasItsCgroup => {
            return CgroupLoss::Keep(KeepReason::AllMissing { expected: expected_text() });
        }
        OtherPods::None | OtherPods::SomeHaveCgroups => {}
    }
    if was_seen || is_same(recorded, expected) {
        return CgroupLoss::Removed;
    }
    let expected = expected_text();
    CgroupLoss::Keep(match recorded {
        "" => KeepReason::NotReported { expected },
        recorded => KeepReason::Elsewhere { recorded: recorded.to_owned(), expected },
    })
}

/// A runtime may report the name of a slice without the slices above it.
fn is_same(recorded: &str, expected: &str) -> bool {
    let recorded = recorded.trim_matches('/');
    let last = expected.rsplit('/').next().unwrap_or_default();
    !recorded.is_empty()
        && (recorded == expected.trim_matches('/') || recorded == last && last.ends_with(".slice"))
}

/// What the Ready condition of the node shows while pods are kept: how many, and why the first one is.
#[must_use]
pub fn cgroup_problem(kept: usize, first: &str) -> Option<String> {
    let pods = if kept == 1 { "1 running pod is".to_owned() } else { format!("{kept} running pods are") };
    (kept > 0).then(|| {
        format!(
            "cgroups of pods are missing: {pods} not restarted for that, because cgroupDriver, cgroupRoot, the cgroup driver of the runtime or \
             the cgroup mounts may have changed; restore them, or delete the pods; {first}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: &str = "/kubepods/burstable/pod7";

    fn loss(was_seen: bool, recorded: &str, others: OtherPods) -> &'static str {
        match compute_cgroup_loss(CgroupLossInputs { was_seen, recorded, expected: EXPECTED, others }) {
            CgroupLoss::Removed => "removed",
            CgroupLoss::Keep(KeepReason::NotListed) => "kept: not listed",
            CgroupLoss::Keep(KeepReason::AllMissing { .. }) => "kept: all",
            CgroupLoss::Keep(KeepReason::Elsewhere { .. }) => "kept: elsewhere",
            CgroupLoss::Keep(KeepReason::NotReported { .. }) => "kept: not reported",
        }
    }

    #[test]
    fn missing_cgroup_restarts_a_pod_only_if_its_name_is_right_and_another_pod_has_one() {
        use OtherPods::{None, NoneHasItsCgroup, SomeHaveCgroups, Unknown};
        let elsewhere = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7.slice";
        let table = [
            (true, "", SomeHaveCgroups, "removed"),
            (true, "", None, "removed"),
            (true, EXPECTED, NoneHasItsCgroup, "kept: all"),
            (true, EXPECTED, Unknown, "kept: not listed"),
            (false, EXPECTED, SomeHaveCgroups, "removed"),
            (false, EXPECTED, None, "removed"),
            (false, EXPECTED, NoneHasItsCgroup, "kept: all"),
            (false, elsewhere, None, "kept: elsewhere"),
            // A pod that was started after the change has its cgroup under the new name.
            (false, elsewhere, SomeHaveCgroups, "kept: elsewhere"),
            (false, elsewhere, NoneHasItsCgroup, "kept: all"),
            (false, "", SomeHaveCgroups, "kept: not reported"),
            (false, "", None, "kept: not reported"),
        ];
        for (was_seen, recorded, others, expected) in table {
            assert_eq!(loss(was_seen, recorded, others), expected, "{was_seen} {recorded} {others:?}");
        }
    }

    #[test]
    fn recorded_cgroup_may_be_a_path_or_the_name_of_a_slice() {
        let path = "/kubepods.slice/kubepods-pod7.slice";
        assert!(is_same(path, path) && is_same("kubepods-pod7.slice", path));
        assert!(
            !is_same("kubepods-pod8.slice", path) && !is_same("", path) && !is_same("pod7", "/kubepods/pod7")
        );
    }

    #[test]
    fn problem_of_the_node_has_the_number_of_pods_and_the_first_reason() {
        assert_eq!(cgroup_problem(0, ""), None);
        let text = cgroup_problem(2, "pod default/web: reason").unwrap_or_default();
        assert!(
            text.contains("2 running pods are not restarted") && text.ends_with("; pod default/web: reason"),
            "{text}"
        );
    }
}
