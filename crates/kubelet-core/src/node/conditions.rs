//! The conditions of a node and the events that say when one changed. NetworkUnavailable and others are not the kubelet's
//! and stay untouched.

use jiff::Timestamp;
use model::k8s::{NodeCondition, Time};

use super::{NodeEvent, NodeFacts};

/// What a condition says in one of its two states.
struct Words {
    reason: &'static str,
    message: &'static str,
    event: &'static str,
}

struct Pressure {
    kind: &'static str,
    high: Words,
    low: Words,
}

const MEMORY: Pressure = Pressure {
    kind: "MemoryPressure",
    high: Words {
        reason: "KubeletHasInsufficientMemory",
        message: "kubelet has insufficient memory available",
        event: "NodeHasInsufficientMemory",
    },
    low: Words {
        reason: "KubeletHasSufficientMemory",
        message: "kubelet has sufficient memory available",
        event: "NodeHasSufficientMemory",
    },
};
const DISK: Pressure = Pressure {
    kind: "DiskPressure",
    high: Words {
        reason: "KubeletHasDiskPressure",
        message: "kubelet has disk pressure",
        event: "NodeHasDiskPressure",
    },
    low: Words {
        reason: "KubeletHasNoDiskPressure",
        message: "kubelet has no disk pressure",
        event: "NodeHasNoDiskPressure",
    },
};
const PIDS: Pressure = Pressure {
    kind: "PIDPressure",
    high: Words {
        reason: "KubeletHasInsufficientPID",
        message: "kubelet has insufficient PID available",
        event: "NodeHasInsufficientPID",
    },
    low: Words {
        reason: "KubeletHasSufficientPID",
        message: "kubelet has sufficient PID available",
        event: "NodeHasSufficientPID",
    },
};

/// Sets the pressure conditions, then Ready. `missing` are resources the node's capacity lacks.
pub(super) fn set_conditions(
    conditions: &mut Vec<NodeCondition>,
    facts: &NodeFacts<'_>,
    missing: &[&str],
    events: &mut Vec<NodeEvent>,
) {
    let now = whole_seconds(facts.now);
    let pressures =
        [(&MEMORY, facts.pressure.memory), (&DISK, facts.pressure.disk), (&PIDS, facts.pressure.pids)];
    for (pressure, is_high) in pressures {
        let words = if is_high { &pressure.high } else { &pressure.low };
        if set(conditions, condition(pressure.kind, is_high, words.reason, words.message, &now)).has_turned()
        {
            events.push(NodeEvent::status(facts.name, words.event));
        }
    }
    let mut problems = facts.problems.to_vec();
    if !missing.is_empty() {
        problems.push(format!("missing node capacity for resources: {}", missing.join(", ")));
    }
    let (reason, message, event) = match problems.as_slice() {
        [] => ("KubeletReady", "kubelet is posting ready status".to_owned(), "NodeReady"),
        [one] => ("KubeletNotReady", one.clone(), "NodeNotReady"),
        several => ("KubeletNotReady", format!("[{}]", several.join(", ")), "NodeNotReady"),
    };
    let ready = condition("Ready", problems.is_empty(), reason, &message, &now);
    // A node that says for the first time how it is has not changed.
    if set(conditions, ready) == Turn::Turned {
        events.push(NodeEvent::status(facts.name, event));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Same,
    First,
    Turned,
}

impl Turn {
    fn has_turned(self) -> bool {
        match self {
            Self::Same => false,
            Self::First | Self::Turned => true,
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

/// Puts a condition in the place of its predecessor, whose transition time it keeps if the status is the same.
fn set(conditions: &mut Vec<NodeCondition>, mut new: NodeCondition) -> Turn {
    let Some(old) = conditions.iter_mut().find(|old| old.type_ == new.type_) else {
        conditions.push(new);
        return Turn::First;
    };
    let turn = if old.status == new.status { Turn::Same } else { Turn::Turned };
    if turn == Turn::Same && old.last_transition_time.is_some() {
        new.last_transition_time = old.last_transition_time.clone();
    }
    *old = new;
    turn
}

/// The API knows whole seconds only.
pub(super) fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
