//! Verbs: requests and responses.

use std::time::Duration;

use cluster::{Budget, HandleSettings};
use model::k8s::{Lease, Node, ObjectMeta, Pod, TokenRequest};
use ports::cluster::{ClusterError, Deletion, Part, Patch, Selection};
use ports::{Cluster, TraceContext};
use serde_json::{Value, json};

use crate::server::{LONG, Reply, TestServer, UNLIMITED, api_traced};

fn node(version: &str) -> Value {
    json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "edge-1", "resourceVersion": version,
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]}, "futureField": {"a": 1}})
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

#[tokio::test]
async fn each_verb_sends_the_request_of_the_api() {
    let server = TestServer::start(|request| match request.method.as_str() {
        "DELETE" => Reply::json(&json!({"kind": "Status", "status": "Success"})),
        _ => Reply::json(&node("7")),
    })
    .await;
    let nodes = server.handle();
    let nodes = nodes.nodes();
    let got = nodes.get("ignored", "edge-1").await.unwrap();
    assert_eq!(got.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(got.metadata.managed_fields, None);
    let object = Node { metadata: named("edge-1"), ..Node::default() };
    nodes.create("", &object).await.unwrap();
    nodes.update("", &object).await.unwrap();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    nodes.patch("", "edge-1", Part::Whole, &Patch::Merge(patch.clone())).await.unwrap();
    nodes.patch("", "edge-1", Part::Status, &Patch::Strategic(patch.clone())).await.unwrap();
    nodes.patch("", "edge-1", Part::Whole, &Patch::Json(json!([]))).await.unwrap();
    let deletion = Deletion { uid: Some("u-1".to_owned()), grace_seconds: Some(0) };
    nodes.delete("", "edge-1", &deletion).await.unwrap();

    let requests = server.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|one| (one.line(), one.header("content-type").unwrap_or("-").to_owned()))
        .collect();
    let expected = [
        ("GET /api/v1/nodes/edge-1", "-"),
        ("POST /api/v1/nodes", "application/json"),
        ("PUT /api/v1/nodes/edge-1", "application/json"),
        ("PATCH /api/v1/nodes/edge-1", "application/merge-patch+json"),
        ("PATCH /api/v1/nodes/edge-1/status", "application/strategic-merge-patch+json"),
        ("PATCH /api/v1/nodes/edge-1", "application/json-patch+json"),
        ("DELETE /api/v1/nodes/edge-1", "application/json"),
    ];
    assert_eq!(seen, expected.map(|(line, kind)| (line.to_owned(), kind.to_owned())));
    assert_eq!(serde_json::from_str::<Value>(&requests[3].body).unwrap(), patch);
    assert_eq!(
        serde_json::from_str::<Value>(&requests[6].body).unwrap(),
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "u-1"}})
    );
    assert!(requests.iter().all(|one| one.http2 && one.connection == 0), "{requests:?}");
    assert_eq!(requests[0].header("user-agent"), Some("kubelet/v1.36.2 (linux/amd64) kubernetes/test"));
    assert_eq!(requests[0].header("accept"), Some("application/json"));
}

#[derive(Debug)]
struct AlwaysThere;

impl TraceContext for AlwaysThere {
    fn traceparent(&self) -> Option<String> {
        Some("00-0123456789abcdef0123456789abcdef-0011223344556677-01".to_owned())
    }
}

#[tokio::test]
async fn traced_call_has_a_traceparent_header() {
    let server = TestServer::start(|_| Reply::json(&node("7"))).await;
    let traced = api_traced(
        server.access_with(&json!({}), &json!({}), &cluster::ProxyEnv::default()),
        Some(std::sync::Arc::new(AlwaysThere)),
    );
    traced.handle(UNLIMITED).nodes().get("", "edge-1").await.unwrap();
    server.handle().nodes().get("", "edge-1").await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].header("traceparent"), AlwaysThere.traceparent().as_deref());
    assert_eq!(requests[1].header("traceparent"), None, "tracing is off");
}

#[tokio::test]
async fn paths_contain_group_and_namespace() {
    let server = TestServer::start(|_| {
        Reply::json(
            &json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "n"}}),
        )
    })
    .await;
    let handle = server.handle();
    handle.leases().get("kube-node-lease", "edge-1").await.unwrap();
    let lease = Lease { metadata: named("edge-1"), ..Lease::default() };
    handle.leases().create("kube-node-lease", &lease).await.unwrap();
    assert_eq!(
        server.lines(),
        [
            "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/edge-1",
            "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        ]
    );
}

