//! The tables of `rbac_test.go` (TestAuthorizer, TestRuleMatches), `rule_test.go` (TestAppliesTo, TestDefaultRuleResolver)
//! and `policy_comparator_test.go` of the real server, and the objects of every cluster.

use serde_json::{Value, json};

use super::reconciliation::{self, Change};
use super::rule::{Permission, Rule, compact, describe};
use super::*;
use crate::auth::escalation::{self, Refusal};
use crate::encoding;
use crate::store::{NotStored, Store, Write};

fn put(store: &Store, resource: &'static str, mut object: Value) {
    encoding::complete(resource, &mut object);
    let key = Key::new(resource, object::namespace(&object), object::name(&object));
    store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
}

/// `verbs groups resources paths`, lists with commas, `-` for none and `core` for the core group.
fn rule(line: &str) -> Value {
    let lists: Vec<Vec<&str>> = line
        .split(' ')
        .map(|list| match list {
            "-" => Vec::new(),
            "core" => vec![""],
            list => list.split(',').collect(),
        })
        .collect();
    json!({"verbs": lists[0], "apiGroups": lists[1], "resources": lists[2], "nonResourceURLs": lists[3]})
}

fn role(store: &Store, namespace: &str, name: &str, rules: &[&str]) {
    let rules: Vec<Value> = rules.iter().map(|line| rule(line)).collect();
    let (resource, metadata) = if namespace.is_empty() {
        ("clusterroles", json!({"name": name}))
    } else {
        ("roles", json!({"name": name, "namespace": namespace}))
    };
    put(store, resource, json!({"metadata": metadata, "rules": rules}));
}

/// Binds `Kind:name` subjects, in a namespace or in all, to `Kind/name` of a role.
fn bind(store: &Store, namespace: &str, role: &str, subjects: &[&str]) {
    let subjects: Vec<Value> = subjects
        .iter()
        .map(|subject| {
            let (kind, name) = subject.split_once(':').unwrap();
            json!({"kind": kind, "name": name})
        })
        .collect();
    let (kind, name) = role.split_once('/').unwrap();
    let mut binding = json!({
        "metadata": {"name": format!("to-{name}")},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
        "subjects": subjects,
    });
    let mut resource = "clusterrolebindings";
    if !namespace.is_empty() {
        resource = "rolebindings";
        binding["metadata"]["namespace"] = json!(namespace);
    }
    put(store, resource, binding);
}

fn user(name: &str, groups: &str) -> User {
    User::new(name, groups.split(',').filter(|group| !group.is_empty()).map(str::to_owned))
}

/// `verb resource/subresource namespace`, with `-` for no namespace, or `verb /path`. The group is that of the core.
fn attributes(line: &str) -> Attributes {
    let parts: Vec<&str> = line.split(' ').collect();
    if parts[1].starts_with('/') {
        return Attributes { verb: parts[0].to_owned(), path: parts[1].to_owned(), ..Attributes::default() };
    }
    let (resource, subresource) = parts[1].split_once('/').unwrap_or((parts[1], ""));
    Attributes {
        verb: parts[0].to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: parts[2].replace('-', ""),
        ..Attributes::default()
    }
}

fn may(store: &Store, user: &User, line: &str) -> bool {
    store.read(|objects| check(user, &attributes(line), objects).is_ok())
}

#[test]
fn role_binding_allows_a_cluster_role_in_its_namespace_only() {
    let store = Store::new(10);
    role(&store, "", "admin", &["* * * *"]);
    bind(&store, "ns1", "ClusterRole/admin", &["User:admin", "Group:admins"]);
    for (name, groups, line) in [
        ("admin", "", "get Pods ns1"),
        ("admin", "", "watch Pods ns1"),
        ("admin", "group1", "watch Foobar ns1"),
        ("joe", "admins", "watch Foobar ns1"),
        ("joe", "group1,admins", "watch Foobar ns1"),
    ] {
        assert!(may(&store, &user(name, groups), line), "{name} {groups} {line}");
    }
    for (groups, line) in [
        ("", "GET Pods ns2"),
        ("", "GET Nodes -"),
        ("admins", "GET Pods ns2"),
        ("admins", "GET Nodes -"),
        ("admins", "get /apis"),
    ] {
        assert!(!may(&store, &user("admin", groups), line), "{groups} {line}");
    }
    assert!(!may(&store, &user("joe", ""), "get Pods ns1"));
}

