//! Roles and bindings: what users gain and lose with them, what users may write into them, impersonation, and the roles of
//! every cluster.

use serde_json::{Value, json};

use crate::server::{Kubectl, Server};

const JOE: &str = "--token=secret:joe";

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Creates an object at this path, as one request.
fn post(kubectl: &Kubectl, path: &str, object: &Value) -> Value {
    json(&kubectl.feed(&["create", "--raw", path, "-f", "-"], &object.to_string()))
}

/// The status of a review about the user itself.
fn access(kubectl: &Kubectl, verb: &str, resource: &str) -> Value {
    let attributes = json!({"verb": verb, "resource": resource, "namespace": "default"});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}});
    post(kubectl, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)["status"].clone()
}

fn token(admin: &Kubectl, account: &str) -> String {
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
    post(admin, &path, &request)["status"]["token"].as_str().expect("a token").to_owned()
}

#[test]
fn service_account_gains_and_loses_access_with_a_role_binding() {
    let server = Server::start(&[]);
    let admin = server.admin();
    admin.ok(&["create", "serviceaccount", "robot"]);
    let robot = server.with_token(&token(&admin, "robot"));
    let refused = robot.refused(&["get", "pods"], "");
    let user = "system:serviceaccount:default:robot";
    let expected = format!(
        "pods is forbidden: User \"{user}\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    assert!(refused.contains(&expected), "{refused}");

    admin.ok(&["create", "role", "reader", "--verb=get,list", "--resource=pods,pods/log"]);
    admin.ok(&["create", "rolebinding", "robot-reads", "--role=reader", "--serviceaccount=default:robot"]);
    robot.ok(&["get", "pods"]);
    assert!(robot.refused(&["get", "pods", "-A"], "").contains("at the cluster scope"));
    assert!(robot.refused(&["get", "pods", "-n", "kube-system"], "").contains("Forbidden"));
    let path = "/api/v1/namespaces/default/pods/web";
    assert!(robot.refused(&["delete", "--raw", path], "").contains("cannot delete resource \"pods\""));
    let reason = r#"RBAC: allowed by RoleBinding "robot-reads/default" of Role "reader" to ServiceAccount "robot/default""#;
    assert_eq!(access(&robot, "list", "pods"), json!({"allowed": true, "reason": reason}));

    admin.ok(&["delete", "role", "reader"]);
    let refused = robot.refused(&["get", "pods"], "");
    assert!(refused.contains("RBAC: role.rbac.authorization.k8s.io \"reader\" not found"), "{refused}");
    admin.ok(&["create", "role", "reader", "--verb=get,list", "--resource=pods"]);
    robot.ok(&["get", "pods"]);
    admin.ok(&["delete", "rolebinding", "robot-reads"]);
    assert!(robot.refused(&["get", "pods"], "").contains(&expected));
    assert_eq!(access(&robot, "list", "pods")["allowed"], false);
}

#[test]
fn editor_writes_only_permissions_that_it_holds() {
    let server = Server::start(&[JOE]);
    let (admin, joe) = (server.admin(), server.with_token("secret"));
    admin.ok(&["create", "rolebinding", "joe-edits", "--clusterrole=edit", "--user=joe"]);
    let verbs = "--verb=create,update,patch,get";
    admin.ok(&["create", "role", "assigns", verbs, "--resource=roles,rolebindings"]);
    admin.ok(&["create", "rolebinding", "joe-assigns", "--role=assigns", "--user=joe"]);

    joe.ok(&["create", "role", "pods", "--verb=get,delete", "--resource=pods"]);
    let refused = joe.refused(&["create", "role", "all", "--verb=get,create", "--resource=pods,nodes"], "");
    let expected = "roles.rbac.authorization.k8s.io \"all\" is forbidden: user \"joe\" (groups=[\"system:authenticated\"]) \
        is attempting to grant RBAC permissions not currently held:\n\
        {APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"create\"]}";
    assert!(refused.contains(expected), "{refused}");
    let patch = r#"[{"op": "add", "path": "/rules/0/resources/-", "value": "nodes"}]"#;
    let refused = joe.refused(&["patch", "role", "pods", "--type=json", "-p", patch], "");
    assert!(refused.contains("Resources:[\"nodes\"], Verbs:[\"get\" \"delete\"]"), "{refused}");
    // A list of names that is no list must not count as an empty one.
    let patch =
        r#"{"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": 1}]}"#;
    let refused = joe.refused(&["patch", "role", "pods", "--type=merge", "-p", patch], "");
    assert!(refused.contains("cannot be handled as a Role"), "{refused}");

    joe.ok(&["create", "rolebinding", "to-edit", "--clusterrole=edit", "--user=other"]);
    let refused =
        joe.refused(&["create", "rolebinding", "to-admin", "--clusterrole=admin", "--user=joe"], "");
    assert!(
        refused.contains("Resources:[\"rolebindings\"]") && refused.contains("\"deletecollection\""),
        "{refused}"
    );
    let refused = joe.refused(&["create", "rolebinding", "b", "--role=none", "--user=joe"], "");
    assert!(refused.contains("roles.rbac.authorization.k8s.io \"none\" not found"), "{refused}");
    let binding = ["create", "clusterrolebinding", "b", "--clusterrole=edit", "--user=joe"];
    assert!(joe.refused(&binding, "").contains("cannot create resource \"clusterrolebindings\""));

    admin.ok(&["create", "role", "binds", "--verb=bind", "--resource=clusterroles", "--resource-name=admin"]);
    admin.ok(&["create", "rolebinding", "joe-binds", "--role=binds", "--user=joe"]);
    joe.ok(&["create", "rolebinding", "to-admin", "--clusterrole=admin", "--user=joe"]);
    joe.ok(&["delete", "rolebinding", "to-edit"]);
}

#[test]
fn update_that_creates_a_role_needs_the_verb_create() {
    let server = Server::start(&[JOE]);
    let (admin, joe) = (server.admin(), server.with_token("secret"));
    admin.ok(&["create", "role", "updates", "--verb=update", "--resource=roles"]);
    admin.ok(&["create", "rolebinding", "joe-updates", "--role=updates", "--user=joe"]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "new"}, "rules": []});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/new";
    let replace = ["replace", "--raw", path, "-f", "-"];
    let refused = joe.refused(&replace, &role.to_string());
    assert!(refused.contains("cannot create resource \"roles\""), "{refused}");
    admin.ok(&["create", "role", "creates", "--verb=create", "--resource=roles"]);
    admin.ok(&["create", "rolebinding", "joe-creates", "--role=creates", "--user=joe"]);
    joe.feed(&replace, &role.to_string());
}