#[tokio::test]
async fn list_sends_its_selectors_to_the_server() {
    let server = TestServer::start(|_| {
        Reply::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "42"},
            "items": [{"metadata": {"name": "web", "namespace": "a", "managedFields": [{"manager": "x"}]}}]}))
    })
    .await;
    let handle = server.handle();
    let selection = Selection {
        namespace: None,
        fields: Some("spec.nodeName=edge-1".to_owned()),
        labels: Some("app in (a,b)".to_owned()),
    };
    let listed = handle.pods().list(&selection).await.unwrap();
    assert_eq!(listed.resource_version, "42");
    let names: Vec<_> = listed.items.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["web"]);
    assert_eq!(listed.items[0].metadata.managed_fields, None);
    let one = Selection { namespace: Some("a".to_owned()), ..Selection::default() };
    handle.pods().list(&one).await.unwrap();
    assert_eq!(
        server.lines(),
        [
            "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dedge-1&labelSelector=app%20in%20%28a%2Cb%29",
            "GET /api/v1/namespaces/a/pods",
        ]
    );
}

#[tokio::test]
async fn malformed_object_in_a_list_is_named_and_the_others_arrive() {
    let server = TestServer::start(|_| {
        Reply::json(&json!({"metadata": {"resourceVersion": "1"}, "items": [
            {"metadata": {"name": "good", "namespace": "a"}},
            {"metadata": {"name": "bad", "namespace": "a", "uid": "u", "resourceVersion": "7"}, "spec": {"containers": 7}},
            {"metadata": {"name": "late", "managedFields": [{"time": "10000-01-01T19:59:59Z"}]}}]}))
    })
    .await;
    let listed = server.handle().pods().list(&Selection::default()).await.unwrap();
    let names: Vec<_> = listed.items.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["good", "late"]);
    let [bad] = &listed.malformed[..] else { panic!("{:?}", listed.malformed) };
    assert_eq!((bad.uid.as_deref(), bad.resource_version.as_str()), (Some("u"), "7"));
    assert!(bad.to_string().starts_with("a/bad: invalid type: integer `7`"), "{bad}");
}

#[tokio::test]
async fn malformed_object_that_was_requested_is_named() {
    let server =
        TestServer::start(|_| Reply::json(&json!({"metadata": {"name": "bad"}, "spec": {"containers": 7}})))
            .await;
    let error = server.handle().pods().get("a", "bad").await.unwrap_err().to_string();
    assert!(error.starts_with("get pods a/bad: malformed response: invalid type"), "{error}");
}

