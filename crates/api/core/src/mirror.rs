//! Mirror pods: the objects by which the API shows static pods (docs/behaviour/static-pods.md).
//!
//! Owns: the content of a mirror pod, and what to do so that each static pod has the right one. Never: calling the API,
//! starting or stopping a container: the static pod runs whatever happens to its mirror.

use model::annotations::{CONFIG_FILE, CONFIG_HASH, CONFIG_MIRROR};
use model::k8s::{ObjectMeta, OwnerReference, Pod};

use base_core::node_owner::owner_reference;
use base_core::pod_kind::is_mirror_pod;

/// What to do about the mirror of one static pod.
#[derive(Clone, Debug, PartialEq)]
pub enum MirrorStep {
    Nothing,
    Create(Box<Pod>),
    /// With grace period 0, and only the object with this UID. If the static pod still runs, the next pass creates another
    /// mirror.
    Delete {
        uid: String,
    },
}

/// The node that owns the mirrors.
#[derive(Clone, Copy, Debug)]
pub struct MirrorOwner<'a> {
    pub node: &'a str,
    pub node_uid: &'a str,
}

/// What to do, given the static pod (`None`: no source contains it any more) with whether it is terminating, and the mirror
/// that the API has. `owner` is `None` until the node is registered; nothing is created before.
#[must_use]
pub fn compute_mirror(
    static_pod: Option<(&Pod, bool)>,
    mirror: Option<&Pod>,
    owner: Option<MirrorOwner<'_>>,
) -> MirrorStep {
    // A static pod that is ending gets no new mirror, which would present it as a new pod.
    let stays = static_pod.filter(|(_, is_ending)| !is_ending).map(|(pod, _)| pod);
    match (stays, mirror, owner) {
        (Some(pod), Some(mirror), _) if is_mirror_of(mirror, pod) => MirrorStep::Nothing,
        // A terminating static pod keeps its mirror, which shows the progress; it is deleted with the static pod.
        (None, Some(mirror), _) if static_pod.is_some_and(|(pod, _)| is_mirror_of(mirror, pod)) => {
            MirrorStep::Nothing
        }
        (_, Some(mirror), _) => MirrorStep::Delete { uid: mirror.metadata.uid.clone().unwrap_or_default() },
        (Some(pod), None, Some(owner)) => MirrorStep::Create(Box::new(mirror_of(pod, owner))),
        (Some(_), None, None) | (None, None, _) => MirrorStep::Nothing,
    }
}

/// Whether a request for this UID means the pod. Users see only the mirror's UID of a static pod; `in_api` is the object in
/// the API under the pod's name.
#[must_use]
pub fn is_uid_of_pod(uid: &str, pod: &Pod, in_api: Option<&Pod>) -> bool {
    let is_of = |pod: &Pod| pod.metadata.uid.as_deref() == Some(uid);
    is_of(pod) || in_api.is_some_and(|in_api| is_mirror_pod(in_api) && is_of(in_api))
}

/// The mirror shows this content, and is not being deleted.
#[must_use]
pub fn is_mirror_of(mirror: &Pod, static_pod: &Pod) -> bool {
    let hash = annotation(static_pod, CONFIG_HASH).unwrap_or_default();
    mirror.metadata.deletion_timestamp.is_none() && annotation(mirror, CONFIG_MIRROR) == Some(hash)
}

