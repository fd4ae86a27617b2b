//! Why pods are as they are, for the local socket: from the view of all pods, their trails, and the pods of the API.

use std::collections::{BTreeMap, BTreeSet};

use api_agent::metrics::{ApiMetrics, CertificateMetrics};
use base_agent::pods_view::PodEntry;
use base_agent::trails::GonePod;
use base_core::pod_stage::PodStage;
use explain_core::node::{ApiFacts, NodeFacts, PluginFacts, ShutdownFacts, compute_node_explanation};
use explain_core::pod::{PodFacts, compute_pod_explanation, gone_pod, unknown_pod, unusable_pod};
use explain_core::selector::selects;
use explain_core::waiting::WaitingPods;
use jiff::Timestamp;
use model::explain::{Explanation, PodExplanation, Verdict};
use model::inventory::PodSelection;
use model::pod_status::is_ready;
use model::source::pod_source;
use model::{PodRef, PodUid};
use resources_core::admission::pressure::NodePressure;
use resources_core::quantities::DeviceAmounts;
use stats_agent::Samplers;

use crate::node_view::{LeaseView, NodeView, RUNTIME_DOWN_AFTER, ShutdownView};
use crate::pods::handles::PodHandles;
use crate::serving::pod_lookup::PodLookup;

/// A shorter beginning of a UID would mean too many pods.
const MIN_UID: usize = 4;

/// Where the facts come from. Nothing is asked of the runtime, and nothing is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) handles: &'a PodHandles,
    pub(crate) lookup: &'a PodLookup,
    pub(crate) samplers: &'a Samplers,
}

/// The node, with its readiness as `problems`.
pub(crate) fn node(facts: Facts<'_>, problems: Vec<String>, manifest_problems: usize) -> Explanation {
    let Facts { handles, lookup, .. } = facts;
    let view = handles.node.view.borrow().clone();
    let NodePressure { memory, disk, pids } = *handles.node.pressure.borrow();
    let pressure = [(memory, "memory"), (disk, "disk"), (pids, "process ids")];
    let pods = pods(facts, &PodSelection::default());
    let on_node = pods.iter().filter(|pod| !pod.source.is_empty());
    let ctx = &lookup.ctx;
    let api = || {
        let LeaseView { renewed_at, error, is_overloaded } = handles.node.lease.borrow().clone();
        let certificates = ctx.metrics.get::<CertificateMetrics>().ends();
        let metrics = ctx.metrics.get::<ApiMetrics>();
        let last_success = renewed_at.max(metrics.status_accepted_at());
        ApiFacts {
            is_node_missing: handles.node_for_admission.is_missing(),
            renewed_at,
            error,
            is_overloaded,
            are_pods_listed: lookup.in_api.borrow().is_complete,
            last_success,
            statuses_behind: metrics.statuses_behind(),
            events_queued: ctx.recorder.queued(),
            certificates,
        }
    };
    let now = ctx.clock.now();
    let silent = || format!("no answer for more than {} s", RUNTIME_DOWN_AFTER.as_secs());
    let is_silent = view.is_runtime_silent(now.mono);
    let NodeView { version, error, .. } = view;
    let runtime_error = error.or_else(|| is_silent.then(silent));
    compute_node_explanation(&NodeFacts {
        name: ctx.settings.node_name.clone(),
        problems,
        build: ctx.settings.build.to_string(),
        runtime: [version.name, version.version].join(" ").trim().to_owned(),
        runtime_error,
        pressure: pressure.into_iter().filter(|(is_met, _)| *is_met).map(|(_, name)| name).collect(),
        signals: handles.node.eviction.borrow().signals.clone(),
        shutdown: shutdown(handles),
        taints: taints(handles),
        plugins: plugins(handles),
        api: (!ctx.settings.flags.standalone()).then(api),
        are_sources_known: *handles.sources_ready.borrow(),
        manifest_problems,
        pods: on_node.clone().count(),
        pods_not_as_desired: on_node.filter(|pod| pod.verdict != Verdict::Fine).count(),
        now: now.wall,
    })
}

fn shutdown(handles: &PodHandles) -> ShutdownFacts {
    let ShutdownView { ends_by, error } = handles.node.shutdown.borrow().clone();
    ShutdownFacts { is_under_way: *handles.node.shutting_down.borrow(), ends_by, error }
}

