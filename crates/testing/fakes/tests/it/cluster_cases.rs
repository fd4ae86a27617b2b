//! The contract of the Kubernetes API: what the kubelet relies on, a case for each promise.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt;
use model::k8s::{
    CSINode, CSINodeDriver, ConfigMap, Lease, LeaseSpec, Node, ObjectMeta, Pod, ServiceAccount, TokenRequest,
    TokenReview, VolumeAttachment,
};
use ports::Cluster;
use ports::cluster::{Change, Changes, ClusterError, Deletion, Part, Patch, Selection};
use serde_json::{Value, json};

const NS: &str = "default";
const LONG: Duration = Duration::from_secs(60);

/// Creates a test of every case of the contract, with a cluster that `$run` creates and removes.
macro_rules! cluster_contract {
    ($(#[$test:meta])* $run:path) => {
        cluster_contract!(@ [$(#[$test])*] $run,
            created_object_can_be_read_and_listed,
            existing_object_cannot_be_created_again,
            missing_object_is_not_found,
            generate_name_gives_a_unique_name,
            update_with_an_old_resource_version_is_a_conflict,
            lease_update_needs_the_current_resource_version,
            a_patch_changes_only_what_it_names,
            a_strategic_patch_merges_conditions_by_type,
            a_json_patch_whose_test_fails_changes_nothing,
            a_patch_that_names_another_uid_is_a_conflict,
            pod_status_changes_only_through_the_status_subresource,
            lists_and_watches_support_field_and_label_selectors,
            watch_reports_every_change_after_its_resource_version_in_order,
            object_that_leaves_the_selection_is_deleted_for_its_watch,
            patch_without_change_keeps_the_resource_version,
            a_running_pod_is_deleted_in_two_steps,
            unscheduled_pod_is_deleted_at_once,
            a_grace_period_only_shrinks,
            delete_precondition_checks_the_uid,
            finalizers_keep_a_deleted_object,
            csi_node_is_updated_only_with_its_current_resource_version,
            volume_attachment_is_attached_through_its_status_only,
            service_account_token_is_accepted_by_token_review,
            healthz_reports_ok,
        );
    };
    (@ $attributes:tt $run:path, $($case:ident,)*) => {
        $(cluster_contract!(@@ $attributes $run, $case);)*
    };
    (@@ [$($attribute:tt)*] $run:path, $case:ident) => {
        $($attribute)*
        async fn $case() {
            $run(|cluster| Box::pin(async move { crate::cluster_cases::$case(&*cluster).await })).await;
        }
    };
}
pub(crate) use cluster_contract;

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

fn pod(name: &str, node: Option<&str>) -> Pod {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NS, "labels": {"app": name}},
        "spec": {"containers": [{"name": "app", "image": "busybox"}], "terminationGracePeriodSeconds": 20},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    serde_json::from_value(pod).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    let data = [("key".to_owned(), "value".to_owned())].into();
    ConfigMap { metadata: named(name), data: Some(data), ..ConfigMap::default() }
}

fn on_node(node: &str) -> Selection {
    Selection { fields: Some(format!("spec.nodeName={node}")), ..Selection::default() }
}

fn name_of(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap()
}

fn version_of(metadata: &ObjectMeta) -> String {
    metadata.resource_version.clone().unwrap()
}

/// `+web`, `~web`, `-web`; bookmarks are skipped.
async fn next(changes: &mut Changes<Pod>) -> (String, Pod) {
    let next = async {
        loop {
            let (sign, pod) = match changes.next().await.unwrap().unwrap() {
                Change::Added(pod) => ('+', pod),
                Change::Modified(pod) => ('~', pod),
                Change::Deleted(pod) => ('-', pod),
                Change::Bookmark { .. } | Change::Malformed { .. } => continue,
            };
            return (format!("{sign}{}", name_of(&pod.metadata)), pod);
        }
    };
    tokio::time::timeout(LONG, next).await.unwrap()
}

async fn briefly(changes: &mut Changes<Pod>) -> String {
    next(changes).await.0
}

async fn patch_status(cluster: &dyn Cluster, name: &str, status: Value) -> Result<Pod, ClusterError> {
    let patch = Patch::Strategic(json!({"status": status}));
    cluster.pods().patch(NS, name, Part::Status, &patch).await
}

pub(crate) async fn created_object_can_be_read_and_listed(cluster: &dyn Cluster) {
    let created = cluster.config_maps().create(NS, &config_map("a")).await.unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some(NS));
    assert!(created.metadata.uid.is_some() && created.metadata.creation_timestamp.is_some());
    assert_eq!(cluster.config_maps().get(NS, "a").await.unwrap(), created);
    let here = Selection { namespace: Some(NS.to_owned()), ..Selection::default() };
    let listed = cluster.config_maps().list(&here).await.unwrap();
    assert!(listed.items.contains(&created));
    assert!(!listed.resource_version.is_empty());
}

pub(crate) async fn existing_object_cannot_be_created_again(cluster: &dyn Cluster) {
    cluster.config_maps().create(NS, &config_map("a")).await.unwrap();
    let error = cluster.config_maps().create(NS, &config_map("a")).await.unwrap_err();
    assert!(matches!(error, ClusterError::AlreadyExists { .. }), "{error:?}");
}

pub(crate) async fn missing_object_is_not_found(cluster: &dyn Cluster) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    for error in [
        cluster.nodes().get("", "none").await.unwrap_err(),
        cluster.pods().delete(NS, "none", &Deletion::default()).await.unwrap_err(),
        cluster.pods().patch(NS, "none", Part::Whole, &patch).await.unwrap_err(),
        cluster.request_token(NS, "none", &TokenRequest::default()).await.unwrap_err(),
        cluster.csi_drivers().get("", "none").await.unwrap_err(),
        cluster.patch_claim_status(NS, "none", &patch).await.unwrap_err(),
    ] {
        assert!(error.is_not_found(), "{error:?}");
    }
}