#[tokio::test]
async fn empty_list_may_be_null_and_malformed_lists_are_errors() {
    let server = TestServer::start(|request| match request.target.as_str() {
        "/api/v1/pods" => Reply::text(200, r#"{"metadata":{"resourceVersion":"9"},"items":null}"#),
        "/api/v1/nodes" => Reply::text(200, r#"{"metadata":{},"items":[]}"#),
        _ => Reply::text(200, "<html>hello</html>"),
    })
    .await;
    let handle = server.handle();
    let listed = handle.pods().list(&Selection::default()).await.unwrap();
    assert_eq!((listed.items.len(), listed.resource_version.as_str()), (0, "9"));
    let error = handle.nodes().list(&Selection::default()).await.unwrap_err().to_string();
    assert!(error.contains("no metadata.resourceVersion"), "{error}");
    let error = handle.secrets().list(&Selection::default()).await.unwrap_err();
    assert!(matches!(error, ClusterError::Failed { code: 200, .. }), "{error:?}");
}

#[tokio::test]
async fn error_responses_are_converted_by_their_reason() {
    let server = TestServer::start(|request| {
        let name = request.target.rsplit('/').next().unwrap();
        match name {
            "gone" => Reply::status(404, "NotFound", "pods \"gone\" not found"),
            "busy" => Reply::status(429, "TooManyRequests", "later").header("Retry-After", "2"),
            "conflict" => Reply::status(409, "Conflict", "changed"),
            "twice" => Reply::status(409, "AlreadyExists", "is there"),
            "no" => Reply::status(403, "Forbidden", "not yours"),
            _ => Reply::text(502, "bad gateway"),
        }
    })
    .await;
    let handle = server.handle();
    let mut errors = Vec::new();
    for name in ["gone", "busy", "conflict", "twice", "no", "else"] {
        errors.push(handle.pods().get("a", name).await.unwrap_err().to_string());
    }
    assert_eq!(
        errors,
        [
            "get pods a/gone: not found: pods \"gone\" not found",
            "get pods a/busy: the server is busy: later",
            "get pods a/conflict: conflict: changed",
            "get pods a/twice: already exists: is there",
            "get pods a/no: forbidden: not yours",
            "get pods a/else: bad gateway",
        ]
    );
    let busy = handle.pods().get("a", "busy").await.unwrap_err();
    let ClusterError::Busy { retry_after, .. } = busy else { panic!("{busy:?}") };
    assert_eq!(retry_after, Some(Duration::from_secs(2)));
}

#[tokio::test]
async fn call_ends_at_its_deadline() {
    let server = TestServer::start(|request| match request.target.as_str() {
        "/healthz" => Reply::text(200, "ok"),
        "/api/v1/nodes/slow" => Reply::json(&node("1")).after(LONG),
        _ => Reply::text(200, "{").then_silence(),
    })
    .await;
    let deadline = Duration::from_millis(300);
    let handle = server.api_for(&json!({})).handle(HandleSettings { budget: None, deadline });
    for name in ["slow", "stuck"] {
        let error = handle.nodes().get("", name).await.unwrap_err();
        assert_eq!(error, ClusterError::TimedOut { call: format!("get nodes {name}"), deadline });
        assert!(error.is_uncertain());
    }
    handle.healthy().await.unwrap();
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn refused_connection_and_broken_response_are_unreachable() {
    let server = TestServer::start(|_| Reply::text(200, "{").then_break()).await;
    let handle = server.handle();
    let broken = handle.nodes().get("", "edge-1").await.unwrap_err();
    assert!(matches!(broken, ClusterError::Unreachable { .. }), "{broken:?}");
    server.die();
    let refused = handle.healthy().await.unwrap_err();
    assert!(matches!(refused, ClusterError::Unreachable { .. }), "{refused:?}");
}

#[tokio::test]
async fn too_large_response_is_an_error() {
    let server =
        TestServer::start(|_| Reply::text(200, &" ".repeat(5 << 20)).chunk(&" ".repeat(5 << 20))).await;
    let error = server.handle().nodes().get("", "edge-1").await.unwrap_err().to_string();
    assert_eq!(error, "get nodes edge-1: the response is larger than 8 MiB");
}

#[tokio::test]
async fn empty_names_are_rejected() {
    let server = TestServer::start(|_| Reply::json(&node("1"))).await;
    let handle = server.handle();
    for (namespace, name) in [("", "web"), ("a", "")] {
        let error = handle.pods().delete(namespace, name, &Deletion::default()).await.unwrap_err();
        assert!(matches!(error, ClusterError::Invalid { .. }), "{error:?}");
    }
    assert!(handle.pods().create("a", &Pod::default()).await.is_err());
    assert_eq!(server.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn reviews_and_token_requests_return_their_status() {
    let server = TestServer::start(|request| {
        let mut answer: Value = serde_json::from_str(&request.body).unwrap();
        answer["status"] = match request.target.as_str() {
            "/api/v1/namespaces/a/serviceaccounts/builder/token" => {
                json!({"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"})
            }
            "/apis/authentication.k8s.io/v1/tokenreviews" => json!({"authenticated": true}),
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => json!({"allowed": true}),
            other => panic!("{other}"),
        };
        Reply::json(&answer)
    })
    .await;
    let handle = server.handle();
    let token = handle.request_token("a", "builder", &TokenRequest::default()).await.unwrap();
    assert_eq!(token.status.unwrap().token.as_deref(), Some("t"));
    let review = handle.review_token(&Default::default()).await.unwrap();
    assert_eq!(review.status.unwrap().authenticated, Some(true));
    let access = handle.review_access(&Default::default()).await.unwrap();
    assert!(access.status.unwrap().allowed);
}

#[tokio::test]
async fn rate_limit_delays_only_its_own_handle() {
    let server = TestServer::start(|_| Reply::text(200, "ok")).await;
    let api = server.api_for(&json!({}));
    let budget = Some(Budget { per_second: 0.01, burst: 2 });
    let (few, many) = (
        api.handle(HandleSettings { budget, deadline: Duration::from_secs(5) }),
        api.handle(HandleSettings { budget: None, deadline: LONG }),
    );
    few.healthy().await.unwrap();
    few.healthy().await.unwrap();
    let error = few.healthy().await.unwrap_err();
    assert!(matches!(error, ClusterError::Busy { retry_after: Some(_), .. }), "{error:?}");
    for _ in 0..20 {
        many.healthy().await.unwrap();
    }
    assert_eq!(server.lines().len(), 22);
}

#[tokio::test]
async fn older_api_version_is_used_if_the_server_lacks_the_current_one() {
    let bundle = json!({"kind": "ClusterTrustBundle", "apiVersion": "certificates.k8s.io/v1alpha1",
        "metadata": {"name": "ca", "resourceVersion": "5"}, "spec": {"signerName": "s.example/x", "trustBundle": "PEM"}});
    let list = json!({"metadata": {"resourceVersion": "6"}, "items": [bundle]});
    let server = TestServer::start(move |request| {
        if request.line().contains("/v1beta1/") {
            return Reply::text(404, "404 page not found");
        }
        Reply::json(&list)
    })
    .await;
    let handle = server.handle();
    let selection = Selection { fields: Some("metadata.name=ca".to_owned()), ..Selection::default() };
    for _ in 0..2 {
        let listed = handle.trust_bundles().list(&selection).await.unwrap();
        assert_eq!(listed.items[0].spec.signer_name, "s.example/x");
        assert_eq!(listed.items[0].spec.trust_bundle, "PEM");
    }
    let lines: Vec<String> = server.requests().iter().map(|one| one.line()).collect();
    let path = |version: &str| {
        format!(
            "GET /apis/certificates.k8s.io/{version}/clustertrustbundles?fieldSelector=metadata.name%3Dca"
        )
    };
    assert_eq!(lines, [path("v1beta1"), path("v1alpha1"), path("v1alpha1")]);
}