#[test]
fn rules_of_a_user_are_listed() {
    let server = Server::start(&[JOE, "--node=one"]);
    let (admin, joe) = (server.admin(), server.with_token("secret"));
    admin.ok(&["create", "rolebinding", "joe-views", "--clusterrole=view", "--user=joe"]);
    let listed = joe.ok(&["auth", "can-i", "--list"]);
    for part in [
        "pods/log",
        "selfsubjectrulesreviews.authorization.k8s.io",
        "endpointslices.discovery.k8s.io",
        "[/openapi/*]",
        "[get list watch]",
    ] {
        assert!(listed.contains(part), "{part} is missing in {listed}");
    }
    assert!(!listed.contains("secrets"), "{listed}");
    assert!(!joe.ok(&["auth", "can-i", "--list", "-n", "kube-system"]).contains("pods/log"));
    assert!(admin.ok(&["auth", "can-i", "--list"]).contains("*.*"));
    assert_eq!(joe.ok(&["auth", "can-i", "list", "pods"]), "yes\n");
    let refused = joe.run(&["auth", "can-i", "delete", "pods"], "");
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "no\n");

    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let review = |namespace: &str| json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}});
    let status = post(&server.kubectl("one.kubeconfig"), path, &review("default"))["status"].clone();
    assert_eq!(status["incomplete"], true);
    assert_eq!(status["evaluationError"], "node authorizer does not support user rule resolution");
    let refused = joe.refused(&["create", "--raw", path, "-f", "-"], &review("").to_string());
    assert!(refused.contains("no namespace on request"), "{refused}");
}

