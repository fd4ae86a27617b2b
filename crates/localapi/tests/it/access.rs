//! Authentication and authorization of nodes, bootstrap tokens, service accounts and clients without valid credentials.

use crate::hostile::get;
use crate::server::Server;

const TOKEN: &str = "abcdef.0123456789abcdef";

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: NAME}\n";

fn pod(name: &str, node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {node}\n  containers:\n  - name: c\n    image: i\n    envFrom: [{{secretRef: {{name: of-{name}}}}}]\n"
    )
}

fn secret(name: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: of-{name}}}\nstringData: {{key: value}}\n")
}

#[test]
fn node_may_access_its_own_objects_only() {
    let server = Server::start(&["--node=one", "--node=two"]);
    let (admin, node) = (server.admin(), server.kubectl("one.kubeconfig"));
    for (name, on) in [("mine", "one"), ("other", "two")] {
        admin.feed(&["create", "-f", "-"], &secret(name));
        admin.feed(&["create", "-f", "-"], &pod(name, on));
    }
    node.feed(&["create", "-f", "-"], &NODE.replace("NAME", "one"));
    assert!(node.refused(&["create", "-f", "-"], &NODE.replace("NAME", "two")).contains("Forbidden"));
    node.ok(&["label", "node", "one", "a=b"]);
    let own = node.ok(&["get", "pods", "-A", "--field-selector=spec.nodeName=one", "-o", "name"]);
    assert_eq!(own, "pod/mine\n");
    assert!(node.refused(&["get", "pods", "-A"], "").contains("cannot list resource \"pods\""));
    assert_eq!(node.ok(&["get", "secret", "of-mine", "-o", "jsonpath={.data.key}"]), "dmFsdWU=");
    assert!(node.refused(&["get", "secret", "of-other"], "").contains("no relationship found"));
    assert!(node.refused(&["delete", "pod", "other"], "").contains("Forbidden"));
    // A node can only create mirror pods.
    let new = pod("new", "one");
    assert!(node.refused(&["create", "-f", "-"], &new).contains("can only create mirror pods"));
    assert!(node.refused(&["delete", "namespace", "kube-public"], "").contains("Forbidden"));
}

/// A claim, a pod that mounts it on node one, and the attachments of two nodes.
const STORAGE: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
     "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}, "spec": {"nodeName": "one",
     "containers": [{"name": "c", "image": "i"}],
     "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}},
    {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "csi-mine"},
     "spec": {"attacher": "d.example", "nodeName": "one", "source": {"persistentVolumeName": "pv"}}},
    {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "csi-other"},
     "spec": {"attacher": "d.example", "nodeName": "two", "source": {"persistentVolumeName": "pv"}}}]}"#;

#[test]
fn node_writes_the_expansion_of_its_claims_and_gets_its_volume_attachments() {
    let server = Server::start(&["--node=one", "--node=two"]);
    let (admin, node) = (server.admin(), server.kubectl("one.kubeconfig"));
    admin.feed(&["create", "-f", "-"], STORAGE);
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/data/status";
    let claim = |kubectl: &crate::server::Kubectl| -> serde_json::Value {
        serde_json::from_str(&kubectl.ok(&["get", "pvc", "data", "-o", "json"])).expect("a claim")
    };
    let mut expanded = claim(&node);
    expanded["status"]["capacity"] = serde_json::json!({"storage": "2Gi"});
    node.feed(&["replace", "--raw", path, "-f", "-"], &expanded.to_string());
    assert_eq!(claim(&admin)["status"]["capacity"]["storage"], "2Gi");
    let mut lost = claim(&node);
    lost["status"]["phase"] = "Lost".into();
    let error = node.refused(&["replace", "--raw", path, "-f", "-"], &lost.to_string());
    assert!(error.contains("is not allowed to update fields other than status.quantity"), "{error}");
    let other = server.kubectl("two.kubeconfig");
    assert!(other.refused(&["get", "pvc", "data"], "").contains("no relationship found"));

    let attached = ["get", "volumeattachment", "csi-mine", "-o", "jsonpath={.status.attached}"];
    assert_eq!(node.ok(&attached), "false");
    assert!(node.refused(&["get", "volumeattachment", "csi-other"], "").contains("no relationship found"));
    let error = node.refused(&["get", "volumeattachments"], "");
    assert!(error.contains("can only get individual resources of this type"), "{error}");
    let error = node.refused(&["get", "csinode", "two"], "");
    assert!(error.contains("can only access CSINode with the same name as the requesting node"), "{error}");
}

