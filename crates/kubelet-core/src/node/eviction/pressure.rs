//! From thresholds and one look to what the node shows, and what has to be relieved now.

use std::time::Duration;

use model::MonoTime;

use super::PressureKind;
use super::observe::Observations;
use super::threshold::{Level, Threshold};
use crate::resources::admission::pressure::NodePressure;

/// What is remembered from one look to the next. Thresholds are known by their place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PressureState {
    /// Since when a threshold has been crossed.
    crossed: Vec<(usize, MonoTime)>,
    /// Crossed for longer than they may be, and not relieved by as much as they want.
    due: Vec<usize>,
    /// When each kind of pressure was last seen.
    seen: [Option<MonoTime>; 3],
}

/// What one look says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PressureView {
    /// What the node shows. It goes on for a while after the shortage, so that conditions do not flap.
    pub shown: NodePressure,
    /// The thresholds that something has to be done about, the most urgent first.
    pub due: Vec<usize>,
}

/// Takes one look into account.
#[must_use]
pub fn compute_pressure(
    state: &PressureState,
    thresholds: &[Threshold],
    observations: &Observations,
    transition: Duration,
    now: MonoTime,
) -> (PressureState, PressureView) {
    let counts = |place: usize, threshold: &Threshold| {
        is_crossed(threshold, observations, false)
            || state.due.contains(&place) && is_crossed(threshold, observations, true)
    };
    let crossed: Vec<(usize, MonoTime)> = thresholds
        .iter()
        .enumerate()
        .filter(|(place, threshold)| counts(*place, threshold))
        .map(|(place, _)| {
            let before = state.crossed.iter().find(|(known, _)| *known == place);
            (place, before.map_or(now, |(_, since)| *since))
        })
        .collect();
    let mut seen = state.seen;
    for threshold in crossed.iter().filter_map(|(place, _)| thresholds.get(*place)) {
        if let Some(at) = seen.get_mut(threshold.signal.pressure() as usize) {
            *at = Some(now);
        }
    }
    let is_over = |(place, since): &&(usize, MonoTime)| {
        thresholds.get(*place).is_some_and(|threshold| now.saturating_since(*since) >= threshold.grace)
    };
    let due: Vec<usize> = crossed.iter().filter(is_over).map(|(place, _)| *place).collect();
    let is_shown = |kind: PressureKind| {
        let at = seen.get(kind as usize).copied().flatten();
        at.is_some_and(|at| at == now || now.saturating_since(at) < transition)
    };
    let shown = NodePressure {
        memory: is_shown(PressureKind::Memory),
        disk: is_shown(PressureKind::Disk),
        pids: is_shown(PressureKind::Pids),
    };
    (PressureState { crossed, due: due.clone(), seen }, PressureView { shown, due })
}

/// Whether none of the thresholds at these places wants any more, after something was done about them.
#[must_use]
pub fn are_relieved(thresholds: &[Threshold], due: &[usize], observations: &Observations) -> bool {
    let mut watched = due.iter().filter_map(|place| thresholds.get(*place));
    !watched.any(|threshold| is_crossed(threshold, observations, true))
}

/// Less is left than must be; `with_reclaim`: than must be before it is good again.
fn is_crossed(threshold: &Threshold, observations: &Observations, with_reclaim: bool) -> bool {
    let Some(observed) = observations.get(threshold.signal) else { return false };
    let more = threshold.reclaim.as_ref().filter(|_| with_reclaim);
    let more = more.map_or(0, |level: &Level| level.of(observed.capacity));
    observed.available < threshold.level.of(observed.capacity).saturating_add(more)
}
