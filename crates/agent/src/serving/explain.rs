//! Why pods are as they are, for the local socket: from the view of all pods, their trails, and the pods of the API.

use std::collections::{BTreeMap, BTreeSet};

use api_agent::metrics::CertificateMetrics;
use base_agent::pods_view::PodEntry;
use base_agent::trails::GonePod;
use explain_core::node::{ApiFacts, NodeFacts, compute_node_explanation};
use explain_core::pod::{PodFacts, compute_pod_explanation, gone_pod, unknown_pod};
use explain_core::selector::selects;
use jiff::Timestamp;
use model::explain::{Explanation, PodExplanation, Verdict};
use model::inventory::PodSelection;
use model::source::pod_source;
use model::{PodRef, PodUid};
use resources_core::admission::pressure::NodePressure;

use crate::node_view::{LeaseView, NodeView};
use crate::pods::handles::PodHandles;
use crate::serving::pod_lookup::PodLookup;

/// A shorter beginning of a UID would mean too many pods.
const MIN_UID: usize = 4;

/// The node, with its readiness as `problems`.
pub(crate) fn node(
    handles: &PodHandles,
    lookup: &PodLookup,
    problems: Vec<String>,
    manifest_problems: usize,
) -> Explanation {
    let NodeView { version, error, .. } = handles.node.view.borrow().clone();
    let NodePressure { memory, disk, pids } = *handles.node.pressure.borrow();
    let pressure = [(memory, "memory"), (disk, "disk"), (pids, "process ids")];
    let pods = pods(lookup, &PodSelection::default());
    let on_node = pods.iter().filter(|pod| !pod.source.is_empty());
    let ctx = &lookup.ctx;
    let api = || {
        let LeaseView { renewed_at, error } = handles.node.lease.borrow().clone();
        let certificates = ctx.metrics.get::<CertificateMetrics>().ends();
        ApiFacts { renewed_at, error, are_pods_listed: lookup.in_api.borrow().is_complete, certificates }
    };
    compute_node_explanation(&NodeFacts {
        name: ctx.settings.node_name.clone(),
        problems,
        runtime: [version.name, version.version].join(" ").trim().to_owned(),
        runtime_error: error,
        pressure: pressure.into_iter().filter(|(is_met, _)| *is_met).map(|(_, name)| name).collect(),
        is_shutting_down: *handles.node.shutting_down.borrow(),
        api: (!ctx.settings.flags.standalone()).then(api),
        are_sources_known: *handles.sources_ready.borrow(),
        manifest_problems,
        pods: on_node.clone().count(),
        pods_not_as_desired: on_node.filter(|pod| pod.verdict != Verdict::Fine).count(),
        now: ctx.clock.now().wall,
    })
}

/// The pods of this node that are meant.
pub(crate) fn selected(lookup: &PodLookup, of: &PodSelection) -> Vec<PodEntry> {
    lookup.pods.matching(|entry| {
        let labels = entry.pod.metadata.labels.as_ref();
        is_selected(of, &entry.identity, labels, &lookup.ctx.settings.node_name)
    })
}

/// Whether a pod with these labels is meant.
pub(crate) fn is_selected(
    of: &PodSelection,
    pod: &PodRef,
    labels: Option<&BTreeMap<String, String>>,
    node_name: &str,
) -> bool {
    let is_in_namespace = of.namespace.is_empty() || *pod.namespace == *of.namespace;
    is_in_namespace && means(&of.words, pod, node_name) && selects(&of.labels, labels)
}

/// The pods that are meant: those of this node, those of the API that this node does not have yet, and those that are gone.
pub(crate) fn pods(lookup: &PodLookup, of: &PodSelection) -> Vec<PodExplanation> {
    let now = lookup.ctx.clock.now().wall;
    let node_name = &lookup.ctx.settings.node_name;
    let is_meant =
        |pod: &PodRef, labels: Option<&BTreeMap<String, String>>| is_selected(of, pod, labels, node_name);
    let here = selected(lookup, of);
    let known: BTreeSet<PodUid> = here.iter().map(|entry| entry.identity.uid.clone()).collect();
    let mut found: Vec<_> = here.iter().map(|entry| of_entry(lookup, entry, now)).collect();
    let in_api = lookup.in_api.borrow();
    let missing = in_api
        .objects
        .values()
        .filter(|pod| !pod.is_mirror && is_meant(&pod.identity, pod.pod.metadata.labels.as_ref()));
    found.extend(
        missing
            .filter(|pod| !known.contains(&pod.identity.uid))
            .map(|pod| unknown_pod(&pod.identity, pod.path_problem.as_deref())),
    );
    let malformed = in_api
        .malformed
        .iter()
        .filter(|(key, _)| is_meant(&PodRef::new(&key.namespace, &key.name, ""), None));
    found.extend(malformed.map(|(key, object)| {
        unknown_pod(&PodRef::new(&key.namespace, &key.name, ""), Some(&object.problem))
    }));
    drop(in_api);
    let gone = lookup.ctx.recorder.trails.gone();
    let gone =
        gone.into_iter().filter(|pod| is_meant(&pod.identity, None) && !known.contains(&pod.identity.uid));
    found.extend(
        gone.map(|GonePod { identity, gone_at, last_phase }| gone_pod(&identity, gone_at, &last_phase)),
    );
    found
}

fn of_entry(lookup: &PodLookup, entry: &PodEntry, now: Timestamp) -> PodExplanation {
    let (trail, next_try) = lookup.ctx.recorder.trails.of(&entry.identity.uid);
    compute_pod_explanation(PodFacts {
        identity: &entry.identity,
        pod: &entry.pod,
        status: &entry.status,
        source: pod_source(&entry.pod),
        stage: entry.progress.stage,
        is_rejected: entry.progress.is_rejected,
        is_orphan: entry.progress.is_orphan,
        is_observed: entry.progress.is_observed,
        trail,
        next_try,
        now,
    })
}

/// A name, `namespace/name`, or a UID or its beginning; nothing means every pod. The name of a static pod ends with that of the node,
/// which its manifest does not have, so it may be left out.
fn means(words: &str, pod: &PodRef, node_name: &str) -> bool {
    if words.is_empty() {
        return true;
    }
    let is_name = |name: &str| {
        let rest = pod.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-') == Some(node_name))
    };
    match words.split_once('/') {
        Some((namespace, name)) => *pod.namespace == *namespace && is_name(name),
        None => is_name(words) || (words.len() >= MIN_UID && pod.uid.as_str().starts_with(words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_meant_by_name_namespace_or_the_beginning_of_their_uid() {
        let pod = PodRef::new("default", "web", "4c1d9a");
        let meant = ["", "web", "default/web", "4c1d", "4c1d9a"].map(|words| means(words, &pod, "node"));
        assert_eq!(meant, [true; 5]);
        let others = ["we", "other/web", "default/we", "4c1", "1d9a"].map(|words| means(words, &pod, "node"));
        assert_eq!(others, [false; 5]);
        let of_manifest = PodRef::new("default", "web-node", "5d2e");
        let meant = ["web", "web-node", "default/web", "we"].map(|words| means(words, &of_manifest, "node"));
        assert_eq!(meant, [true, true, true, false]);
    }
}