#[test]
fn paths_are_allowed_exactly_or_by_prefix() {
    let store = Store::new(10);
    role(&store, "", "getter", &["get - - /apis"]);
    role(&store, "", "all-verbs", &["* - - /apis"]);
    role(&store, "", "prefix", &["get - - /apis/*"]);
    bind(&store, "", "ClusterRole/getter", &["User:foo", "Group:bar"]);
    bind(&store, "", "ClusterRole/all-verbs", &["User:admin", "Group:admin"]);
    bind(&store, "", "ClusterRole/prefix", &["User:prefixed", "Group:prefixed"]);
    for (name, group, line, allowed) in [
        ("foo", "bar", "get /apis", true),
        ("admin", "admin", "get /apis", true),
        ("admin", "admin", "watch /apis", true),
        ("prefixed", "prefixed", "get /apis/v1", true),
        ("prefixed", "prefixed", "get /apis/v1/foobar", true),
        ("foo", "bar", "watch /apis", false),
        ("foo", "bar", "get /api/v1", false),
        ("admin", "admin", "get /api/v1", false),
        ("prefixed", "prefixed", "get /api/v1", false),
        ("prefixed", "prefixed", "get /apis", false),
    ] {
        assert_eq!(may(&store, &user(name, ""), line), allowed, "{name} {line}");
        assert_eq!(may(&store, &user("", group), line), allowed, "group {group} {line}");
    }
}

#[test]
fn subresources_are_not_included_in_their_resource() {
    for (resource, line, allowed) in [
        ("pods", "get pods ns1", true),
        ("pods", "get pods/status ns1", false),
        ("pods/status", "get pods/status ns1", true),
        ("pods/status", "get pods ns1", false),
        ("*/status", "get pods/status ns1", true),
        ("*/status", "get pods/log ns1", false),
        ("*/status", "get pods ns1", false),
        ("*", "get pods/status ns1", true),
    ] {
        let store = Store::new(10);
        role(&store, "", "r", &[&format!("* * {resource} *")]);
        bind(&store, "ns1", "ClusterRole/r", &["User:admin"]);
        assert_eq!(may(&store, &user("admin", ""), line), allowed, "{resource}: {line}");
    }
}

#[test]
fn rule_matches_verbs_groups_resources_and_names() {
    let rule_allows = |line: &str, request: &str| {
        let parts: Vec<&str> = request.split(' ').collect();
        let attributes = Attributes {
            group: parts[1].to_owned(),
            name: (*parts.get(3).unwrap_or(&"")).to_owned(),
            ..attributes(&format!("{} {} -", parts[0], parts[2]))
        };
        Rule(&rule(line)).allows(&attributes)
    };
    for (line, allowed, denied) in [
        ("* g1 r1 -", vec!["v1 g1 r1", "v2 g1 r1"], vec!["v1 g2 r1", "v1 g1 r2", "v2 g2 r2"]),
        ("v1 * r1 -", vec!["v1 g1 r1", "v1 g2 r1"], vec!["v1 g1 r2", "v2 g1 r1"]),
        ("v1 g1 * -", vec!["v1 g1 r1", "v1 g1 r2"], vec!["v1 g2 r1", "v2 g1 r1"]),
        ("v1,v2 g1,g2 r1,r2 -", vec!["v1 g1 r1", "v2 g2 r2", "v1 g2 r1"], vec!["v3 g1 r1"]),
        ("* * r1/s1 -", vec!["v1 g1 r1/s1", "v2 g1 r1/s1"], vec!["v1 g2 r1/s2", "v1 g1 r2/s1"]),
    ] {
        for request in allowed {
            assert!(rule_allows(line, request), "{line}: {request}");
        }
        for request in denied {
            assert!(!rule_allows(line, request), "{line}: {request}");
        }
    }
    let mut named = rule("get core pods -");
    named["resourceNames"] = json!(["a", "b"]);
    let of = |name: &str| {
        let attributes = Attributes { name: name.to_owned(), ..attributes("get pods ns") };
        Rule(&named).allows(&attributes)
    };
    assert_eq!(["a", "b", "c", ""].map(of), [true, true, false, false]);
}