/// The mirror to create. It has the UID that the API assigns, not that of the static pod.
fn mirror_of(static_pod: &Pod, owner: MirrorOwner<'_>) -> Pod {
    let meta = &static_pod.metadata;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    let hash = annotations.get(CONFIG_HASH).cloned().unwrap_or_default();
    annotations.insert(CONFIG_MIRROR.to_owned(), hash);
    // An annotation of kubelet-rs that no other program needs; the Go kubelet has none.
    annotations.remove(CONFIG_FILE);
    let mut spec = static_pod.spec.clone().unwrap_or_default();
    spec.node_name.get_or_insert_with(|| owner.node.to_owned());
    Pod {
        metadata: ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            labels: meta.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                controller: Some(true),
                ..owner_reference(owner.node, owner.node_uid)
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const OWNER: MirrorOwner<'static> = MirrorOwner { node: "n1", node_uid: "node-uid" };

    fn static_pod(hash: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web-n1", "namespace": "default", "uid": hash, "labels": {"app": "web"},
                         "annotations": {
                "kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file", "kubelet-rs/config.file": "/m/web.yaml",
            }},
            "spec": {"containers": [{"name": "a"}]},
        }))
        .unwrap()
    }

    /// `h1` a mirror of that content, `h1*` one being deleted.
    fn mirror(text: &str) -> Option<Pod> {
        let (hash, is_deleting) = text.strip_suffix('*').map_or((text, false), |hash| (hash, true));
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web-n1", "uid": "m", "annotations": {"kubernetes.io/config.mirror": hash}},
        }))
        .unwrap();
        if is_deleting {
            pod.metadata.deletion_timestamp = Some(model::k8s::Time(jiff::Timestamp::UNIX_EPOCH));
        }
        (text != "-").then_some(pod)
    }

    fn step(wanted: Option<(&str, bool)>, seen: &str, owner: Option<MirrorOwner<'_>>) -> &'static str {
        let pod = wanted.map(|(hash, is_ending)| (static_pod(hash), is_ending));
        match compute_mirror(
            pod.as_ref().map(|(pod, is_ending)| (pod, *is_ending)),
            mirror(seen).as_ref(),
            owner,
        ) {
            MirrorStep::Nothing => "nothing",
            MirrorStep::Create(_) => "create",
            MirrorStep::Delete { uid } if uid == "m" => "delete",
            MirrorStep::Delete { .. } => "delete another",
        }
    }

    #[test]
    fn each_running_static_pod_has_its_mirror() {
        let table = [
            (Some(("h1", false)), "-", "create"),
            (Some(("h1", false)), "h1", "nothing"),
            (Some(("h1", false)), "h0", "delete"),
            (Some(("h1", false)), "h1*", "delete"),
            (Some(("h1", true)), "-", "nothing"),
            (Some(("h1", true)), "h1", "nothing"),
            (Some(("h1", true)), "h1*", "delete"),
            (Some(("h1", true)), "h0", "delete"),
            (None, "h1", "delete"),
            (None, "-", "nothing"),
        ];
        for (wanted, seen, expected) in table {
            assert_eq!(step(wanted, seen, Some(OWNER)), expected, "{wanted:?} {seen}");
        }
    }

    #[test]
    fn nothing_is_created_before_the_node_is_registered() {
        assert_eq!(step(Some(("h1", false)), "-", None), "nothing");
        assert_eq!(step(None, "h1", None), "delete");
    }

    #[test]
    fn static_pod_is_found_by_its_own_uid_and_by_that_of_its_mirror() {
        let pod = static_pod("h1");
        for (uid, seen, expected) in
            [("h1", "-", true), ("m", "h1", true), ("m", "h0*", true), ("m", "-", false), ("x", "h1", false)]
        {
            assert_eq!(is_uid_of_pod(uid, &pod, mirror(seen).as_ref()), expected, "{uid} {seen}");
        }
        let mut other = static_pod("h2");
        other.metadata.annotations = None;
        assert!(!is_uid_of_pod("h2", &pod, Some(&other)), "another pod of that name is no mirror");
    }

    #[test]
    fn a_mirror_names_its_node_and_its_content_and_has_no_uid_of_its_own() {
        expect![[r#"{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"kubernetes.io/config.hash":"h1","kubernetes.io/config.mirror":"h1","kubernetes.io/config.source":"file"},"labels":{"app":"web"},"name":"web-n1","namespace":"default","ownerReferences":[{"apiVersion":"v1","controller":true,"kind":"Node","name":"n1","uid":"node-uid"}]},"spec":{"containers":[{"name":"a"}],"nodeName":"n1"}}"#]]
            .assert_eq(&serde_json::to_string(&mirror_of(&static_pod("h1"), OWNER)).unwrap());
    }

    proptest! {
        #[test]
        fn mirror_is_right_after_two_steps_from_any_state(hash in "h[0-3]", seen in prop::sample::select(vec!["-", "h0", "h1", "h1*", "h3"]), is_wanted: bool) {
            let pod = static_pod(&hash);
            let wanted = is_wanted.then_some((&pod, false));
            let mut current = mirror(seen);
            for _ in 0..2 {
                match compute_mirror(wanted, current.as_ref(), Some(OWNER)) {
                    MirrorStep::Nothing => {}
                    MirrorStep::Create(pod) => current = Some(*pod),
                    MirrorStep::Delete { .. } => current = None,
                }
            }
            prop_assert_eq!(compute_mirror(wanted, current.as_ref(), Some(OWNER)), MirrorStep::Nothing);
            prop_assert_eq!(current.is_some(), is_wanted);
        }
    }
}
