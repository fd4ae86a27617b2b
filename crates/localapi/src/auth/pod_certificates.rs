//! Which PodCertificateRequests a node may create, as the NodeRestriction admission plugin has it: for its own pods, with the UIDs that
//! pod, service account and node have.

use serde_json::Value;

use crate::object::{text, uid};
use crate::store::{Key, Objects};

/// Why a node may not create a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Forbidden(String),
    /// The plugin may not know the newest objects: the node tries again.
    Stale(String),
}

const MIRROR: &str = "kubernetes.io/config.mirror";

pub(crate) fn admit(node: &str, request: &Value, objects: &Objects) -> Result<(), Refusal> {
    let spec = |field: &str| text(request, &format!("/spec/{field}"));
    let namespace = text(request, "/metadata/namespace");
    let (forbidden, stale) = (Refusal::Forbidden, Refusal::Stale);
    let find = |what: &str, plural: &'static str, namespace: &str, name: &str| {
        let full = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let why = format!(
            "while retrieving {what} {full:?} named in the PodCertificateRequest: {plural} {name:?} not found"
        );
        objects.get(&Key::new(plural, namespace, name)).ok_or(Refusal::Stale(why))
    };
    if spec("nodeName") != node {
        let named = spec("nodeName");
        return Err(forbidden(format!(
            "PodCertificateRequest.Spec.NodeName={named:?}, which is not the requesting node {node:?}"
        )));
    }
    let about = format!("PodCertificateRequest for pod \"{namespace}/{}\"", spec("podName"));
    let found = uid(find("node", "nodes", "", node)?);
    if spec("nodeUID") != found {
        let given = spec("nodeUID");
        return Err(stale(format!(
            "{about} names node UID {given:?}, inconsistent with the running node ({found:?})"
        )));
    }
    let pod = find("pod", "pods", namespace, spec("podName"))?;
    let pod_name = format!("{namespace}/{}", spec("podName"));
    if spec("podUID") != uid(pod) {
        let (given, found) = (spec("podUID"), uid(pod));
        return Err(stale(format!(
            "{about} contains pod UID ({given:?}) which differs from running pod {found:?}"
        )));
    }
    if text(pod, "/spec/nodeName") != node {
        return Err(forbidden(format!(
            "pod {pod_name:?} is not running on node {node:?} named in the PodCertificateRequest"
        )));
    }
    if pod.pointer("/metadata/annotations").is_some_and(|all| all.get(MIRROR).is_some()) {
        return Err(forbidden(format!("pod {pod_name:?} is a mirror pod")));
    }
    admit_account(request, pod, &about, find)
}

fn admit_account<'a>(
    request: &Value,
    pod: &Value,
    about: &str,
    find: impl Fn(&str, &'static str, &str, &str) -> Result<&'a std::sync::Arc<Value>, Refusal>,
) -> Result<(), Refusal> {
    let (given, own) = (text(request, "/spec/serviceAccountName"), text(pod, "/spec/serviceAccountName"));
    if given != own {
        return Err(Refusal::Forbidden(format!(
            "{about} contains serviceAccountName ({given:?}) that differs from running pod ({own:?})"
        )));
    }
    let namespace = text(request, "/metadata/namespace");
    let found = uid(find("service account", "serviceaccounts", namespace, given)?);
    let uid = text(request, "/spec/serviceAccountUID");
    if uid == found {
        return Ok(());
    }
    Err(Refusal::Stale(format!(
        "{about} names service account UID {uid:?}, which differs from the running service account ({found:?})"
    )))
}

#[cfg(test)]
mod tests {

    use serde_json::json;

    use super::*;
    use crate::store::{NotStored, Store, Write};

    fn put(store: &Store, plural: &'static str, object: Value) {
        let key = Key::new(plural, text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
    }

    #[test]
    fn node_requests_certificates_only_for_its_own_pods_and_their_accounts() {
        let store = Store::new(10);
        put(&store, "nodes", json!({"metadata": {"name": "n", "uid": "un"}}));
        put(&store, "serviceaccounts", json!({"metadata": {"namespace": "a", "name": "robot", "uid": "us"}}));
        for (name, node, annotations) in
            [("web", "n", json!({})), ("other", "m", json!({})), ("mirror", "n", json!({(MIRROR): "x"}))]
        {
            put(
                &store,
                "pods",
                json!({
                    "metadata": {"namespace": "a", "name": name, "uid": format!("up-{name}"), "annotations": annotations},
                    "spec": {"nodeName": node, "serviceAccountName": "robot"},
                }),
            );
        }
        let admit = |changes: Value| {
            let mut request = json!({"metadata": {"namespace": "a"}, "spec": {"podName": "web", "podUID": "up-web",
                "serviceAccountName": "robot", "serviceAccountUID": "us", "nodeName": "n", "nodeUID": "un"}});
            for (field, value) in changes.as_object().unwrap() {
                request["spec"][field] = value.clone();
            }
            store.read(|objects| match admit("n", &request, objects) {
                Ok(()) => "admitted".to_owned(),
                Err(Refusal::Forbidden(why)) => format!("forbidden: {why}"),
                Err(Refusal::Stale(why)) => format!("stale: {why}"),
            })
        };
        let about = "PodCertificateRequest for pod \"a/web\"";
        for (changes, expected) in [
            (json!({}), "admitted".to_owned()),
            (
                json!({"nodeName": "m"}),
                "forbidden: PodCertificateRequest.Spec.NodeName=\"m\", which is not the requesting node \"n\"".to_owned(),
            ),
            (
                json!({"nodeUID": "x"}),
                format!("stale: {about} names node UID \"x\", inconsistent with the running node (\"un\")"),
            ),
            (
                json!({"podName": "gone"}),
                "stale: while retrieving pod \"a/gone\" named in the PodCertificateRequest: pods \"gone\" not found".to_owned(),
            ),
            (
                json!({"podUID": "x"}),
                format!("stale: {about} contains pod UID (\"x\") which differs from running pod \"up-web\""),
            ),
            (
                json!({"podName": "other", "podUID": "up-other"}),
                "forbidden: pod \"a/other\" is not running on node \"n\" named in the PodCertificateRequest".to_owned(),
            ),
            (
                json!({"podName": "mirror", "podUID": "up-mirror"}),
                "forbidden: pod \"a/mirror\" is a mirror pod".to_owned(),
            ),
            (
                json!({"serviceAccountName": "admin"}),
                format!("forbidden: {about} contains serviceAccountName (\"admin\") that differs from running pod (\"robot\")"),
            ),
            (
                json!({"serviceAccountUID": "x"}),
                format!("stale: {about} names service account UID \"x\", which differs from the running service account (\"us\")"),
            ),
        ] {
            assert_eq!(admit(changes.clone()), expected, "{changes}");
        }
    }
}