pub(crate) async fn generate_name_gives_a_unique_name(cluster: &dyn Cluster) {
    let mut names = BTreeSet::new();
    for _ in 0..3 {
        let mut map = config_map("");
        map.metadata = ObjectMeta { generate_name: Some("gen-".to_owned()), ..ObjectMeta::default() };
        let name = name_of(&cluster.config_maps().create(NS, &map).await.unwrap().metadata);
        assert!(name.starts_with("gen-") && name.len() > 4, "{name}");
        names.insert(name);
    }
    assert_eq!(names.len(), 3);
}

pub(crate) async fn update_with_an_old_resource_version_is_a_conflict(cluster: &dyn Cluster) {
    let old = cluster.config_maps().create(NS, &config_map("a")).await.unwrap();
    let mut new = old.clone();
    new.data = Some([("key".to_owned(), "new".to_owned())].into());
    let updated = cluster.config_maps().update(NS, &new).await.unwrap();
    assert_eq!(updated.data, new.data);
    assert_ne!(version_of(&updated.metadata), version_of(&old.metadata));
    let error = cluster.config_maps().update(NS, &old).await.unwrap_err();
    assert!(matches!(error, ClusterError::Conflict { .. }), "{error:?}");
}

pub(crate) async fn lease_update_needs_the_current_resource_version(cluster: &dyn Cluster) {
    let spec = LeaseSpec { holder_identity: Some("edge-1".to_owned()), ..LeaseSpec::default() };
    let lease = Lease { metadata: named("edge-1"), spec: Some(spec) };
    let old = cluster.leases().create(NS, &lease).await.unwrap();
    let mut new = old.clone();
    new.spec.as_mut().unwrap().lease_duration_seconds = Some(40);
    let updated = cluster.leases().update(NS, &new).await.unwrap();
    assert_eq!(updated.spec.unwrap().lease_duration_seconds, Some(40));
    let error = cluster.leases().update(NS, &old).await.unwrap_err();
    assert!(matches!(error, ClusterError::Conflict { .. }), "{error:?}");
}

