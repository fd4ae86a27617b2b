//! What the API promises to programs: conflicts, preconditions, graceful deletion, dry runs, expired revisions.

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
        other => panic!("a refusal was expected, not {other:?}"),
    }
}

async fn get(client: &Client, path: &str) -> Result<Value, Error> {
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    client.request(request).await
}

#[tokio::test]
async fn a_pod_on_a_node_is_deleted_in_two_steps() {
    let server = Server::start(&[]);
    let pods: Api<Pod> = Api::default_namespaced(server.client("admin.kubeconfig").await);
    let created = pods.create(&PostParams::default(), &pod("p", "n")).await.expect("created");
    let going = pods.delete("p", &DeleteParams::default()).await.expect("deleted").left().expect("the pod");
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(20));
    assert!(going.metadata.deletion_timestamp.is_some());
    assert_eq!(going.metadata.generation, Some(2));
    let longer = pods.delete("p", &DeleteParams::default().grace_period(60)).await.expect("again");
    assert_eq!(longer.left().expect("the pod").metadata.deletion_grace_period_seconds, Some(20));
    let other = Preconditions { uid: Some("other".to_owned()), ..Preconditions::default() };
    let now = DeleteParams::default().grace_period(0);
    let refused = pods.delete("p", &now.clone().preconditions(other)).await;
    assert_eq!(code(refused), (409, "Conflict".to_owned()));
    let own = Preconditions { uid: created.uid(), ..Preconditions::default() };
    pods.delete("p", &now.preconditions(own)).await.expect("the kubelet lets go");
    assert_eq!(code(pods.get("p").await), (404, "NotFound".to_owned()));
}

#[tokio::test]
async fn the_status_and_the_rest_are_written_apart() {
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
    // Nothing changed, so nothing was written.
    assert_eq!(
        patched.metadata.resource_version,
        pods.get("p").await.expect("there").metadata.resource_version
    );
}

#[tokio::test]
async fn an_old_copy_cannot_overwrite_a_newer_one_and_a_dry_run_writes_nothing() {
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
async fn a_lease_is_made_by_its_first_write_and_never_overwritten_unread() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let unread: Lease = serde_json::from_value(json!({
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me"},
    }))
    .expect("a lease");
    let params = PostParams::default();
    let made = leases.replace("l", &params, &unread).await.expect("a PUT makes it");
    let refused = leases.replace("l", &params, &unread).await.expect_err("a resourceVersion is needed");
    let expected = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update";
    assert!(refused.to_string().contains(expected), "{refused}");
    assert_eq!(code::<Lease>(Err(refused)), (422, "Invalid".to_owned()));
    let held = leases.replace("l", &params, &made).await.expect("who read it may write it");
    leases.delete("l", &DeleteParams::default()).await.expect("deleted");
    // Who means the lease that is gone does not get a new one.
    let mut gone = held;
    gone.metadata.resource_version = None;
    assert_eq!(code(leases.replace("l", &params, &gone).await), (409, "Conflict".to_owned()));
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).expect("a map");
    assert_eq!(code(maps.replace("m", &params, &map).await).0, 404);
}

#[tokio::test]
async fn an_event_is_the_same_in_both_groups() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let event = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "said", "reason": "Started", "type": "Normal",
    });
    let event: Event = serde_json::from_value(event).expect("an event");
    events.create(&PostParams::default(), &event).await.expect("created");
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/e";
    let shown = get(&client, path).await.expect("shown");
    assert_eq!(shown["note"], "said");
    assert_eq!(shown["regarding"]["name"], "p");
}

#[tokio::test]
async fn a_revision_older_than_the_history_is_expired() {
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
        eventually("the history to be gone", || {
            let watched = runtime.block_on(get(&client, &path)).expect("one event");
            (watched["type"] == "ERROR").then(|| watched["object"].clone())
        })
    });
    let error = error.await.expect("looked");
    assert_eq!((&error["code"], &error["reason"]), (&json!(410), &json!("Expired")));
}