#[test]
fn rule_matches_paths() {
    for (line, allowed, denied) in [
        ("v1 - - *", vec!["v1 /foo", "v1 /foo/bar", "v1 /foo/bar/one"], vec!["v2 /foo", "v2 /foo/bar"]),
        ("v1 - - /foo/*", vec!["v1 /foo/bar", "v1 /foo/baz/one"], vec!["v1 /foo", "v1 /notfoo/bar"]),
        ("* - - /foo,/foo/bar/one", vec!["v1 /foo", "v2 /foo/bar/one"], vec!["v1 /foo/bar", "v2 /foo/baz"]),
    ] {
        let rule = rule(line);
        for request in allowed {
            assert!(Rule(&rule).allows(&attributes(request)), "{line}: {request}");
        }
        for request in denied {
            assert!(!Rule(&rule).allows(&attributes(request)), "{line}: {request}");
        }
    }
}

#[test]
fn subjects_are_users_groups_and_service_accounts() {
    let account = "system:serviceaccount:kube-system:default";
    for (subjects, user, namespace, applies) in [
        (json!([{"kind": "User", "name": "foobar"}]), user("foobar", ""), "", true),
        (json!([{"kind": "User", "name": "barfoo"}]), user("zimzam", ""), "", false),
        (json!([{"kind": "Group", "name": "foobar"}]), user("zimzam", "foobar"), "", true),
        (json!([{"kind": "Group", "name": "foobar"}]), user("zimzam", "foobar"), "namespace1", true),
        (
            json!([{"kind": "ServiceAccount", "namespace": "kube-system", "name": "default"}]),
            user(account, ""),
            "default",
            true,
        ),
        (json!([{"kind": "ServiceAccount", "name": "default"}]), user(account, ""), "kube-system", true),
        (json!([{"kind": "ServiceAccount", "name": "default"}]), user(account, ""), "default", false),
        (json!([{"kind": "ServiceAccount", "name": "default"}]), user(account, ""), "", false),
        (json!([{"kind": "User", "name": "*"}]), user("foobar", ""), "default", false),
        (json!([{"kind": "Robot", "name": "foobar"}]), user("foobar", ""), "", false),
        (
            json!([{"kind": "Group", "name": "system:authenticated"}]),
            user("foobar", "system:authenticated"),
            "default",
            true,
        ),
        (json!([{"kind": "Group", "name": "system:unauthenticated"}]), User::anonymous(), "default", true),
    ] {
        let found = items(&subjects, "").iter().any(|subject| is_subject(&user, subject, namespace));
        assert_eq!(found, applies, "{subjects} {user:?} {namespace}");
    }
}

/// The store of TestDefaultRuleResolver.
fn resolver() -> Store {
    let store = Store::new(10);
    role(&store, "namespace1", "readthings", &["GET,WATCH v1 pods -", "GET,WATCH v1 services -"]);
    role(&store, "", "cluster-admin", &["* * * -", "* - - *"]);
    bind(&store, "namespace1", "Role/readthings", &["User:foobar", "Group:group1"]);
    bind(&store, "", "ClusterRole/cluster-admin", &["User:admin", "Group:admin"]);
    store
}

