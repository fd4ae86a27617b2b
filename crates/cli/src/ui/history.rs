//! The last hour of use of the node and its pods: a reading every ten seconds, as far back as this process runs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::explain::Explanation;
use model::inventory::{NodeUsage, Usage};
use serde::Serialize;
use tokio::sync::Mutex;

use crate::client::Client;

const INTERVAL: Duration = Duration::from_secs(10);
/// Of an hour.
const MAX_READINGS: usize = 360;
/// Pods of one reading.
const MAX_PODS: usize = 500;

/// What was in use at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reading {
    taken: Timestamp,
    #[serde(flatten)]
    node: Usage,
    /// The sentence about pressure, where there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure: Option<String>,
    /// By UID.
    pods: BTreeMap<String, Usage>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<Mutex<VecDeque<Reading>>>);

impl History {
    /// Reads what is in use from time to time. A kubelet that is away leaves a gap.
    pub(crate) async fn follow(&self, client: &Client) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let usage = client.get::<NodeUsage>("/v1/stats").await;
            let node = client.get::<Explanation>("/v1/node").await;
            if let (Ok(usage), Ok(node)) = (usage, node) {
                self.add(reading(usage, &node)).await;
            }
        }
    }

    async fn add(&self, reading: Reading) {
        let mut readings = self.0.lock().await;
        if readings.len() >= MAX_READINGS {
            readings.pop_front();
        }
        readings.push_back(reading);
    }

    /// All readings as JSON, oldest first.
    pub(crate) async fn json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&*self.0.lock().await)
    }
}

fn reading(usage: NodeUsage, node: &Explanation) -> Reading {
    let pressure = node.checks.iter().find(|check| check.name == "pressure");
    Reading {
        taken: usage.taken,
        node: usage.node,
        pressure: pressure
            .filter(|check| check.verdict != model::explain::Verdict::Fine)
            .map(|check| check.what.clone()),
        pods: usage.pods.into_iter().take(MAX_PODS).map(|pod| (pod.uid, pod.usage)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use model::explain::{Check, Verdict};
    use model::inventory::PodUsage;

    use super::*;

    #[tokio::test]
    async fn history_is_an_hour_of_readings() {
        let history = History::default();
        for second in 0..400 {
            let taken = Timestamp::from_second(second * 10).unwrap();
            history.add(Reading { taken, ..Reading::default() }).await;
        }
        let readings: Vec<serde_json::Value> =
            serde_json::from_slice(&history.json().await.unwrap()).unwrap();
        assert_eq!((readings.len(), readings[0]["taken"].as_str()), (360, Some("1970-01-01T00:06:40Z")));
    }

    #[test]
    fn reading_has_the_use_of_a_bounded_number_of_pods_and_the_pressure() {
        let pods = (0..600).map(|n| PodUsage { uid: format!("u{n}"), ..PodUsage::default() }).collect();
        let short = Check {
            name: "pressure".to_owned(),
            verdict: Verdict::Waiting,
            what: "The node is short of memory.".to_owned(),
            ..Check::default()
        };
        let node = Explanation { checks: vec![short], ..Explanation::default() };
        let reading = reading(NodeUsage { pods, ..NodeUsage::default() }, &node);
        assert_eq!(reading.pods.len(), MAX_PODS);
        assert_eq!(reading.pressure.as_deref(), Some("The node is short of memory."));
    }
}