#[test]
fn users_are_impersonated_with_the_permission_for_each_part() {
    let server = Server::start(&[JOE]);
    let (admin, joe) = (server.admin(), server.with_token("secret"));
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let who = |kubectl: &Kubectl, acting: &[&str]| {
        let arguments = [acting, &["create", "--raw", path, "-f", "-"]].concat();
        json(&kubectl.feed(&arguments, &review))["status"]["userInfo"].clone()
    };
    let expected = json!({"username": "ann", "groups": ["devs", "system:authenticated"]});
    assert_eq!(who(&admin, &["--as=ann", "--as-group=devs"]), expected);
    let account = who(&admin, &["--as=system:serviceaccount:default:default"]);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(account["groups"], json!(groups));
    assert!(admin.refused(&["--as=ann", "get", "pods"], "").contains("User \"ann\" cannot list"));
    admin.ok(&["--as=ann", "--as-group=system:masters", "get", "pods"]);

    let refused = joe.refused(&["--as=ann", "get", "pods"], "");
    let expected = "users \"ann\" is forbidden: User \"joe\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
    assert!(refused.contains(expected), "{refused}");
    let role = ["--verb=impersonate", "--resource=users", "--resource-name=ann"];
    admin.ok(&[&["create", "clusterrole", "acts"], &role[..]].concat());
    admin.ok(&["create", "clusterrolebinding", "joe-acts", "--clusterrole=acts", "--user=joe"]);
    assert_eq!(who(&joe, &["--as=ann"])["username"], "ann");
    assert!(joe.refused(&["--as=bob", "get", "pods"], "").contains("users \"bob\" is forbidden"));
    let refused = joe.refused(&["--as=ann", "--as-group=system:masters", "get", "pods"], "");
    assert!(refused.contains("groups \"system:masters\" is forbidden"), "{refused}");
    // The permissions are those of the other user.
    admin.ok(&["create", "rolebinding", "ann-views", "--clusterrole=view", "--user=ann"]);
    joe.ok(&["--as=ann", "get", "pods"]);
    assert!(joe.refused(&["get", "pods"], "").contains("User \"joe\" cannot list"));
    assert_eq!(admin.ok(&["auth", "can-i", "get", "pods", "--as=ann"]), "yes\n");
}

#[tokio::test]
async fn group_without_a_user_is_not_impersonated() {
    let server = Server::start(&[]);
    let client = server.client("admin.kubeconfig").await;
    let send = async |name: &str, value: &str| {
        let request = http::Request::get("/api/v1/pods").header(name, value);
        crate::hostile::send(&client, request, String::new()).await
    };
    let answer = send("Impersonate-Group", "devs").await;
    assert_eq!(answer.code, 400);
    let expected = "requested [{Group  devs    }] without impersonating a user";
    assert_eq!(answer.json()["message"], expected);
    let answer = send("Impersonate-User", "ann").await;
    assert_eq!((answer.code, answer.json()["reason"].as_str()), (403, Some("Forbidden")));
}