pub(crate) async fn a_patch_changes_only_what_it_names(cluster: &dyn Cluster) {
    let mut node = Node { metadata: named("edge-1"), ..Node::default() };
    node.metadata.labels = Some([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into());
    cluster.nodes().create("", &node).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": null, "c": "3"}}}));
    let patched = cluster.nodes().patch("", "edge-1", Part::Whole, &patch).await.unwrap();
    let expected = [("b".to_owned(), "2".to_owned()), ("c".to_owned(), "3".to_owned())];
    assert_eq!(patched.metadata.labels, Some(expected.into()));
    assert_eq!(cluster.nodes().get("", "edge-1").await.unwrap(), patched);
}

pub(crate) async fn a_strategic_patch_merges_conditions_by_type(cluster: &dyn Cluster) {
    cluster.nodes().create("", &Node { metadata: named("edge-1"), ..Node::default() }).await.unwrap();
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Test", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    for conditions in [
        json!([condition("Ready", "False"), condition("DiskPressure", "False")]),
        json!([{"type": "Ready", "status": "True"}]),
    ] {
        let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
        cluster.nodes().patch("", "edge-1", Part::Status, &patch).await.unwrap();
    }
    let node = cluster.nodes().get("", "edge-1").await.unwrap();
    let conditions = node.status.unwrap().conditions.unwrap();
    let brief: BTreeSet<_> = conditions
        .iter()
        .map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_deref()))
        .collect();
    assert_eq!(brief, [("DiskPressure", "False", Some("Test")), ("Ready", "True", Some("Test"))].into());
}

pub(crate) async fn a_json_patch_whose_test_fails_changes_nothing(cluster: &dyn Cluster) {
    let created = cluster.config_maps().create(NS, &config_map("a")).await.unwrap();
    let patch = Patch::Json(json!([
        {"op": "replace", "path": "/data/key", "value": "new"},
        {"op": "test", "path": "/data/key", "value": "value"},
    ]));
    assert!(cluster.config_maps().patch(NS, "a", Part::Whole, &patch).await.is_err());
    assert_eq!(cluster.config_maps().get(NS, "a").await.unwrap(), created);
    let patch = Patch::Json(json!([{"op": "add", "path": "/data/more", "value": "new"}]));
    let patched = cluster.config_maps().patch(NS, "a", Part::Whole, &patch).await.unwrap();
    assert_eq!(patched.data.unwrap().len(), 2);
}

pub(crate) async fn a_patch_that_names_another_uid_is_a_conflict(cluster: &dyn Cluster) {
    let created = cluster.pods().create(NS, &pod("web", Some("edge-1"))).await.unwrap();
    let patch =
        |uid: &str| Patch::Strategic(json!({"metadata": {"uid": uid}, "status": {"phase": "Running"}}));
    let wrong = cluster.pods().patch(NS, "web", Part::Status, &patch("other")).await.unwrap_err();
    assert!(matches!(wrong, ClusterError::Conflict { .. }), "{wrong:?}");
    let uid = created.metadata.uid.unwrap();
    let patched = cluster.pods().patch(NS, "web", Part::Status, &patch(&uid)).await.unwrap();
    assert_eq!(patched.status.unwrap().phase.as_deref(), Some("Running"));
}

