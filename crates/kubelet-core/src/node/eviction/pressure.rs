//! From thresholds and one observation to the pressure that the node shows, and the thresholds that must be relieved now.

use std::time::Duration;

use model::MonoTime;
use resources_core::admission::pressure::NodePressure;

use super::PressureKind;
use super::observe::Observations;
use super::threshold::{Level, Threshold};

/// What is kept from one observation to the next. Thresholds are identified by their index in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PressureState {
    /// Since when a threshold has been crossed.
    crossed: Vec<(usize, MonoTime)>,
    /// Crossed for longer than the grace period, and not yet relieved by the minimum reclaim.
    due: Vec<usize>,
    /// When each kind of pressure was last observed.
    seen: [Option<MonoTime>; 3],
}

/// The result of one observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PressureView {
    /// What the node shows. It outlasts the shortage by the transition period, so that conditions do not flap.
    pub shown: NodePressure,
    /// The thresholds that require action, the most urgent first.
    pub due: Vec<usize>,
}

/// Evaluates one observation.
#[must_use]
pub fn compute_pressure(
    state: &PressureState,
    thresholds: &[Threshold],
    observations: &Observations,
    transition: Duration,
    now: MonoTime,
) -> (PressureState, PressureView) {
    let counts = |index: usize, threshold: &Threshold| {
        is_crossed(threshold, observations, false)
            || state.due.contains(&index) && is_crossed(threshold, observations, true)
    };
    let crossed: Vec<(usize, MonoTime)> = thresholds
        .iter()
        .enumerate()
        .filter(|(index, threshold)| counts(*index, threshold))
        .map(|(index, _)| {
            let before = state.crossed.iter().find(|(known, _)| *known == index);
            (index, before.map_or(now, |(_, since)| *since))
        })
        .collect();
    let mut seen = state.seen;
    for threshold in crossed.iter().filter_map(|(index, _)| thresholds.get(*index)) {
        if let Some(at) = seen.get_mut(threshold.signal.pressure() as usize) {
            *at = Some(now);
        }
    }
    let is_over = |(index, since): &&(usize, MonoTime)| {
        thresholds.get(*index).is_some_and(|threshold| now.saturating_since(*since) >= threshold.grace)
    };
    let due: Vec<usize> = crossed.iter().filter(is_over).map(|(index, _)| *index).collect();
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

/// Whether all thresholds at these indexes are relieved, after resources were reclaimed.
#[must_use]
pub fn are_relieved(thresholds: &[Threshold], due: &[usize], observations: &Observations) -> bool {
    let mut watched = due.iter().filter_map(|index| thresholds.get(*index));
    !watched.any(|threshold| is_crossed(threshold, observations, true))
}

/// Less is available than the threshold requires; `with_reclaim`: than the threshold and the minimum reclaim together
/// require.
fn is_crossed(threshold: &Threshold, observations: &Observations, with_reclaim: bool) -> bool {
    let Some(observed) = observations.get(threshold.signal) else { return false };
    let more = threshold.reclaim.as_ref().filter(|_| with_reclaim);
    let more = more.map_or(0, |level: &Level| level.of(observed.capacity));
    observed.available < threshold.level.of(observed.capacity).saturating_add(more)
}
