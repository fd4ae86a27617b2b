//! The semantics of the API for clients: conflicts, preconditions, graceful deletion, dry runs, expired revisions.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Error, ResourceExt};
use serde_json::{Value, json};

use crate::server::{Server, eventually};

fn pod(name: &str, node: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 20,
            "containers": [{"name": "c", "image": "busybox"}],
        },
    });
    serde_json::from_value(pod).expect("a pod")
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, String) {
    match result {
        Err(Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("expected an API error, got {other:?}"),
    }
}

async fn get(client: &Client, path: &str) -> Result<Value, Error> {
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    client.request(request).await
}

#[tokio::test]
async fn bound_pod_is_deleted_gracefully_in_two_steps() {
    let server = Server::start(&[]);
    let pods: Api<Pod> = Api::default_namespaced(server.client("admin.kubeconfig").await);
    let created = pods.create(&PostParams::default(), &pod("p", "n")).await.expect("created");
    let terminating =
        pods.delete("p", &DeleteParams::default()).await.expect("deleted").left().expect("the pod");
    assert_eq!(terminating.metadata.deletion_grace_period_seconds, Some(20));
    assert!(terminating.metadata.deletion_timestamp.is_some());
    assert_eq!(terminating.metadata.generation, Some(2));
    let longer = pods.delete("p", &DeleteParams::default().grace_period(60)).await.expect("again");
    assert_eq!(longer.left().expect("the pod").metadata.deletion_grace_period_seconds, Some(20));
    let other = Preconditions { uid: Some("other".to_owned()), ..Preconditions::default() };
    let now = DeleteParams::default().grace_period(0);
    let refused = pods.delete("p", &now.clone().preconditions(other)).await;
    assert_eq!(code(refused), (409, "Conflict".to_owned()));
    let own = Preconditions { uid: created.uid(), ..Preconditions::default() };
    pods.delete("p", &now.preconditions(own)).await.expect("the final deletion");
    assert_eq!(code(pods.get("p").await), (404, "NotFound".to_owned()));
}

#[tokio::test]
async fn status_and_main_resource_are_updated_separately() {
    let server = Server::start(&[]);
    let pods: Api<Pod> = Api::default_namespaced(server.client("admin.kubeconfig").await);
    let created = pods.create(&PostParams::default(), &pod("p", "n")).await.expect("created");
    let both = |uid: &str| {
        let label = json!({"written": "yes"});
        Patch::Strategic(json!({
            "metadata": {"uid": uid, "labels": label},
            "spec": {"activeDeadlineSeconds": 5},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }))
    };
    let uid = created.uid().expect("a uid");
    let params = PatchParams::default();
    let patched = pods.patch_status("p", &params, &both(&uid)).await.expect("patched");
    let spec = patched.spec.as_ref().expect("a spec");
    assert_eq!(patched.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Running"));
    assert_eq!(spec.active_deadline_seconds, None);
    assert_eq!(patched.metadata.generation, Some(1));
    assert_eq!(code(pods.patch_status("p", &params, &both("other")).await), (409, "Conflict".to_owned()));
    let status = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let patched = pods.patch("p", &params, &status).await.expect("patched");
    assert_eq!(patched.status.and_then(|status| status.phase).as_deref(), Some("Running"));
    // A patch without effect does not write the object.
    assert_eq!(
        patched.metadata.resource_version,
        pods.get("p").await.expect("the pod").metadata.resource_version
    );
}

#[tokio::test]
async fn stale_update_conflicts_and_dry_run_writes_nothing() {
    let server = Server::start(&[]);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client("admin.kubeconfig").await);
    let new = ConfigMap::default();
    let generated: ConfigMap =
        serde_json::from_value(json!({"metadata": {"generateName": "m-"}})).expect("a map");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    assert!(maps.create(&dry, &generated).await.expect("tried").name_any().starts_with("m-"));
    assert_eq!(code(maps.create(&PostParams::default(), &new).await).0, 422);
    let mut old = maps.create(&PostParams::default(), &generated).await.expect("created");
    let name = old.name_any();
    old.data = Some([("a".to_owned(), "1".to_owned())].into());
    maps.replace(&name, &PostParams::default(), &old).await.expect("replaced");
    assert_eq!(code(maps.replace(&name, &PostParams::default(), &old).await), (409, "Conflict".to_owned()));
    let count = maps.list(&Default::default()).await.expect("listed").items.len();
    assert_eq!(count, 2, "kube-root-ca.crt and the one that was not a dry run");
}

#[tokio::test]
async fn lease_put_creates_and_requires_a_resource_version_afterwards() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let unread: Lease = serde_json::from_value(json!({
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me"},
    }))
    .expect("a lease");
    let params = PostParams::default();
    let made = leases.replace("l", &params, &unread).await.expect("a PUT creates it");
    let refused = leases.replace("l", &params, &unread).await.expect_err("a resourceVersion is required");
    let expected = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update";
    assert!(refused.to_string().contains(expected), "{refused}");
    assert_eq!(code::<Lease>(Err(refused)), (422, "Invalid".to_owned()));
    let held = leases.replace("l", &params, &made).await.expect("an update with the current resourceVersion");
    leases.delete("l", &DeleteParams::default()).await.expect("deleted");
    // A PUT with the UID of a deleted lease does not create a new one.
    let mut deleted = held;
    deleted.metadata.resource_version = None;
    assert_eq!(code(leases.replace("l", &params, &deleted).await), (409, "Conflict".to_owned()));
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).expect("a map");
    assert_eq!(code(maps.replace("m", &params, &map).await).0, 404);
}

#[tokio::test]
async fn event_is_served_in_both_api_groups() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let event = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "text", "reason": "Started", "type": "Normal",
    });
    let event: Event = serde_json::from_value(event).expect("an event");
    events.create(&PostParams::default(), &event).await.expect("created");
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/e";
    let shown = get(&client, path).await.expect("shown");
    assert_eq!(shown["note"], "text");
    assert_eq!(shown["regarding"]["name"], "p");
}

#[tokio::test]
async fn watch_from_a_revision_before_the_history_is_expired() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = maps.list(&Default::default()).await.expect("listed");
    let before = list.metadata.resource_version.expect("a revision");
    let new: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).expect("a map");
    maps.create(&PostParams::default(), &new).await.expect("created");
    let path = format!("/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion={before}");
    let watched = get(&client, &path).await.expect("one event");
    assert_eq!((&watched["type"], &watched["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("m")));
    server.compact();
    let runtime = tokio::runtime::Handle::current();
    let error = tokio::task::spawn_blocking(move || {
        eventually("the history to be discarded", || {
            let watched = runtime.block_on(get(&client, &path)).expect("one event");
            (watched["type"] == "ERROR").then(|| watched["object"].clone())
        })
    });
    let error = error.await.expect("the polling task");
    assert_eq!((&error["code"], &error["reason"]), (&json!(410), &json!("Expired")));
}