#[test]
fn bootstrap_token_may_only_request_certificates() {
    let server = Server::start(&[&format!("--bootstrap-token={TOKEN}")]);
    let bootstrapper = server.kubectl("bootstrap.kubeconfig");
    bootstrapper.ok(&["get", "certificatesigningrequests"]);
    assert!(bootstrapper.refused(&["get", "nodes"], "").contains("system:bootstrap:abcdef"));
    server.admin().ok(&["delete", "-n", "kube-system", "secret", "bootstrap-token-abcdef"]);
    assert!(bootstrapper.refused(&["get", "certificatesigningrequests"], "").contains("logged in"));
}

#[test]
fn service_account_token_is_valid_until_its_pod_is_deleted() {
    let server = Server::start(&[]);
    let admin = server.admin();
    admin.feed(&["create", "-f", "-"], &pod("p", ""));
    let request = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": ["aud"], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}}"#;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let response = admin.feed(&["create", "--raw", path, "-f", "-"], request);
    let response: serde_json::Value = serde_json::from_str(&response).expect("a TokenRequest");
    let token = response["status"]["token"].as_str().expect("a token");
    let review = |audience: &str| {
        let review = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let response = admin.feed(&["create", "--raw", path, "-f", "-"], &review.to_string());
        serde_json::from_str::<serde_json::Value>(&response).expect("a TokenReview")["status"].clone()
    };
    let status = review("aud");
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:default");
    assert_eq!(status["user"]["extra"]["authentication.kubernetes.io/pod-name"][0], "p");
    assert_eq!(review("another")["authenticated"], false);
    admin.ok(&["delete", "pod", "p"]);
    assert_eq!(review("aud")["authenticated"], false);
}

#[test]
fn requests_with_invalid_tokens_are_unauthorized() {
    let server = Server::start(&["--token=secret:user", "--token=root:admin:system:masters"]);
    let show = |token: &str| server.with_token(token);
    assert!(show("wrong").refused(&["get", "pods"], "").contains("logged in"));
    assert!(show("secret").refused(&["get", "pods"], "").contains("User \"user\" cannot list"));
    show("root").ok(&["get", "pods"]);
    let may = |token: &str| {
        let review = r#"{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}"#;
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let response = show(token).feed(&["create", "--raw", path, "-f", "-"], review);
        let response: serde_json::Value = serde_json::from_str(&response).expect("a review");
        response["status"]["allowed"].clone()
    };
    assert_eq!((may("root"), may("secret")), (true.into(), false.into()));
}

#[tokio::test]
async fn health_needs_no_credentials_and_lists_its_checks() {
    let server = Server::start(&[]);
    let bare = server.client(&server.with_credentials(&serde_json::json!({}))).await;
    let admin = server.client("admin.kubeconfig").await;
    let ask = async |client: &kube::Client, path: &str| {
        let answer = get(client, path).await;
        (answer.code, answer.text().to_owned())
    };
    let passed = |text: &str| (200, text.to_owned());
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(ask(&bare, path).await, passed("ok"));
    }
    for path in ["/readyz/storage", "/version", "/api", "/api/v1/namespaces"] {
        assert_eq!(ask(&bare, path).await.0, 401, "{path}");
    }
    assert_eq!(ask(&bare, "/livez?verbose").await, passed("[+]ping ok\nlivez check passed\n"));
    assert_eq!(ask(&admin, "/readyz/storage").await, passed("ok"));
    assert_eq!(ask(&admin, "/healthz/nothing").await, (404, "404 page not found\n".to_owned()));
    let excluded = "[+]ping ok\n[+]storage excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"etcd\"\nreadyz check passed\n";
    assert_eq!(ask(&admin, "/readyz?verbose&exclude=storage&exclude=etcd").await, passed(excluded));
}

#[tokio::test]
async fn key_of_the_service_account_issuer_is_published_for_service_accounts() {
    let server = Server::start(&["--token=plain:user", "--token=account:a:system:serviceaccounts"]);
    let file = |token: &str| server.with_credentials(&serde_json::json!({"token": token}));
    let (plain, account) = (server.client(&file("plain")).await, server.client(&file("account")).await);
    let paths = ["/.well-known/openid-configuration", "/openid/v1/jwks"];
    for path in paths {
        assert_eq!(get(&plain, path).await.code, 403, "{path}");
    }
    let configuration = get(&account, paths[0]).await.json();
    let uri = format!("https://127.0.0.1:{}{}", server.port(), paths[1]);
    assert_eq!(configuration["jwks_uri"], uri);
    let keys = get(&account, paths[1]).await;
    assert_eq!(keys.headers["content-type"], "application/jwk-set+json");
    assert_eq!(
        (&keys.json()["keys"][0]["kty"], &keys.json()["keys"][0]["alg"]),
        (&"EC".into(), &"ES256".into())
    );
}
