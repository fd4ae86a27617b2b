//! The conditions of a node and the events that report their changes. Conditions that the kubelet does not own, such as
//! NetworkUnavailable, stay untouched.

use jiff::Timestamp;
use model::k8s::{NodeCondition, Time};

use super::{NodeEvent, NodeInputs};

/// Reason, message and event of a condition in one of its two states.
struct ConditionText {
    reason: &'static str,
    message: &'static str,
    event: &'static str,
}

struct Pressure {
    kind: &'static str,
    high: ConditionText,
    low: ConditionText,
}

const MEMORY: Pressure = Pressure {
    kind: "MemoryPressure",
    high: ConditionText {
        reason: "KubeletHasInsufficientMemory",
        message: "kubelet has insufficient memory available",
        event: "NodeHasInsufficientMemory",
    },
    low: ConditionText {
        reason: "KubeletHasSufficientMemory",
        message: "kubelet has sufficient memory available",
        event: "NodeHasSufficientMemory",
    },
};
const DISK: Pressure = Pressure {
    kind: "DiskPressure",
    high: ConditionText {
        reason: "KubeletHasDiskPressure",
        message: "kubelet has disk pressure",
        event: "NodeHasDiskPressure",
    },
    low: ConditionText {
        reason: "KubeletHasNoDiskPressure",
        message: "kubelet has no disk pressure",
        event: "NodeHasNoDiskPressure",
    },
};
const PIDS: Pressure = Pressure {
    kind: "PIDPressure",
    high: ConditionText {
        reason: "KubeletHasInsufficientPID",
        message: "kubelet has insufficient PID available",
        event: "NodeHasInsufficientPID",
    },
    low: ConditionText {
        reason: "KubeletHasSufficientPID",
        message: "kubelet has sufficient PID available",
        event: "NodeHasSufficientPID",
    },
};

/// Sets the pressure conditions, then Ready. `missing` are resources that the node's capacity lacks.
pub(super) fn set_conditions(
    conditions: &mut Vec<NodeCondition>,
    inputs: &NodeInputs<'_>,
    missing: &[&str],
    events: &mut Vec<NodeEvent>,
) {
    let now = whole_seconds(inputs.now);
    let pressures =
        [(&MEMORY, inputs.pressure.memory), (&DISK, inputs.pressure.disk), (&PIDS, inputs.pressure.pids)];
    for (pressure, is_high) in pressures {
        let text = if is_high { &pressure.high } else { &pressure.low };
        if set(conditions, condition(pressure.kind, is_high, text.reason, text.message, &now)).has_changed() {
            events.push(NodeEvent::status(inputs.name, text.event));
        }
    }
    let mut problems = inputs.problems.to_vec();
    if !missing.is_empty() {
        problems.push(format!("missing node capacity for resources: {}", missing.join(", ")));
    }
    let (reason, message, event) = match problems.as_slice() {
        [] => ("KubeletReady", "kubelet is posting ready status".to_owned(), "NodeReady"),
        [one] => ("KubeletNotReady", one.clone(), "NodeNotReady"),
        several => ("KubeletNotReady", format!("[{}]", several.join(", ")), "NodeNotReady"),
    };
    let ready = condition("Ready", problems.is_empty(), reason, &message, &now);
    // The first time a condition is set is not a change.
    if set(conditions, ready) == Transition::Changed {
        events.push(NodeEvent::status(inputs.name, event));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition {
    Same,
    First,
    Changed,
}

impl Transition {
    fn has_changed(self) -> bool {
        match self {
            Self::Same => false,
            Self::First | Self::Changed => true,
        }
    }
}

fn condition(kind: &str, is_met: bool, reason: &str, message: &str, now: &Time) -> NodeCondition {
    NodeCondition {
        type_: kind.to_owned(),
        status: if is_met { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    }
}

/// Replaces the condition of the same type; its transition time is kept if the status is the same.
fn set(conditions: &mut Vec<NodeCondition>, mut new: NodeCondition) -> Transition {
    let Some(old) = conditions.iter_mut().find(|old| old.type_ == new.type_) else {
        conditions.push(new);
        return Transition::First;
    };
    let change = if old.status == new.status { Transition::Same } else { Transition::Changed };
    if change == Transition::Same && old.last_transition_time.is_some() {
        new.last_transition_time = old.last_transition_time.clone();
    }
    *old = new;
    change
}

/// The API stores whole seconds.
pub(super) fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