#[test]
fn review_lists_the_rules_of_the_user_in_a_namespace() {
    let rules = |user: &User, namespace: &str| {
        let status = resolver().read(|objects| review(user, namespace, objects));
        assert_eq!(status["incomplete"], false);
        let of = |list: &str| items(&status, list).iter().map(describe).collect::<Vec<_>>().join(" ");
        of("/resourceRules") + &of("/nonResourceRules")
    };
    let expected = r#"{APIGroups:["v1"], Resources:["pods"], Verbs:["GET" "WATCH"]} {APIGroups:["v1"], Resources:["services"], Verbs:["GET" "WATCH"]}"#;
    assert_eq!(rules(&user("foobar", ""), "namespace1"), expected);
    assert_eq!(rules(&user("foobar", ""), "namespace2"), "");
    assert_eq!(rules(&user("", ""), "namespace1"), "");
    let all = r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}{NonResourceURLs:["*"], Verbs:["*"]}"#;
    assert_eq!(rules(&user("foobar", "admin"), ""), all);
}

#[test]
fn reasons_name_the_binding_and_missing_roles() {
    let store = resolver();
    let decide = |user: &User, line: &str| store.read(|objects| check(user, &attributes(line), objects));
    let reason = "RBAC: allowed by ClusterRoleBinding \"to-cluster-admin\" of ClusterRole \"cluster-admin\" to Group \"admin\"";
    assert_eq!(decide(&user("joe", "admin"), "get pods namespace1"), Ok(reason.to_owned()));
    assert_eq!(decide(&user("joe", ""), "get pods namespace1"), Err(String::new()));
    role(&store, "a", "reader", &["get core pods -"]);
    bind(&store, "a", "Role/reader", &["ServiceAccount:robot"]);
    let robot = user("system:serviceaccount:a:robot", "");
    let reason =
        "RBAC: allowed by RoleBinding \"to-reader/a\" of Role \"reader\" to ServiceAccount \"robot/a\"";
    assert_eq!(decide(&robot, "get pods a"), Ok(reason.to_owned()));
    bind(&store, "a", "Role/x", &["ServiceAccount:robot"]);
    let missing = "role.rbac.authorization.k8s.io \"x\" not found";
    assert_eq!(decide(&robot, "delete pods a"), Err(format!("RBAC: {missing}")));
    assert!(decide(&robot, "get pods a").is_ok());
    bind(&store, "", "ClusterRole/y", &["User:system:serviceaccount:a:robot"]);
    let both = format!("RBAC: [clusterrole.rbac.authorization.k8s.io \"y\" not found, {missing}]");
    assert_eq!(decide(&robot, "delete pods a"), Err(both));
}