/// `key=value:Effect`, as kubectl writes them.
fn taints(handles: &PodHandles) -> Vec<String> {
    let node = handles.node_for_admission.get();
    let taints = node.as_ref().and_then(|node| node.spec.as_ref()?.taints.as_deref()).unwrap_or_default();
    let shown = taints.iter().map(|taint| {
        let value = taint.value.as_deref().filter(|value| !value.is_empty());
        let value = value.map(|value| format!("={value}")).unwrap_or_default();
        format!("{}{value}:{}", taint.key, taint.effect)
    });
    shown.collect()
}

fn plugins(handles: &PodHandles) -> PluginFacts {
    let amounts = handles.resources.devices.amounts();
    let number = |amount: i64| u64::try_from(amount).unwrap_or(0);
    let devices = amounts
        .into_iter()
        .map(|(name, DeviceAmounts { capacity, allocatable })| (name, number(allocatable), number(capacity)));
    PluginFacts {
        devices: devices.collect(),
        csi_drivers: handles.volumes.csi_drivers(),
        dra_drivers: handles.resources.claims.drivers().registered(),
    }
}

/// The pods that wait, added up. Each explanation is dropped before the next is made.
pub(crate) fn waiting(facts: Facts<'_>) -> WaitingPods {
    let lookup = facts.lookup;
    let now = lookup.ctx.clock.now().wall;
    let mut waiting = WaitingPods::default();
    for entry in lookup.pods.matching(|entry| !is_fine(entry)) {
        waiting.add(&of_entry(facts, &entry, now), now);
    }
    waiting
}

/// The usual pod, of which that is known without an explanation.
fn is_fine(entry: &PodEntry) -> bool {
    entry.progress.stage == PodStage::Syncing && entry.progress.is_observed && is_ready(&entry.status)
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
pub(crate) fn pods(facts: Facts<'_>, of: &PodSelection) -> Vec<PodExplanation> {
    let lookup = facts.lookup;
    let now = lookup.ctx.clock.now().wall;
    let node_name = &lookup.ctx.settings.node_name;
    let is_meant =
        |pod: &PodRef, labels: Option<&BTreeMap<String, String>>| is_selected(of, pod, labels, node_name);
    let here = selected(lookup, of);
    let known: BTreeSet<PodUid> = here.iter().map(|entry| entry.identity.uid.clone()).collect();
    let mut found: Vec<_> = here.iter().map(|entry| of_entry(facts, entry, now)).collect();
    let in_api = lookup.in_api.borrow();
    let missing = in_api
        .objects
        .values()
        .filter(|pod| !pod.is_mirror && is_meant(&pod.identity, pod.pod.metadata.labels.as_ref()));
    let missing = missing.filter(|pod| !known.contains(&pod.identity.uid));
    let by_name: BTreeMap<_, _> =
        here.iter().map(|entry| (name_of(&entry.identity), &entry.identity.uid)).collect();
    found.extend(missing.map(|pod| match &pod.path_problem {
        Some(problem) => unusable_pod(&pod.identity, problem, false),
        None => unknown_pod(&pod.identity, by_name.get(&name_of(&pod.identity)).copied()),
    }));
    let malformed = in_api.malformed.iter().map(|(key, object)| {
        let uid = object.uid.as_deref().unwrap_or_default();
        (PodRef::new(&key.namespace, &key.name, uid), &object.problem)
    });
    let malformed = malformed.filter(|(pod, _)| is_meant(pod, None));
    found.extend(malformed.map(|(pod, problem)| unusable_pod(&pod, problem, known.contains(&pod.uid))));
    drop(in_api);
    let gone = lookup.ctx.recorder.trails.gone();
    let gone =
        gone.into_iter().filter(|pod| is_meant(&pod.identity, None) && !known.contains(&pod.identity.uid));
    found.extend(
        gone.map(|GonePod { identity, gone_at, last_phase }| gone_pod(&identity, gone_at, &last_phase)),
    );
    found
}

fn name_of(pod: &PodRef) -> (&str, &str) {
    (&pod.namespace, &pod.name)
}

fn of_entry(facts: Facts<'_>, entry: &PodEntry, now: Timestamp) -> PodExplanation {
    let Facts { handles, lookup, samplers } = facts;
    let uid = &entry.identity.uid;
    let (trail, next_try) = lookup.ctx.recorder.trails.of(uid);
    let mut near_limits = samplers.near_limits(uid);
    near_limits.extend(handles.node.eviction.borrow().near_storage.get(uid).into_iter().flatten().cloned());
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
        near_limits,
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
