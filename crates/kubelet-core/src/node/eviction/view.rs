//! The thresholds with what is available, for those who ask how near the node is to an eviction.

use model::explain::EvictionSignal;

use super::observe::Observations;
use super::threshold::Threshold;

/// Each threshold whose signal was measured, in the order of the signals.
#[must_use]
pub fn compute_signals(thresholds: &[Threshold], observations: &Observations) -> Vec<EvictionSignal> {
    let measured = thresholds.iter().filter_map(|threshold| {
        let observed = observations.get(threshold.signal)?;
        Some(EvictionSignal {
            name: threshold.signal.as_str().to_owned(),
            available: observed.available,
            capacity: observed.capacity,
            threshold: threshold.level.of(observed.capacity),
            grace_seconds: (!threshold.is_hard()).then_some(threshold.grace.as_secs()),
        })
    });
    measured.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Signal;
    use super::super::observe::Observation;
    use super::super::threshold::Level;
    use super::*;

    #[test]
    fn thresholds_are_shown_with_what_is_available() {
        let threshold = |signal, level: &str, grace| Threshold {
            signal,
            level: Level::parse(level).unwrap(),
            grace: Duration::from_secs(grace),
            reclaim: None,
        };
        let thresholds = [
            threshold(Signal::MemoryAvailable, "100Mi", 0),
            threshold(Signal::NodeFsAvailable, "10%", 90),
            threshold(Signal::PidAvailable, "5%", 0),
        ];
        let mut observations = Observations::default();
        let seen = |available, capacity| Some(Observation { available, capacity });
        observations.set(Signal::MemoryAvailable, seen(300 << 20, 1 << 30));
        observations.set(Signal::NodeFsAvailable, seen(5, 1000));
        let shown: Vec<String> = compute_signals(&thresholds, &observations)
            .into_iter()
            .map(|signal| {
                let EvictionSignal { name, available, threshold, grace_seconds, .. } = signal;
                format!("{name} {available} {threshold} {grace_seconds:?}")
            })
            .collect();
        assert_eq!(shown, ["memory.available 314572800 104857600 None", "nodefs.available 5 100 Some(90)"]);
    }
}
