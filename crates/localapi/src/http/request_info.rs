//! Parses the path of a request: an object, a collection, a subresource, or a non-resource path.

use super::query::decode;
use crate::resources::{Kinds, Resource};
use crate::store::Key;

/// The resource that a request path names, as `RequestInfo` of the real server.
#[derive(Clone, Debug)]
pub(crate) struct RequestInfo {
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl RequestInfo {
    pub(crate) fn key(&self) -> Key {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        Key::new(self.resource.name, namespace, self.name.as_deref().unwrap_or_default())
    }
}

/// Parses a path below `/api/v1` or `/apis/<group>/<version>`; `None` if it names none of these kinds.
pub(crate) fn parse(path: &str, kinds: Kinds) -> Option<RequestInfo> {
    let segments: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => below(kinds, "", version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() && !group.is_empty() => {
            below(kinds, group, version, rest)
        }
        _ => None,
    }
}

/// Whether a path has the form of one that names a resource, served or not.
pub(crate) fn is_of_resource(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let least = match segments.next() {
        Some("api") => 2,
        Some("apis") => 3,
        Some(_) | None => return false,
    };
    segments.count() >= least
}

fn below(kinds: Kinds, group: &str, version: &str, rest: &[&str]) -> Option<RequestInfo> {
    match rest {
        // `namespaces/x/status` is a subresource; `namespaces/x/pods` is a collection in the namespace.
        ["namespaces", namespace, name, more @ ..]
            if !(group.is_empty() && is_namespace_subresource(name)) =>
        {
            let resource = kinds.find(group, version, name).filter(|resource| resource.namespaced)?;
            within(resource, Some(namespace), more)
        }
        [name, more @ ..] => within(kinds.find(group, version, name)?, None, more),
        [] => None,
    }
}

fn is_namespace_subresource(name: &str) -> bool {
    ["status", "finalize"].contains(&name)
}

fn within(resource: &'static Resource, namespace: Option<&str>, more: &[&str]) -> Option<RequestInfo> {
    let text = |at: usize| more.get(at).map(|text| (*text).to_owned());
    // Only the subresource `proxy` has a path below it.
    let good = more.len() <= 2 || more.get(1) == Some(&"proxy");
    let namespace = namespace.map(str::to_owned);
    good.then(|| RequestInfo { resource, namespace, name: text(0), subresource: text(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<(&'static str, String)> {
        let info = parse(path, Kinds { measured: false })?;
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
        let parts = [part(&info.namespace), part(&info.name), part(&info.subresource)];
        Some((info.resource.name, parts.join(" ")))
    }

    #[test]
    fn paths_of_objects_collections_and_subresources_are_parsed() {
        for (path, expected) in [
            ("/api/v1/pods", ("pods", "- - -")),
            ("/api/v1/namespaces/a/pods", ("pods", "a - -")),
            ("/api/v1/namespaces/a/pods/b", ("pods", "a b -")),
            ("/api/v1/namespaces/a/pods/b/status", ("pods", "a b status")),
            ("/api/v1/namespaces", ("namespaces", "- - -")),
            ("/api/v1/namespaces/a", ("namespaces", "- a -")),
            ("/api/v1/namespaces/a/finalize", ("namespaces", "- a finalize")),
            (
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n",
                ("leases", "kube-node-lease n -"),
            ),
            ("/api/v1/nodes/n/proxy/a/b", ("nodes", "- n proxy")),
            ("/apis/storage.k8s.io/v1/csinodes/n%2Fm", ("csinodes", "- n/m -")),
        ] {
            assert_eq!(read(path), Some((expected.0, expected.1.to_owned())), "{path}");
        }
    }

    #[test]
    fn path_of_a_resource_is_longer_than_that_of_a_version() {
        for (path, expected) in [
            ("/api/v1", false),
            ("/api/v1/things", true),
            ("/apis/a.example/v1/", false),
            ("/apis/a.example/v1/namespaces/b/things", true),
            ("/healthz/a/b/c", false),
        ] {
            assert_eq!(is_of_resource(path), expected, "{path}");
        }
    }

    #[test]
    fn paths_that_are_not_served_are_not_parsed() {
        for path in [
            "/api",
            "/api/v1",
            "/apis/apps/v2/deployments",
            "/api/v1/namespaces/a/nodes",
            "/healthz",
            "/api/v1/nodes/n/status/x",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
    }
}