#[test]
fn default_roles_are_repaired_at_the_next_start() {
    let mut server = Server::start(&[JOE]);
    let admin = server.admin();
    let rules = |role: &str| json(&admin.ok(&["get", "clusterrole", role, "-o", "json"]))["rules"].clone();
    let names = || admin.ok(&["get", "clusterroles,clusterrolebindings", "-o", "name"]);
    let (before, of_view, of_discovery) = (names(), rules("view"), rules("system:discovery"));
    for expected in ["cluster-admin", "admin", "edit", "view", "system:node-proxier"] {
        assert!(before.contains(&format!("clusterrole.rbac.authorization.k8s.io/{expected}\n")), "{before}");
    }
    let annotated = admin.ok(&["get", "clusterrole", "edit", "-o", "jsonpath={.metadata.annotations}"]);
    assert_eq!(annotated, r#"{"rbac.authorization.kubernetes.io/autoupdate":"true"}"#);

    admin.ok(&["delete", "clusterrole", "view", "system:aggregate-to-view"]);
    admin.ok(&["delete", "clusterrolebinding", "system:discovery"]);
    // The role is bound to users, who hold nothing any more.
    let patch = r#"{"rules": [{"verbs": ["get"], "nonResourceURLs": ["/own"]}]}"#;
    admin.ok(&["patch", "clusterrole", "system:discovery", "--type=merge", "-p", patch]);
    let own = "rbac.authorization.kubernetes.io/autoupdate=false";
    admin.ok(&["annotate", "--overwrite", "clusterrole", "system:monitoring", own]);
    admin.ok(&["patch", "clusterrole", "system:monitoring", "--type=merge", "-p", patch]);
    assert!(!rules("admin").to_string().contains("pods/log"));

    server.stop();
    server.restart(&[]);
    assert_eq!(names(), before);
    assert_eq!(rules("view"), of_view);
    assert!(rules("admin").to_string().contains("pods/log"));
    let repaired = rules("system:discovery");
    assert_eq!(repaired[0]["nonResourceURLs"], json!(["/own"]));
    let urls = of_discovery[0]["nonResourceURLs"].as_array().expect("paths");
    assert!(urls.iter().all(|url| repaired.to_string().contains(&url.to_string())), "{repaired}");
    assert_eq!(rules("system:monitoring"), json!([{"verbs": ["get"], "nonResourceURLs": ["/own"]}]));
    // What is complete is not written again.
    let version = admin.ok(&["get", "clusterrole", "view", "-o", "jsonpath={.metadata.resourceVersion}"]);
    server.stop();
    server.restart(&[]);
    let again = admin.ok(&["get", "clusterrole", "view", "-o", "jsonpath={.metadata.resourceVersion}"]);
    assert_eq!(again, version);
}

#[test]
fn aggregated_roles_follow_the_roles_with_their_label() {
    let server = Server::start(&[JOE]);
    let (admin, joe) = (server.admin(), server.with_token("secret"));
    admin.ok(&["create", "clusterrolebinding", "joe-views", "--clusterrole=admin", "--user=joe"]);
    assert!(joe.refused(&["get", "nodes"], "").contains("cannot list resource \"nodes\""));
    admin.ok(&["create", "clusterrole", "nodes", "--verb=get,list", "--resource=nodes"]);
    assert!(joe.refused(&["get", "nodes"], "").contains("Forbidden"));
    // From view to edit to admin.
    admin.ok(&["label", "clusterrole", "nodes", "rbac.authorization.k8s.io/aggregate-to-view=true"]);
    joe.ok(&["get", "nodes"]);
    admin.ok(&["delete", "clusterrole", "nodes"]);
    assert!(joe.refused(&["get", "nodes"], "").contains("Forbidden"));
    let aggregated = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]},
    });
    admin.feed(&["create", "-f", "-"], &aggregated.to_string());
    let rules = admin.ok(&["get", "clusterrole", "all", "-o", "jsonpath={.rules[*].verbs}"]);
    assert!(rules.contains("impersonate"), "{rules}");
    admin.ok(&["create", "clusterrole", "writes", "--verb=create,update", "--resource=clusterroles"]);
    admin.ok(&["create", "clusterrolebinding", "joe-writes", "--clusterrole=writes", "--user=joe"]);
    let own = aggregated.to_string().replace("\"all\"", "\"own\"");
    let refused = joe.refused(&["create", "-f", "-"], &own);
    assert!(refused.contains("must have cluster-admin privileges to use the aggregationRule"), "{refused}");
}