pub(crate) async fn pod_status_changes_only_through_the_status_subresource(cluster: &dyn Cluster) {
    let phase = |pod: &Pod| pod.status.clone().unwrap().phase.unwrap();
    let created = cluster.pods().create(NS, &pod("web", Some("edge-1"))).await.unwrap();
    assert_eq!(phase(&created), "Pending");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Failed"}}));
    let patched = cluster.pods().patch(NS, "web", Part::Whole, &patch).await.unwrap();
    assert_eq!((phase(&patched).as_str(), patched.metadata.labels.unwrap()["a"].as_str()), ("Pending", "b"));
    let patch = Patch::Merge(json!({"spec": {"nodeName": "other"}, "status": {"phase": "Running"}}));
    let patched = cluster.pods().patch(NS, "web", Part::Status, &patch).await.unwrap();
    let node = patched.spec.clone().unwrap().node_name.unwrap();
    assert_eq!((phase(&patched).as_str(), node.as_str()), ("Running", "edge-1"));
}

pub(crate) async fn lists_and_watches_support_field_and_label_selectors(cluster: &dyn Cluster) {
    for (name, node) in [("one", "edge-1"), ("two", "edge-2"), ("three", "edge-1")] {
        cluster.pods().create(NS, &pod(name, Some(node))).await.unwrap();
    }
    let both = Selection { labels: Some("app in (one,two)".to_owned()), ..on_node("edge-1") };
    let names = |pods: Vec<Pod>| pods.iter().map(|pod| name_of(&pod.metadata)).collect::<BTreeSet<_>>();
    let listed = cluster.pods().list(&on_node("edge-1")).await.unwrap();
    assert_eq!(names(listed.items), ["one".to_owned(), "three".to_owned()].into());
    assert_eq!(names(cluster.pods().list(&both).await.unwrap().items), ["one".to_owned()].into());
    let elsewhere = Selection { namespace: Some("kube-system".to_owned()), ..on_node("edge-1") };
    assert_eq!(names(cluster.pods().list(&elsewhere).await.unwrap().items), [].into());

    let mut changes = cluster.pods().watch(&on_node("edge-1"), &listed.resource_version).await.unwrap();
    for (name, node) in [("four", "edge-2"), ("five", "edge-1")] {
        cluster.pods().create(NS, &pod(name, Some(node))).await.unwrap();
    }
    assert_eq!(briefly(&mut changes).await, "+five");
}

pub(crate) async fn watch_reports_every_change_after_its_resource_version_in_order(cluster: &dyn Cluster) {
    cluster.pods().create(NS, &pod("before", Some("edge-1"))).await.unwrap();
    let since = cluster.pods().list(&on_node("edge-1")).await.unwrap().resource_version;
    cluster.pods().create(NS, &pod("web", Some("edge-1"))).await.unwrap();
    let mut changes = cluster.pods().watch(&on_node("edge-1"), &since).await.unwrap();
    assert_eq!(briefly(&mut changes).await, "+web");
    let patched = patch_status(cluster, "web", json!({"phase": "Running"})).await.unwrap();
    let (brief, seen) = next(&mut changes).await;
    assert_eq!(
        (brief.as_str(), &seen.metadata.resource_version),
        ("~web", &patched.metadata.resource_version)
    );
    let at_once = Deletion { uid: None, grace_seconds: Some(0) };
    cluster.pods().delete(NS, "web", &at_once).await.unwrap();
    let (brief, last) = next(&mut changes).await;
    assert_eq!((brief.as_str(), last.status.unwrap().phase.as_deref()), ("-web", Some("Running")));
    assert_ne!(last.metadata.resource_version, patched.metadata.resource_version);

    // Another update, from in between.
    let mut changes = cluster.pods().watch(&on_node("edge-1"), &version_of(&patched.metadata)).await.unwrap();
    assert_eq!(briefly(&mut changes).await, "-web");
}

pub(crate) async fn object_that_leaves_the_selection_is_deleted_for_its_watch(cluster: &dyn Cluster) {
    let created = cluster.pods().create(NS, &pod("web", Some("edge-1"))).await.unwrap();
    let blue = Selection { labels: Some("colour=blue".to_owned()), ..Selection::default() };
    let mut changes = cluster.pods().watch(&blue, &version_of(&created.metadata)).await.unwrap();
    for colour in ["blue", "red"] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"colour": colour}}}));
        cluster.pods().patch(NS, "web", Part::Whole, &patch).await.unwrap();
    }
    assert_eq!(briefly(&mut changes).await, "+web");
    assert_eq!(briefly(&mut changes).await, "-web");
}

