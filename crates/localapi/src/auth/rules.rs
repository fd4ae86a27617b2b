//! The authorization rules, which the README lists; there is no RBAC yet.

use super::attributes::{Attributes, is_certificate_request};
use super::{AUTHENTICATED, BOOTSTRAPPERS, MASTERS, NODES, User, node};
use crate::store::Objects;

/// Paths that every authenticated user may read.
const OPEN_PATHS: &[&str] = &["/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz"];
/// Reviews that every authenticated user may create about itself.
const SELF_REVIEWS: &[(&str, &str)] =
    &[("authorization.k8s.io", "selfsubjectaccessreviews"), ("authentication.k8s.io", "selfsubjectreviews")];

/// Whether `user` may perform the request; the error is the reason of the denial, which may be empty.
pub(crate) fn check(user: &User, attributes: &Attributes, objects: &Objects) -> Result<(), String> {
    if user.is_in(MASTERS) {
        return Ok(());
    }
    let mut why = String::new();
    if user.is_in(AUTHENTICATED) && is_open_to_authenticated_users(attributes) {
        return Ok(());
    }
    if user.is_in(BOOTSTRAPPERS) && is_certificate_request(attributes) {
        return Ok(());
    }
    if user.is_in(NODES) {
        match user.node() {
            Some(name) => match node::check(name, attributes, objects) {
                Ok(()) => return Ok(()),
                Err(reason) => why = reason,
            },
            None => why = format!("unknown node for user \"{}\"", user.name),
        }
    }
    Err(why)
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
    fn denial_message_contains_user_verb_and_object() {
        let message = denial_message(&user("node"), &attributes("get /pods/status a p"), "no relation");
        let expected = "pods \"p\" is forbidden: User \"system:node:n\" cannot get resource \"pods/status\" in API group \"\" in the namespace \"a\": no relation";
        assert_eq!(message, expected);
    }
}
