//! The authorization rules: the built-in ones, which the README lists, then those of the node authorizer and of roles.

use serde_json::{Value, json};

use super::attributes::{Attributes, is_certificate_request};
use super::{AUTHENTICATED, BOOTSTRAPPERS, MASTERS, NODES, User, node, rbac};
use crate::store::Objects;

/// Paths that every authenticated user may read.
const OPEN_PATHS: &[&str] = &["/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz"];
/// Reviews that every authenticated user may create about itself.
const SELF_REVIEWS: &[(&str, &str)] = &[
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

/// Whether `user` may perform the request. `Ok` is the reason of the permission and `Err` that of the denial; both may be
/// empty.
pub(crate) fn check(user: &User, attributes: &Attributes, objects: &Objects) -> Result<String, String> {
    if user.is_in(MASTERS) {
        return Ok(String::new());
    }
    if user.is_in(AUTHENTICATED) && is_open_to_authenticated_users(attributes) {
        return Ok(String::new());
    }
    if user.is_in(BOOTSTRAPPERS) && is_certificate_request(attributes) {
        return Ok(String::new());
    }
    let mut reasons = Vec::new();
    if user.is_in(NODES) {
        match user.node() {
            Some(name) => match node::check(name, attributes, objects) {
                Ok(()) => return Ok(String::new()),
                Err(reason) => reasons.push(reason),
            },
            None => reasons.push(format!("unknown node for user \"{}\"", user.name)),
        }
    }
    rbac::check(user, attributes, objects).map_err(|reason| {
        reasons.push(reason);
        reasons.retain(|reason| !reason.is_empty());
        reasons.join("\n")
    })
}

/// The `status` of a SelfSubjectRulesReview. The rules of nodes depend on objects, so they cannot be listed.
pub(crate) fn review(user: &User, namespace: &str, objects: &Objects) -> Value {
    let mut status = rbac::review(user, namespace, objects);
    if user.is_in(BOOTSTRAPPERS)
        && let Some(rules) = status["resourceRules"].as_array_mut()
    {
        rules.push(json!({
            "verbs": ["create", "get", "list", "watch"],
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests"],
        }));
    }
    if user.node().is_some() {
        status["incomplete"] = json!(true);
        status["evaluationError"] = json!("node authorizer does not support user rule resolution");
    }
    status
}

fn is_open_to_authenticated_users(attributes: &Attributes) -> bool {
    let below = |open: &&str| {
        attributes.path.strip_prefix(*open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let path = ["get", "head"].contains(&attributes.verb.as_str()) && OPEN_PATHS.iter().any(below);
    let review = attributes.verb == "create"
        && SELF_REVIEWS.contains(&(attributes.group.as_str(), attributes.resource.as_str()));
    path || review
}

/// The message of a denial, as the real server sends it.
pub(crate) fn denial_message(user: &User, attributes: &Attributes, why: &str) -> String {
    let tail = if why.is_empty() { String::new() } else { format!(": {why}") };
    let Attributes { verb, group, namespace, name, .. } = attributes;
    let user = &user.name;
    if !attributes.path.is_empty() {
        return format!("forbidden: User \"{user}\" cannot {verb} path \"{}\"{tail}", attributes.path);
    }
    let resource = if attributes.subresource.is_empty() {
        attributes.resource.clone()
    } else {
        format!("{}/{}", attributes.resource, attributes.subresource)
    };
    let qualified = if group.is_empty() {
        attributes.resource.clone()
    } else {
        format!("{}.{group}", attributes.resource)
    };
    let object = if name.is_empty() { qualified } else { format!("{qualified} \"{name}\"") };
    let scope = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    format!(
        "{object} is forbidden: User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}{tail}"
    )
}

#[cfg(test)]
mod tests {

    use serde_json::{Value, json};

    use super::*;
    use crate::store::{Key, NotStored, Store, Write};

    fn store() -> Store {
        let store = Store::new(10);
        let put = |resource, namespace: &str, object: Value| {
            let key = Key::new(resource, namespace, object["metadata"]["name"].as_str().unwrap());
            store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
        };
        let pod = |name: &str, node: &str| {
            json!({
                "metadata": {"name": name, "namespace": "a"},
                "spec": {
                    "nodeName": node,
                    "serviceAccountName": "robot",
                    "imagePullSecrets": [{"name": "pull"}],
                    "volumes": [
                        {"name": "v", "projected": {"sources": [{"configMap": {"name": "settings"}}]}},
                        {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
                    ],
                    "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "password"}}}]}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}],
                },
                "status": {
                    "resourceClaimStatuses": [{"name": "nic", "resourceClaimName": "generated"}],
                    "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
                },
            })
        };
        put("pods", "a", pod("mine", "n"));
        put("pods", "b", pod("other", "m"));
        put(
            "persistentvolumeclaims",
            "a",
            json!({"metadata": {"name": "claim"}, "spec": {"volumeName": "pv"}}),
        );
        let secret = |name: &str| json!({"namespace": "storage", "name": name});
        let csi =
            json!({"nodeStageSecretRef": secret("stage"), "controllerPublishSecretRef": secret("control")});
        for (name, node) in [("req-mine", "n"), ("req-other", "m")] {
            put(
                "podcertificaterequests",
                "a",
                json!({"metadata": {"name": name}, "spec": {"nodeName": node}}),
            );
        }
        put("persistentvolumes", "", json!({"metadata": {"name": "pv"}, "spec": {"csi": csi}}));
        for (name, node) in [("csi-mine", "n"), ("csi-other", "m")] {
            put("volumeattachments", "", json!({"metadata": {"name": name}, "spec": {"nodeName": node}}));
        }
        store
    }

    fn user(kind: &str) -> User {
        let of = |name: &str, group: &str| User::new(name, [group.to_owned()]).authenticated();
        match kind {
            "node" => of("system:node:n", NODES),
            "nameless" => of("unnamed", NODES),
            "bootstrapper" => of("system:bootstrap:x", BOOTSTRAPPERS),
            "admin" => of("admin", MASTERS),
            _ => User::anonymous(),
        }
    }

    /// `verb group/resource/subresource namespace name selector`, `-` for nothing.
    fn attributes(line: &str) -> Attributes {
        let parts: Vec<&str> =
            line.split_whitespace().map(|part| if part == "-" { "" } else { part }).collect();
        let resource_path: Vec<&str> = parts[1].split('/').collect();
        Attributes {
            verb: parts[0].to_owned(),
            group: resource_path[0].to_owned(),
            resource: resource_path[1].to_owned(),
            subresource: (*resource_path.get(2).unwrap_or(&"")).to_owned(),
            namespace: parts[2].to_owned(),
            name: parts[3].to_owned(),
            field_selector: (*parts.get(4).unwrap_or(&"")).to_owned(),
            path: String::new(),
        }
    }

    fn may(kind: &str, line: &str) -> bool {
        store().read(|objects| check(&user(kind), &attributes(line), objects).is_ok())
    }

    #[test]
    fn node_may_access_its_own_objects_and_what_its_pods_reference() {
        for line in [
            "create /nodes - -",
            "patch /nodes/status - n",
            "watch /nodes - n metadata.name=n",
            "list /pods - - spec.nodeName=n",
            "get /pods a mine",
            "get /pods a gone",
            "patch /pods/status a mine",
            "delete /pods a mine",
            "get /secrets a password",
            "get /secrets a pull",
            "watch /configmaps a settings",
            "get /persistentvolumeclaims a claim",
            "patch /persistentvolumeclaims/status a claim",
            "get /persistentvolumes - pv",
            "get resource.k8s.io/resourceclaims a shared",
            "get resource.k8s.io/resourceclaims a generated",
            "get resource.k8s.io/resourceclaims a extended",
            "deletecollection resource.k8s.io/resourceslices - - spec.driver=d,spec.nodeName=n",
            "get /secrets storage stage",
            "get storage.k8s.io/volumeattachments - csi-mine",
            "watch storage.k8s.io/csidrivers - -",
            "delete storage.k8s.io/csinodes - n",
            "create /serviceaccounts/token a robot",
            "update coordination.k8s.io/leases kube-node-lease n",
            "create storage.k8s.io/csinodes - -",
            "create certificates.k8s.io/certificatesigningrequests - -",
            "create certificates.k8s.io/podcertificaterequests a -",
            "get certificates.k8s.io/podcertificaterequests a req-mine",
            "watch certificates.k8s.io/podcertificaterequests - - spec.nodeName=n",
            "create authentication.k8s.io/tokenreviews - -",
        ] {
            assert!(may("node", line), "{line}");
        }
    }

    #[test]
    fn node_may_not_access_objects_of_other_nodes() {
        for line in [
            "patch /nodes/status - m",
            "list /nodes - -",
            "list /pods - -",
            "list /pods - - spec.nodeName=m",
            "get /pods b other",
            "patch /pods/status b other",
            "get /secrets b password",
            "get /secrets a another",
            "list /secrets a -",
            "get /persistentvolumes - another",
            "list /persistentvolumeclaims a claim",
            "get resource.k8s.io/resourceclaims b shared",
            "get resource.k8s.io/resourceclaims a another",
            "list resource.k8s.io/resourceclaims a shared",
            "deletecollection resource.k8s.io/resourceslices - -",
            "deletecollection resource.k8s.io/resourceslices - - spec.nodeName=m",
            "get resource.k8s.io/resourceslices - other",
            "patch resource.k8s.io/resourceclaims/status a shared",
            "patch /persistentvolumeclaims/status b claim",
            "get /secrets storage control",
            "get storage.k8s.io/volumeattachments - csi-other",
            "get storage.k8s.io/volumeattachments - csi-none",
            "watch storage.k8s.io/volumeattachments - csi-mine",
            "get storage.k8s.io/csinodes - m",
            "list storage.k8s.io/csinodes - -",
            "create storage.k8s.io/csidrivers - -",
            "create /serviceaccounts/token a default",
            "update coordination.k8s.io/leases kube-node-lease m",
            "update coordination.k8s.io/leases default n",
            "update certificates.k8s.io/certificatesigningrequests/approval - csr",
            "get certificates.k8s.io/podcertificaterequests a req-other",
            "list certificates.k8s.io/podcertificaterequests - -",
            "list certificates.k8s.io/podcertificaterequests - - spec.nodeName=m",
            "delete certificates.k8s.io/podcertificaterequests a req-mine",
            "update certificates.k8s.io/podcertificaterequests/status a req-mine",
            "create /namespaces - -",
        ] {
            assert!(!may("node", line), "{line}");
        }
        assert!(!may("nameless", "get /pods a mine"));
    }

    #[test]
    fn bootstrappers_may_only_request_certificates_and_anonymous_users_nothing() {
        let create = "create certificates.k8s.io/certificatesigningrequests - -";
        assert!(may("bootstrapper", create) && may("admin", create) && !may("anonymous", create));
        assert!(!may("bootstrapper", "get /nodes - n"));
        let review = "create authorization.k8s.io/selfsubjectaccessreviews - -";
        assert!(may("bootstrapper", review) && !may("anonymous", review));
    }

    #[test]
    fn roles_add_permissions_and_reasons_to_those_of_nodes() {
        let store = store();
        let put = |resource, object: Value| {
            let key = Key::new(resource, "", object["metadata"]["name"].as_str().unwrap());
            store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
        };
        let decide = |line: &str| store.read(|objects| check(&user("node"), &attributes(line), objects));
        let denial = decide("get /secrets b password").unwrap_err();
        assert!(denial.ends_with("no relationship found between node 'n' and this object"), "{denial}");
        let subject = json!({"kind": "Group", "name": NODES});
        let role = json!({"kind": "ClusterRole", "name": "reads"});
        put(
            "clusterrolebindings",
            json!({"metadata": {"name": "b"}, "roleRef": role, "subjects": [subject]}),
        );
        let missing = "RBAC: clusterrole.rbac.authorization.k8s.io \"reads\" not found";
        assert_eq!(decide("get /secrets b password"), Err(format!("{denial}\n{missing}")));
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]});
        put("clusterroles", json!({"metadata": {"name": "reads"}, "rules": [rule]}));
        let reason =
            "RBAC: allowed by ClusterRoleBinding \"b\" of ClusterRole \"reads\" to Group \"system:nodes\"";
        assert_eq!(decide("get /secrets b password"), Ok(reason.to_owned()));
        assert_eq!(decide("get /secrets a password"), Ok(String::new()));
        assert!(decide("delete /secrets b password").is_err());
    }

    #[test]
    fn review_includes_the_built_in_rules() {
        let of = |kind: &str| store().read(|objects| review(&user(kind), "a", objects));
        assert_eq!(of("node")["incomplete"], true);
        assert_eq!(of("nameless")["incomplete"], false);
        let rules = of("bootstrapper")["resourceRules"].clone();
        assert_eq!(rules[0]["resources"], json!(["certificatesigningrequests"]));
    }

    #[test]
    fn denial_message_contains_user_verb_and_object() {
        let message = denial_message(&user("node"), &attributes("get /pods/status a p"), "no relation");
        let expected = "pods \"p\" is forbidden: User \"system:node:n\" cannot get resource \"pods/status\" in API group \"\" in the namespace \"a\": no relation";
        assert_eq!(message, expected);
    }
}