pub(crate) async fn patch_without_change_keeps_the_resource_version(cluster: &dyn Cluster) {
    cluster.pods().create(NS, &pod("web", Some("edge-1"))).await.unwrap();
    let first = patch_status(cluster, "web", json!({"phase": "Running"})).await.unwrap();
    let second = patch_status(cluster, "web", json!({"phase": "Running"})).await.unwrap();
    assert_eq!(first, second);
}

pub(crate) async fn a_running_pod_is_deleted_in_two_steps(cluster: &dyn Cluster) {
    let created = cluster.pods().create(NS, &pod("web", Some("edge-1"))).await.unwrap();
    let mut changes = cluster.pods().watch(&on_node("edge-1"), &version_of(&created.metadata)).await.unwrap();
    cluster.pods().delete(NS, "web", &Deletion::default()).await.unwrap();
    let (brief, marked) = next(&mut changes).await;
    assert_eq!(brief, "~web");
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(20));
    assert!(marked.metadata.deletion_timestamp.is_some());
    let finally = Deletion { uid: marked.metadata.uid, grace_seconds: Some(0) };
    cluster.pods().delete(NS, "web", &finally).await.unwrap();
    assert_eq!(briefly(&mut changes).await, "-web");
    assert!(cluster.pods().get(NS, "web").await.unwrap_err().is_not_found());
}

pub(crate) async fn unscheduled_pod_is_deleted_at_once(cluster: &dyn Cluster) {
    cluster.pods().create(NS, &pod("nobodys", None)).await.unwrap();
    cluster.pods().delete(NS, "nobodys", &Deletion::default()).await.unwrap();
    assert!(cluster.pods().get(NS, "nobodys").await.unwrap_err().is_not_found());
    cluster.pods().create(NS, &pod("ended", Some("edge-1"))).await.unwrap();
    patch_status(cluster, "ended", json!({"phase": "Succeeded"})).await.unwrap();
    cluster.pods().delete(NS, "ended", &Deletion::default()).await.unwrap();
    assert!(cluster.pods().get(NS, "ended").await.unwrap_err().is_not_found());
}

pub(crate) async fn a_grace_period_only_shrinks(cluster: &dyn Cluster) {
    cluster.pods().create(NS, &pod("web", Some("edge-1"))).await.unwrap();
    for (requested, expected) in [(10, 10), (15, 10), (5, 5)] {
        let deletion = Deletion { uid: None, grace_seconds: Some(requested) };
        cluster.pods().delete(NS, "web", &deletion).await.unwrap();
        let seconds = cluster.pods().get(NS, "web").await.unwrap().metadata.deletion_grace_period_seconds;
        assert_eq!(seconds, Some(expected), "after requesting {requested}");
    }
}

pub(crate) async fn delete_precondition_checks_the_uid(cluster: &dyn Cluster) {
    let created = cluster.pods().create(NS, &pod("web", Some("edge-1"))).await.unwrap();
    let other = Deletion { uid: Some("other".to_owned()), grace_seconds: Some(0) };
    let error = cluster.pods().delete(NS, "web", &other).await.unwrap_err();
    assert!(matches!(error, ClusterError::Conflict { .. }), "{error:?}");
    let this = Deletion { uid: created.metadata.uid, grace_seconds: Some(0) };
    cluster.pods().delete(NS, "web", &this).await.unwrap();
}