#[test]
fn walk_over_too_many_rules_ends_with_a_denial() {
    let store = Store::new(10);
    let verbs: Vec<String> = (0..MAX_STEPS).map(|number| number.to_string()).collect();
    let rules = json!([{"verbs": verbs}, {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    put(&store, "clusterroles", json!({"metadata": {"name": "large"}, "rules": rules}));
    bind(&store, "", "ClusterRole/large", &["User:joe"]);
    let decided = store.read(|objects| check(&user("joe", ""), &attributes("get pods a"), objects));
    assert!(decided.unwrap_err().contains("have more than 1000000 entries"));
}

/// The uncovered permissions, as rules.
fn uncovered(owner: &[&str], wanted: &[&str]) -> String {
    let owner: Vec<Value> = owner.iter().map(|line| rule(line)).collect();
    let wanted: Vec<Value> = wanted.iter().map(|line| rule(line)).collect();
    let permissions: Vec<Permission<'_>> = wanted.iter().flat_map(|rule| Rule(rule).permissions()).collect();
    let count: usize = wanted.iter().map(|rule| Rule(rule).permission_count()).sum();
    assert_eq!(permissions.len(), count);
    let missing: Vec<Permission<'_>> = permissions
        .into_iter()
        .filter(|permission| !owner.iter().any(|rule| Rule(rule).covers(permission)))
        .collect();
    compact(&missing).iter().map(describe).collect::<Vec<_>>().join(" ")
}

#[test]
fn rules_cover_the_permissions_that_they_include() {
    let several = [
        "delete g1 deployments -",
        "delete g1 builds -",
        "update g1 builds,deployments -",
        "delete g2 deployments -",
        "delete g2 builds -",
        "update g2 builds,deployments -",
    ];
    let one = ["delete,update g1,g2 builds,deployments -"];
    for (owner, wanted) in [
        (&["get v1 builds -"][..], &["get v1 builds -"][..]),
        (&several, &one),
        (&one, &several),
        (&["get * roles -"], &["get g1,g2 roles -"]),
        (&["get * roles -"], &["get * roles -"]),
        (&["* v1 roles -"], &["watch,list v1 roles -"]),
        (&["* v1 roles -"], &["* v1 roles -"]),
        (&["get v1 * -"], &["get v1 resourcegroup:deployments -"]),
        (&["get v1 * -"], &["get v1 * -"]),
        (&["get v1 */scale -"], &["get v1 a/scale,*/scale -"]),
        (&["* - - /apis"], &["* - - /apis"]),
        (&["* - - *"], &["* - - /apis,/apis/v1,/"]),
        (&["* - - /apis/*"], &["get - - /apis/v1/foo,/apis/v1"]),
        (&["get v1 builds /apis"], &["get v1 builds /apis"]),
    ] {
        assert_eq!(uncovered(owner, wanted), "", "{owner:?} covers {wanted:?}");
    }
}

#[test]
fn permissions_that_rules_do_not_cover_are_listed() {
    for (owner, wanted, missing) in [
        (
            &["delete,update v1 builds,deployments -", "delete v1 pods -"][..],
            "delete,update v1 builds,deployments,pods -",
            r#"{APIGroups:["v1"], Resources:["pods"], Verbs:["update"]}"#,
        ),
        (
            &["get dummy-group roles -"],
            "get * roles -",
            r#"{APIGroups:["*"], Resources:["roles"], Verbs:["get"]}"#,
        ),
        (
            &["get,list,watch,create,update,delete,exec v1 roles -"],
            "* v1 roles -",
            r#"{APIGroups:["v1"], Resources:["roles"], Verbs:["*"]}"#,
        ),
        (
            &["get v1 roles,resourcegroup:deployments -"],
            "get v1 * -",
            r#"{APIGroups:["v1"], Resources:["*"], Verbs:["get"]}"#,
        ),
        (&["* - - /apis/*"], "get - - /apis,/apis/v1", r#"{NonResourceURLs:["/apis"], Verbs:["get"]}"#),
        (&["get v1 builds -"], "get v1 builds /apis", r#"{NonResourceURLs:["/apis"], Verbs:["get"]}"#),
        (&[], "get,list v1 pods -", r#"{APIGroups:["v1"], Resources:["pods"], Verbs:["get" "list"]}"#),
    ] {
        assert_eq!(uncovered(owner, &[wanted]), missing, "{owner:?} and {wanted}");
    }
}

#[test]
fn rule_of_all_names_covers_single_names_and_not_the_other_way_round() {
    let (all, mut named) = (rule("get v1 pods -"), rule("get v1 pods -"));
    named["resourceNames"] = json!(["foo", "bar"]);
    let covers = |owner: &Value, wanted: &Value| {
        Rule(wanted).permissions().iter().all(|permission| Rule(owner).covers(permission))
    };
    assert!(covers(&all, &named) && covers(&named, &named) && !covers(&named, &all));
}

#[test]
fn paths_of_rules_cover_paths() {
    for (owner, requested, expected) in [
        ("*", "/api", true),
        ("/api", "/api", true),
        ("/apis", "/api", false),
        ("/api/v1", "/api", false),
        ("/api/v1", "/api/v1", true),
        ("/api/*", "/api/v1", true),
        ("/api/*", "/api", false),
        ("/api/*/*", "/api/v1", false),
        ("/*/v1/*", "/api/v1", false),
    ] {
        let rule = json!({"verbs": ["get"], "nonResourceURLs": [owner]});
        let permission = Permission::Path { path: requested, verb: "get" };
        assert_eq!(Rule(&rule).covers(&permission), expected, "{owner} {requested}");
    }
}

/// Whether the user may create the role or binding, with the message of the refusal.
fn created(store: &Store, user: &User, resource: &str, object: &Value) -> Result<(), String> {
    let checked = store.read(|objects| escalation::check(user, resource, object, None, objects));
    checked.map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => why,
        Refusal::NoRole(plural, name) => format!("no {plural} {name}"),
    })
}

#[test]
fn roles_need_the_permissions_that_they_contain() {
    let store = resolver();
    let joe = user("joe", "group1,system:authenticated");
    let of =
        |line: &str| json!({"metadata": {"name": "r", "namespace": "namespace1"}, "rules": [rule(line)]});
    assert_eq!(created(&store, &joe, "roles", &of("GET v1 pods,services -")), Ok(()));
    let message = "user \"joe\" (groups=[\"group1\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
        {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n\
        {APIGroups:[\"v1\"], Resources:[\"pods\"], Verbs:[\"PUT\"]}";
    let mut wanted = of("get,list core secrets -");
    wanted["rules"].as_array_mut().unwrap().extend([rule("GET,PUT v1 pods -")]);
    assert_eq!(created(&store, &joe, "roles", &wanted), Err(message.to_owned()));
    assert_eq!(created(&store, &user("x", "system:masters"), "roles", &wanted), Ok(()));
    role(&store, "namespace1", "escalator", &[&format!("escalate {GROUP} roles -")]);
    bind(&store, "namespace1", "Role/escalator", &["User:joe"]);
    assert_eq!(created(&store, &joe, "roles", &wanted), Ok(()));
    // An update that only prepares the deletion needs no permission.
    let mut finalized = wanted.clone();
    finalized["metadata"]["finalizers"] = json!(["a/b"]);
    let other = user("other", "");
    let update = |new: &Value| {
        store.read(|objects| escalation::check(&other, "roles", new, Some(&wanted), objects).is_ok())
    };
    assert!(update(&finalized));
    finalized["rules"] = json!([rule("get core pods -")]);
    assert!(!update(&finalized));
}

#[test]
fn bindings_need_the_permissions_of_their_role_or_the_verb_bind() {
    let store = resolver();
    let joe = user("joe", "group1");
    let to = |kind: &str, name: &str| json!({"metadata": {"name": "b", "namespace": "namespace1"}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name}});
    assert_eq!(created(&store, &joe, "rolebindings", &to("Role", "readthings")), Ok(()));
    assert_eq!(created(&store, &joe, "rolebindings", &to("Role", "none")), Err("no roles none".to_owned()));
    let refused = created(&store, &joe, "rolebindings", &to("ClusterRole", "cluster-admin")).unwrap_err();
    assert!(
        refused.ends_with(
            "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
        ),
        "{refused}"
    );
    assert!(
        created(&store, &user("joe", "admin"), "rolebindings", &to("ClusterRole", "cluster-admin")).is_ok()
    );
    role(&store, "namespace1", "binder", &[&format!("bind {GROUP} clusterroles -")]);
    bind(&store, "namespace1", "Role/binder", &["User:joe"]);
    assert_eq!(created(&store, &joe, "rolebindings", &to("ClusterRole", "cluster-admin")), Ok(()));
    let everywhere = json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"}});
    assert!(created(&store, &joe, "clusterrolebindings", &everywhere).is_err());
}

#[test]
fn aggregation_needs_all_permissions() {
    let store = resolver();
    let role = json!({"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    let refused = created(&store, &user("joe", "group1"), "clusterroles", &role).unwrap_err();
    assert_eq!(refused, "must have cluster-admin privileges to use the aggregationRule");
    assert_eq!(created(&store, &user("joe", "admin"), "clusterroles", &role), Ok(()));
}

#[test]
fn role_with_too_many_combinations_is_refused() {
    let many: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    let rule = json!({"verbs": many, "apiGroups": many, "resources": many, "resourceNames": ["a"]});
    let role = json!({"metadata": {"name": "r"}, "rules": [rule]});
    let refused = created(&resolver(), &user("joe", ""), "clusterroles", &role).unwrap_err();
    assert!(refused.contains("consist of 8000000 permissions"), "{refused}");
    assert_eq!(created(&resolver(), &user("x", "system:masters"), "clusterroles", &role), Ok(()));
}

#[test]
fn aggregated_role_collects_rules_by_labels_each_once() {
    let store = Store::new(10);
    let part = |name: &str, labels: Value, rules: &[&str]| {
        let rules: Vec<Value> = rules.iter().map(|line| rule(line)).collect();
        put(&store, "clusterroles", json!({"metadata": {"name": name, "labels": labels}, "rules": rules}));
    };
    part("b", json!({"to": "x"}), &["get core pods -", "get core nodes -"]);
    part("a", json!({"to": "x", "tier": "one"}), &["get core nodes -", "list core pods -"]);
    part("c", json!({"to": "y"}), &["get core secrets -"]);
    part("d", json!({}), &["get core events -"]);
    let collected = |selectors: Value| {
        let role = json!({"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": selectors}});
        let other =
            json!({"metadata": {"name": "z"}, "aggregationRule": {"clusterRoleSelectors": selectors}});
        let rules = |role: &Value| {
            let rules = store.read(|objects| aggregation::rules(role, objects)).unwrap();
            let resources = rules.iter().map(|rule| format!("{} {}", rule["verbs"][0], rule["resources"][0]));
            resources.collect::<Vec<_>>().join(", ").replace('"', "")
        };
        [rules(&other), rules(&role)]
    };
    let labels = collected(json!([{"matchLabels": {"to": "x"}}]));
    assert_eq!(labels, ["get nodes, list pods, get pods", "get pods, get nodes"]);
    let expressions = [
        json!({"key": "to", "operator": "In", "values": ["y", "z"]}),
        json!({"key": "tier", "operator": "DoesNotExist"}),
    ];
    let selected = collected(json!([{"matchExpressions": expressions}, {"matchLabels": {"tier": "one"}}]));
    assert_eq!(selected[0], "get secrets, get nodes, list pods");
    assert_eq!(collected(json!([]))[0], "");
    assert_eq!(collected(json!([{"matchExpressions": [{"key": "a", "operator": "?"}]}]))[0], "");
    assert_eq!(store.read(|objects| aggregation::rules(&json!({"rules": []}), objects)), None);
}

/// A store with the objects of every cluster, as the server creates them.
fn cluster() -> Store {
    let store = Store::new(100);
    for mut role in defaults::roles(true) {
        if let Some(rules) = store.read(|objects| aggregation::rules(&role, objects)) {
            role["rules"] = Value::Array(rules);
        }
        put(&store, "clusterroles", role);
    }
    for binding in defaults::bindings() {
        put(&store, "clusterrolebindings", binding);
    }
    store
}

#[test]
fn default_roles_are_complete_in_the_order_of_their_creation() {
    let store = cluster();
    store.read(|objects| {
        for (key, role) in objects.of("clusterroles", None) {
            if let Some(rules) = aggregation::rules(role, objects) {
                assert_eq!(items(role, "/rules"), rules, "{}", key.name);
                assert!(!rules.is_empty(), "{}", key.name);
            }
            let errors = crate::validation::check("clusterroles", role, None);
            assert!(errors.is_empty(), "{}: {errors:?}", key.name);
            assert_eq!(role["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
        }
        for (key, binding) in objects.of("clusterrolebindings", None) {
            let errors = crate::validation::check("clusterrolebindings", binding, None);
            assert!(errors.is_empty(), "{}: {errors:?}", key.name);
            assert!(rules_of(binding, "", objects).is_ok(), "{}", key.name);
        }
    });
}

#[test]
fn default_roles_allow_what_they_allow_in_every_cluster() {
    let store = cluster();
    for role in ["view", "edit", "admin"] {
        bind(&store, role, &format!("ClusterRole/{role}"), &["User:joe"]);
    }
    let joe = user("joe", "");
    for (line, in_view, in_edit, in_admin) in [
        ("list pods", true, true, true),
        ("get pods/log", true, true, true),
        ("get configmaps", true, true, true),
        ("get secrets", false, true, true),
        ("create pods/exec", false, true, true),
        ("delete configmaps", false, true, true),
        ("create serviceaccounts/token", false, true, true),
        ("impersonate serviceaccounts", false, true, true),
        ("update pods/status", false, false, false),
        ("create namespaces", false, false, false),
        ("get nodes", false, false, false),
    ] {
        let allowed = ["view", "edit", "admin"].map(|role| may(&store, &joe, &format!("{line} {role}")));
        assert_eq!(allowed, [in_view, in_edit, in_admin], "{line}");
    }
    let anonymous = User::anonymous();
    assert!(may(&store, &anonymous, "get /version") && !may(&store, &anonymous, "get /apis"));
    assert!(may(&store, &user("x", "system:authenticated"), "get /apis/apps/v1"));
    assert!(may(&store, &user("x", "system:masters"), "delete nodes -"));
    assert!(may(&store, &user("system:kube-proxy", ""), "watch services -"));
}

#[test]
fn reconciliation_adds_what_is_missing_and_keeps_the_rest() {
    let expected = defaults::roles(true).find(|role| object::name(role) == "system:node-proxier").unwrap();
    assert_eq!(reconciliation::role(&expected, &expected), Change::Keep);
    let mut existing = expected.clone();
    existing["rules"] = json!([rule("get,list,watch core nodes,endpoints -"), rule("create core x -")]);
    existing["metadata"]["labels"] = json!({"own": "1"});
    let Change::Update(new) = reconciliation::role(&existing, &expected) else { panic!("it changes") };
    assert_eq!(
        new["metadata"]["labels"],
        json!({"own": "1", "kubernetes.io/bootstrapping": "rbac-defaults"})
    );
    let rules: Vec<String> = items(&new, "/rules")[2..].iter().map(describe).collect();
    let expected_rules = [
        r#"{APIGroups:[""], Resources:["events"], Verbs:["create" "patch" "update"]}"#,
        r#"{APIGroups:[""], Resources:["services"], Verbs:["list" "watch"]}"#,
        r#"{APIGroups:["discovery.k8s.io"], Resources:["endpointslices"], Verbs:["list" "watch"]}"#,
        r#"{APIGroups:["events.k8s.io"], Resources:["events"], Verbs:["create" "patch" "update"]}"#,
    ];
    assert_eq!(rules, expected_rules);
    assert_eq!(items(&new, "/rules")[..2], items(&existing, "/rules")[..]);
    assert_eq!(reconciliation::role(&new, &expected), Change::Keep);
    existing["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = json!("false");
    assert_eq!(reconciliation::role(&existing, &expected), Change::Keep);
}

#[test]
fn reconciliation_adds_subjects_and_recreates_bindings_of_other_roles() {
    let expected = defaults::bindings().find(|one| object::name(one) == "cluster-admin").unwrap();
    assert_eq!(reconciliation::binding(&expected, &expected), Change::Keep);
    let mut existing = expected.clone();
    existing["subjects"] = json!([{"apiGroup": GROUP, "kind": "User", "name": "own"}]);
    let Change::Update(new) = reconciliation::binding(&existing, &expected) else { panic!("it changes") };
    let names: Vec<&str> = items(&new, "/subjects").iter().map(|subject| text(subject, "/name")).collect();
    assert_eq!(names, ["own", "system:masters"]);
    existing["roleRef"]["name"] = json!("view");
    assert_eq!(reconciliation::binding(&existing, &expected), Change::Recreate);
}
