//! A pod of the API server as the kubelet keeps it.
//!
//! Owns: which parts of a new version are kept. Never: what a change means ([`super::Sources`]).

use std::fmt;
use std::sync::Arc;

use base_core::object_version::ObjectVersion;
use base_core::pod_kind::is_mirror_pod;
use jiff::Timestamp;
use model::k8s::{ContainerState, Pod, PodStatus};
use model::pod_status::all_container_statuses_mut;
use model::{PodRef, PodSource, pod_path_problem};

use super::{annotate, is_other_generation};

/// A version of a pod in the API. The API reports each status that the kubelet writes as a new version of the whole pod, so the
/// parts that the kubelet acts on are shared with the version before.
#[derive(Clone, PartialEq)]
pub struct ApiPod {
    pub identity: PodRef,
    /// Without its status, and with the other fields as they were when one last changed that the kubelet acts on. Annotated with
    /// its source and the time at which the kubelet first saw it, except a mirror pod.
    pub pod: Arc<Pod>,
    pub status: Option<Arc<PodStatus>>,
    pub resource_version: String,
    pub is_mirror: bool,
    /// Why its names would lead out of its directory.
    pub path_problem: Option<String>,
}

impl fmt::Debug for ApiPod {
    /// Without the pod, whose variables may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ApiPod");
        shown.field("identity", &self.identity).field("resource_version", &self.resource_version);
        shown.finish_non_exhaustive()
    }
}

impl ApiPod {
    /// The version `pod`, given the one that was known before of the object of that name.
    #[must_use]
    pub fn new(mut pod: Pod, known: Option<&Self>, now: Timestamp) -> Self {
        let status = pod.status.take().map(|status| keep_status(status, known));
        let resource_version = pod.metadata.resource_version.clone().unwrap_or_default();
        let (is_mirror, path_problem) = (is_mirror_pod(&pod), pod_path_problem(&pod));
        let known = known.filter(|known| known.pod.metadata.uid == pod.metadata.uid);
        let identity = known.map_or_else(|| PodRef::of(&pod), |known| known.identity.clone());
        let pod = match known {
            // A client of the API may change any annotation of a mirror pod.
            _ if is_mirror => Arc::new(pod),
            Some(known) if !is_other_generation(&known.pod, &pod) => known.pod.clone(),
            known => {
                let mut pod = Arc::new(pod);
                annotate(&mut pod, PodSource::Api, known.map(|known| &*known.pod), now);
                pod
            }
        };
        Self { identity, pod, status, resource_version, is_mirror, path_problem }
    }

    #[must_use]
    pub fn version(&self) -> ObjectVersion<'_> {
        let uid = self.identity.uid.as_str();
        ObjectVersion { uid: (!uid.is_empty()).then_some(uid), resource_version: &self.resource_version }
    }
}

/// The status of the version before, if it has not changed.
fn keep_status(mut status: PodStatus, known: Option<&ApiPod>) -> Arc<PodStatus> {
    forget_empty_last_states(&mut status);
    let before = known.and_then(|known| known.status.clone());
    before.filter(|before| **before == status).unwrap_or_else(|| Arc::new(status))
}

/// The API server writes `lastState: {}` for a container that has not ended yet. Without it the status is the one that the kubelet
/// computed, so that both are kept as one.
fn forget_empty_last_states(status: &mut PodStatus) {
    for container in all_container_statuses_mut(status) {
        container.last_state = container.last_state.take().filter(|last| *last != ContainerState::default());
    }
}

#[cfg(test)]
mod tests {
    use model::annotations::{CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE};
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn pod(version: &str, changes: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": version, "generation": 1},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Pending"},
        });
        let pairs = changes.as_object().into_iter().flatten();
        for (pointer, value) in pairs {
            let (parent, field) = pointer.rsplit_once('/').expect("a path");
            pod.pointer_mut(parent).expect("an object")[field] = value.clone();
        }
        serde_json::from_value(pod).expect("a pod")
    }

    fn phase(pod: &ApiPod) -> Option<String> {
        pod.status.as_ref()?.phase.clone()
    }

    fn annotation(pod: &ApiPod, key: &str) -> String {
        pod.pod
            .metadata
            .annotations
            .iter()
            .flatten()
            .find(|(its, _)| *its == key)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    }

    #[test]
    fn versions_that_differ_by_their_status_share_one_pod() {
        let first = ApiPod::new(pod("1", &json!({})), None, at(5));
        let next = ApiPod::new(pod("2", &json!({"/status/phase": "Running"})), Some(&first), at(9));
        assert!(Arc::ptr_eq(&first.pod, &next.pod));
        assert_eq!([phase(&first), phase(&next)], [Some("Pending".to_owned()), Some("Running".to_owned())]);
        assert!(next.version().is_newer_than(first.version()));
        assert_eq!(first.pod.status, None);
    }

    #[test]
    fn change_that_the_kubelet_acts_on_replaces_the_pod_and_keeps_the_time_it_was_first_seen() {
        let first = ApiPod::new(pod("1", &json!({})), None, at(5));
        let changes = [
            json!({"/metadata/generation": 2}),
            json!({"/metadata/labels": {"l": "v"}}),
            json!({"/metadata/annotations": {"a": "v"}}),
            json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}),
            json!({"/spec/activeDeadlineSeconds": 7}),
        ];
        for change in changes {
            let next = ApiPod::new(pod("2", &change), Some(&first), at(9));
            assert!(!Arc::ptr_eq(&first.pod, &next.pod), "{change}");
            assert_eq!(annotation(&next, CONFIG_SEEN), "1970-01-01T00:00:05Z", "{change}");
            assert_eq!(annotation(&next, CONFIG_SOURCE), "api", "{change}");
        }
    }

    #[test]
    fn empty_last_states_are_left_out_of_the_status() {
        let container = |last_state: Value| json!([{"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": "", "lastState": last_state}]);
        let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
        let ended = json!({"terminated": {"exitCode": 1}});
        for list in lists {
            let status = |last_state| {
                let changes = json!({format!("/status/{list}"): container(last_state)});
                let pod = ApiPod::new(pod("1", &changes), None, at(5));
                serde_json::to_value(&*pod.status.expect("a status")).expect("JSON")
            };
            assert_eq!(status(json!({}))[list][0].get("lastState"), None, "{list}");
            assert_eq!(status(ended.clone())[list][0]["lastState"]["terminated"]["exitCode"], 1, "{list}");
        }
    }

    #[test]
    fn another_pod_of_the_same_name_shares_nothing() {
        let first = ApiPod::new(pod("1", &json!({})), None, at(5));
        let other = ApiPod::new(pod("2", &json!({"/metadata/uid": "v"})), Some(&first), at(9));
        assert!(!Arc::ptr_eq(&first.pod, &other.pod));
        assert_eq!(annotation(&other, CONFIG_SEEN), "1970-01-01T00:00:09Z");
    }

    #[test]
    fn mirror_pod_is_kept_as_the_api_has_it() {
        let mirror = json!({"/metadata/annotations": {CONFIG_MIRROR: "h", CONFIG_SOURCE: "file"}});
        let first = ApiPod::new(pod("1", &mirror), None, at(5));
        assert_eq!(
            (annotation(&first, CONFIG_SOURCE).as_str(), annotation(&first, CONFIG_SEEN).as_str()),
            ("file", "")
        );
        let changed = json!({"/metadata/annotations": {CONFIG_MIRROR: "other", CONFIG_SOURCE: "file"}});
        let next = ApiPod::new(pod("2", &changed), Some(&first), at(9));
        assert_eq!(annotation(&next, CONFIG_MIRROR), "other");
    }
}
