//! When the status of a Node is sent, and as what (docs/behaviour/node-status.md): at once if anything but the heartbeat
//! changed, else every so often, so that thousands of nodes do not report in step.

use std::time::Duration;

use model::MonoTime;
use model::k8s::Node;
use serde_json::{Value, json};

use api_core::strategic_patch::{ListMerge, MergedList, compute_strategic_patch};

/// The lists of a Node that the API merges.
pub(super) const NODE_LISTS: [MergedList; 2] = [
    MergedList { field: "conditions", key: "type", how: ListMerge::ByKey },
    // Merged by type, the API would keep one of two internal addresses.
    MergedList { field: "addresses", key: "type", how: ListMerge::Replaced },
];

/// When reports are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusReports {
    /// When the next one is due if nothing changes; `None` before the first.
    due: Option<MonoTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusReport {
    Send,
    Wait { until: MonoTime },
}

/// Whether the status is to be sent now.
#[must_use]
pub fn compute_status_report(reports: &StatusReports, has_changed: bool, now: MonoTime) -> StatusReport {
    match reports.due {
        Some(until) if !has_changed && now < until => StatusReport::Wait { until },
        Some(_) | None => StatusReport::Send,
    }
}

impl StatusReports {
    /// Records that a report was sent. After a change the next periodic report comes up to half of `frequency` earlier or
    /// later, by `random` (from 0 to 1).
    pub fn record_sent(&mut self, has_changed: bool, frequency: Duration, random: f64, now: MonoTime) {
        let random = if has_changed { random.clamp(0.0, 1.0) } else { 0.5 };
        self.due = Some(now + frequency.mul_f64(0.5 + random));
    }
}

/// The statuses, or the labels and annotations, differ in more than heartbeats. What the API server adds for unset fields
/// (empty structs and lists, nulls) is no difference.
#[must_use]
pub fn status_differs(old: &Node, new: &Node) -> bool {
    compute_node_patch(&without_heartbeats(old), &without_heartbeats(new)).is_some()
}

fn without_heartbeats(node: &Node) -> Node {
    let mut node = node.clone();
    for condition in node.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
        condition.last_heartbeat_time = None;
    }
    node
}

/// The strategic merge patch of the status subresource from the API's Node to the new one; `None` if they are equal. The
/// kubelet does not change the spec.
#[must_use]
pub fn compute_node_patch(old: &Node, new: &Node) -> Option<Value> {
    let ours = |node: &Node| {
        let meta = &node.metadata;
        json!({
            "metadata": {"labels": meta.labels.clone().unwrap_or_default(),
                         "annotations": meta.annotations.clone().unwrap_or_default()},
            "status": node.status.clone().unwrap_or_default(),
        })
    };
    compute_strategic_patch(&ours(old), &ours(new), &NODE_LISTS)
}

/// The pod CIDRs of the node, for the runtime; `None` if they are those that were sent last.
#[must_use]
pub fn compute_pod_cidr_update(node: &Node, last_sent: &str) -> Option<String> {
    let cidrs = node.spec.as_ref()?.pod_cidrs.as_deref().unwrap_or_default().join(",");
    (!cidrs.is_empty() && cidrs != last_sent).then_some(cidrs)
}