pub(crate) async fn finalizers_keep_a_deleted_object(cluster: &dyn Cluster) {
    let mut held = config_map("held");
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    cluster.config_maps().create(NS, &held).await.unwrap();
    cluster.config_maps().delete(NS, "held", &Deletion::default()).await.unwrap();
    let there = cluster.config_maps().get(NS, "held").await.unwrap();
    assert!(there.metadata.deletion_timestamp.is_some());
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.config_maps().patch(NS, "held", Part::Whole, &release).await.unwrap();
    assert!(cluster.config_maps().get(NS, "held").await.unwrap_err().is_not_found());
}

pub(crate) async fn csi_node_is_updated_only_with_its_current_resource_version(cluster: &dyn Cluster) {
    let node: CSINode =
        serde_json::from_value(json!({"metadata": {"name": "edge-1"}, "spec": {"drivers": []}})).unwrap();
    let mut created = cluster.csi_nodes().create("", &node).await.unwrap();
    assert_eq!(created.spec.drivers, []);
    let driver =
        CSINodeDriver { name: "d.example".to_owned(), node_id: "id".to_owned(), ..CSINodeDriver::default() };
    created.spec.drivers.push(driver);
    let updated = cluster.csi_nodes().update("", &created).await.unwrap();
    assert_eq!(updated.spec, created.spec);
    let error = cluster.csi_nodes().update("", &created).await.unwrap_err();
    assert!(matches!(error, ClusterError::Conflict { .. }), "{error:?}");
    created.metadata.resource_version = None;
    let error = cluster.csi_nodes().update("", &created).await.unwrap_err();
    assert!(matches!(error, ClusterError::Invalid { .. }), "{error:?}");
    cluster.csi_nodes().delete("", "edge-1", &Deletion::default()).await.unwrap();
    assert!(cluster.csi_nodes().get("", "edge-1").await.unwrap_err().is_not_found());
}

pub(crate) async fn volume_attachment_is_attached_through_its_status_only(cluster: &dyn Cluster) {
    let attachment: VolumeAttachment = serde_json::from_value(json!({
        "metadata": {"name": "csi-1"},
        "spec": {"attacher": "d.example", "nodeName": "edge-1", "source": {"persistentVolumeName": "pv"}},
    }))
    .unwrap();
    cluster.volume_attachments().create("", &attachment).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"attached": true, "attachmentMetadata": {"dev": "sdb"}}}));
    let is_attached = |attachment: VolumeAttachment| attachment.status.is_some_and(|status| status.attached);
    let attachments = cluster.volume_attachments();
    assert!(!is_attached(attachments.patch("", "csi-1", Part::Whole, &patch).await.unwrap()));
    let attached = attachments.patch("", "csi-1", Part::Status, &patch).await.unwrap();
    assert_eq!(attached.status.clone().unwrap().attachment_metadata.unwrap()["dev"], "sdb");
    assert!(is_attached(attachments.get("", "csi-1").await.unwrap()));
}

pub(crate) async fn service_account_token_is_accepted_by_token_review(cluster: &dyn Cluster) {
    let account = ServiceAccount { metadata: named("builder"), ..ServiceAccount::default() };
    cluster.service_accounts().create(NS, &account).await.unwrap();
    let request: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": 3600}})).unwrap();
    let answer = cluster.request_token(NS, "builder", &request).await.unwrap().status.unwrap();
    assert!(answer.expiration_timestamp.is_some());
    let mut review = TokenReview::default();
    review.spec.token = answer.token.unwrap();
    let status = cluster.review_token(&review).await.unwrap().status.unwrap();
    let user = status.user.unwrap().username.unwrap();
    assert_eq!((status.authenticated, user.as_str()), (Some(true), "system:serviceaccount:default:builder"));
    review.spec.token = "unknown".to_owned();
    let status = cluster.review_token(&review).await.unwrap().status.unwrap();
    assert_ne!(status.authenticated, Some(true));
}

pub(crate) async fn healthz_reports_ok(cluster: &dyn Cluster) {
    cluster.healthy().await.unwrap();
    cluster.close_connections();
    cluster.healthy().await.unwrap();
}
