//! What a path means: an object, a collection, a subresource, or no resource at all.

use super::query::decode;
use crate::resources::{self, Resource};
use crate::store::Key;

/// The resource part of a path.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    pub(crate) fn key(&self) -> Key {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        Key::new(self.resource.name, namespace, self.name.as_deref().unwrap_or_default())
    }
}

/// The target of a path below `/api/v1` or `/apis/<group>/<version>`; none if nothing is served there.
pub(crate) fn target(path: &str) -> Option<Target> {
    let segments: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => below("", version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() && !group.is_empty() => {
            below(group, version, rest)
        }
        _ => None,
    }
}

fn below(group: &str, version: &str, rest: &[&str]) -> Option<Target> {
    match rest {
        // `namespaces/x/status` is about the namespace; `namespaces/x/pods` is about what is in it.
        ["namespaces", namespace, name, more @ ..] if !(group.is_empty() && is_of_namespace(name)) => {
            let resource = resources::find(group, version, name).filter(|resource| resource.namespaced)?;
            within(resource, Some(namespace), more)
        }
        [name, more @ ..] => within(resources::find(group, version, name)?, None, more),
        [] => None,
    }
}

fn is_of_namespace(name: &str) -> bool {
    ["status", "finalize"].contains(&name)
}

fn within(resource: &'static Resource, namespace: Option<&str>, more: &[&str]) -> Option<Target> {
    let text = |at: usize| more.get(at).map(|text| (*text).to_owned());
    // Below a subresource is nothing, but for what a proxy passes on.
    let good = more.len() <= 2 || more.get(1) == Some(&"proxy");
    let namespace = namespace.map(str::to_owned);
    good.then(|| Target { resource, namespace, name: text(0), subresource: text(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<(&'static str, String)> {
        let target = target(path)?;
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
        let parts = [part(&target.namespace), part(&target.name), part(&target.subresource)];
        Some((target.resource.name, parts.join(" ")))
    }

    #[test]
    fn paths_name_objects_collections_and_subresources() {
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
    fn what_is_not_served_is_no_target() {
        for path in [
            "/api",
            "/api/v1",
            "/apis/apps/v1/deployments",
            "/api/v1/namespaces/a/nodes",
            "/healthz",
            "/api/v1/nodes/n/status/x",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
    }
}