#[test]
fn roles_and_bindings_are_created_shown_and_reconciled() {
    let server = Server::start(&[]);
    let admin = server.admin();
    admin.ok(&["create", "clusterrole", "probes", "--verb=get", "--non-resource-url=/healthz/*"]);
    admin.ok(&["create", "role", "one", "--verb=get", "--resource=pods", "--resource-name=web"]);
    let binding = ["create", "rolebinding", "b", "--role=one", "--user=ann", "--group=devs"];
    admin.ok(&[&binding[..], &["--serviceaccount=default:robot"]].concat());
    let wide = ["--clusterrole=probes", "--user=ann", "--user=bob"];
    admin.ok(&[&["create", "clusterrolebinding", "c"], &wide[..]].concat());
    let words = |arguments: &[&str]| -> Vec<String> {
        admin.ok(arguments).split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(words(&["get", "roles"])[..4], ["NAME", "CREATED", "AT", "one"]);
    let shown = words(&["get", "rolebindings", "-o", "wide"]);
    assert_eq!(shown[..6], ["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"]);
    assert_eq!(
        (&shown[7], &shown[9..]),
        (&"Role/one".to_owned(), &["ann", "devs", "default/robot"].map(str::to_owned)[..])
    );
    assert!(admin.ok(&["get", "clusterrolebinding", "c", "-o", "wide"]).contains("ann, bob"));
    assert!(admin.ok(&["describe", "role", "one"]).contains("[web]"));
    let subjects = admin.ok(&["get", "rolebinding", "b", "-o", "jsonpath={.subjects[*].apiGroup}"]);
    assert_eq!(subjects, "rbac.authorization.k8s.io rbac.authorization.k8s.io");

    let patch = r#"{"roleRef": {"name": "other"}}"#;
    let refused = admin.refused(&["patch", "rolebinding", "b", "-p", patch], "");
    assert!(refused.contains("cannot change roleRef"), "{refused}");
    let role = |verbs: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: one, namespace: default}}\nrules:\n- {{apiGroups: [''], resources: [pods], verbs: [{verbs}]}}\n"
        )
    };
    admin.feed(&["apply", "-f", "-"], &role("list"));
    assert_eq!(admin.ok(&["get", "role", "one", "-o", "jsonpath={.rules[*].verbs}"]), r#"["list"]"#);
    let reconciled = admin.feed(&["auth", "reconcile", "-f", "-"], &role("list, watch"));
    assert!(reconciled.contains("role.rbac.authorization.k8s.io/one reconciled"), "{reconciled}");
    let verbs = admin.ok(&["get", "role", "one", "-o", "jsonpath={.rules[*].verbs}"]);
    assert!(verbs.contains("list") && verbs.contains("watch"), "{verbs}");
    let refused = admin.refused(&["create", "-f", "-"], &role("").replace("name: one", "name: 'system:x'"));
    assert!(
        refused.contains("rules[0].verbs: Required value: verbs must contain at least one value"),
        "{refused}"
    );
}

#[test]
fn local_review_is_about_its_own_namespace() {
    let server = Server::start(&[JOE]);
    let (admin, joe) = (server.admin(), server.with_token("secret"));
    admin.ok(&["create", "rolebinding", "joe-admin", "--clusterrole=admin", "--user=joe"]);
    let review = |namespace: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "metadata": {"namespace": "default"},
            "spec": {"user": "joe", "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": namespace}}})
    };
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let status = post(&joe, path, &review("default"))["status"].clone();
    let reason = r#"RBAC: allowed by RoleBinding "joe-admin/default" of ClusterRole "admin" to User "joe""#;
    assert_eq!(status, json!({"allowed": true, "reason": reason}));
    let refused = joe.refused(&["create", "--raw", path, "-f", "-"], &review("kube-system").to_string());
    assert!(refused.contains("must match metadata.namespace"), "{refused}");
    let anywhere = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let review = review("default").to_string().replace("LocalSubject", "Subject");
    assert!(joe.refused(&["create", "--raw", anywhere, "-f", "-"], &review).contains("Forbidden"));
}
