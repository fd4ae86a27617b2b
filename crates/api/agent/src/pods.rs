//! The pods that are bound to this node, as one more config source of the sync loop.

use std::collections::BTreeSet;
use std::sync::Arc;

use api_core::reflector::ObjectKey;
use base_agent::context::Context;
use model::k8s::Node;
use model::{MalformedObject, PodRef, PodSource, PodUid};
use ports::cluster::Selection;
use sources_agent::SourceSet;
use sources_core::{ApiPod, DesiredPod};
use tokio::sync::mpsc;

use super::reflector::{Store, StoreReader};

/// Pods of this node, in all namespaces.
pub fn on_node(node: &str) -> Selection {
    Selection { fields: Some(format!("spec.nodeName={node}")), ..Selection::default() }
}

/// Sends the pods to the sync loop whenever they change, until dropped. Starts after the Node was listed, because admission depends on
/// its labels; the API may have none.
pub async fn feed(
    ctx: Arc<Context>,
    mut pods: StoreReader<ApiPod>,
    mut node: StoreReader<Node>,
    sets: mpsc::Sender<SourceSet>,
) {
    // An error means that the reflector has ended, at the end of the process.
    if node.wait_for(|seen| seen.is_complete).await.is_err() {
        return;
    }
    if pods.wait_for(|seen| seen.is_complete).await.is_err() {
        return;
    }
    let (mut refused, mut unreadable) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let (to_run, malformed, undecodable) = {
            let seen = pods.borrow_and_update();
            let uids = seen.malformed.values().filter_map(|object| object.uid.clone()).map(PodUid::from);
            (to_run(&seen, &mut refused), newly_malformed(&seen, &mut unreadable), uids.collect())
        };
        for (pod, message) in malformed {
            ctx.recorder.warning(&pod, None, FAILED_VALIDATION, message);
        }
        let set = SourceSet { source: PodSource::Api, pods: to_run, is_complete: true, undecodable };
        if sets.send(set).await.is_err() || pods.changed().await.is_err() {
            return;
        }
    }
}

/// Event reason, as in the Go kubelet for a pod that cannot be used.
const FAILED_VALIDATION: &str = "FailedValidation";

/// Pods whose present version cannot be decoded, each once, with the message of an event: a pod that never could be is not run, another
/// keeps running as it last was. `reported` holds those before.
fn newly_malformed(seen: &Store<ApiPod>, reported: &mut BTreeSet<PodRef>) -> Vec<(PodRef, String)> {
    let pod_of = |object: &MalformedObject| {
        PodRef::new(&object.namespace, &object.name, object.uid.clone().unwrap_or_default())
    };
    let message = |key: &ObjectKey, object: &MalformedObject| {
        let effect =
            if seen.objects.contains_key(key) { "keeps running as it last was" } else { "is not started" };
        format!("Pod {effect}, because it cannot be decoded: {}", object.problem)
    };
    let before = std::mem::take(reported);
    *reported = seen.malformed.values().map(pod_of).collect();
    let malformed = seen.malformed.iter().map(|(key, object)| (pod_of(object), message(key, object)));
    malformed.filter(|(pod, _)| !before.contains(pod)).collect()
}

/// Mirror pods are skipped, because their static pods run already. A pod whose names would lead out of its directory, which
/// no API server accepts, is not run; `refused` holds those that were logged.
fn to_run(seen: &Store<ApiPod>, refused: &mut BTreeSet<PodRef>) -> Vec<DesiredPod> {
    let logged = std::mem::take(refused);
    let is_safe = |in_api: &&Arc<ApiPod>| {
        let Some(err) = &in_api.path_problem else { return true };
        let identity = in_api.identity.clone();
        if !logged.contains(&identity) {
            tracing::error!(pod = %identity, err, "Rejected pod from the API server, its name is invalid");
        }
        refused.insert(identity);
        false
    };
    let to_run = seen.objects.values().filter(|in_api| !in_api.is_mirror).filter(is_safe);
    to_run.cloned().map(DesiredPod::of_api).collect()
}

#[cfg(test)]
mod tests {
    use api_core::reflector::ObjectKey;
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_with_names_that_lead_out_of_their_directory_are_not_run() {
        let pod = |uid: &str, container: &str| {
            let pod = json!({
                "metadata": {"name": "p", "namespace": "n", "uid": uid},
                "spec": {"containers": [{"name": container}]},
            });
            let pod = serde_json::from_value(pod).unwrap();
            Arc::new(ApiPod::new(pod, None, jiff::Timestamp::UNIX_EPOCH))
        };
        let mut seen = Store::<ApiPod>::default();
        for (key, pod) in [("a", pod("u-1", "c")), ("b", pod("..", "c")), ("c", pod("u-2", "../c"))] {
            seen.objects.insert(Arc::new(ObjectKey { namespace: "n".to_owned(), name: key.to_owned() }), pod);
        }
        let mut refused = BTreeSet::new();
        let uids =
            |pods: Vec<DesiredPod>| pods.iter().map(|pod| pod.identity.uid.clone()).collect::<Vec<_>>();
        assert_eq!(uids(to_run(&seen, &mut refused)), ["u-1".into()]);
        assert_eq!(refused.len(), 2);
        seen.objects.retain(|_, in_api| in_api.identity.uid.as_str() == "u-1");
        assert_eq!(uids(to_run(&seen, &mut refused)), ["u-1".into()]);
        assert!(refused.is_empty(), "removed pods are forgotten");
    }
}
