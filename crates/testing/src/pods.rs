//! Pods in one line: `pod("web").container("app").image("nginx:1").port(80).build()`.
//!
//! A pod starts with the defaults an API server would set. Container settings apply to the last container. Fields without a
//! method of their own are merged in as JSON, in the spelling of a manifest.

use std::sync::Arc;

use model::annotations::CONFIG_SOURCE;
use model::k8s::Pod;
use serde_json::{Map, Value, json};

/// A pod under construction.
#[derive(Clone, Debug)]
#[must_use]
pub struct PodBuilder {
    pod: Value,
    /// The list in the spec that the last container is in.
    list: &'static str,
}

/// A pod of that name in namespace `default`, with UID `uid-of-<name>` and no containers yet.
pub fn pod(name: &str) -> PodBuilder {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}") },
        "spec": {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": true,
            "securityContext": {},
            "containers": [],
        },
    });
    PodBuilder { pod, list: "containers" }
}

/// A pod written as a manifest.
///
/// # Panics
/// If it is not a pod: that is a mistake in the test.
#[must_use]
#[track_caller]
#[expect(
    clippy::panic,
    reason = "a fixture that is not a pod is a mistake in the test, reported at its line"
)]
pub fn pod_from_json(pod: Value) -> Arc<Pod> {
    match serde_json::from_value(pod.clone()) {
        Ok(pod) => Arc::new(pod),
        Err(error) => panic!("not a pod: {error}: {pod}"),
    }
}

impl PodBuilder {
    // ---- the pod ----

    pub fn namespace(self, namespace: &str) -> Self {
        self.merge(json!({ "metadata": { "namespace": namespace } }))
    }

    pub fn uid(self, uid: &str) -> Self {
        self.merge(json!({ "metadata": { "uid": uid } }))
    }

    pub fn label(self, key: &str, value: &str) -> Self {
        self.merge(json!({ "metadata": { "labels": { key: value } } }))
    }

    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.merge(json!({ "metadata": { "annotations": { key: value } } }))
    }

    /// As if it was read from a manifest file.
    pub fn from_file(self) -> Self {
        self.annotation(CONFIG_SOURCE, "file")
    }

    /// Being deleted, with that grace period left in seconds.
    pub fn deleted(self, grace_seconds: i64) -> Self {
        self.merge(json!({ "metadata": {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": grace_seconds,
        } }))
    }

    /// `Always`, `OnFailure` or `Never`.
    pub fn restart_policy(self, policy: &str) -> Self {
        self.merge(json!({ "spec": { "restartPolicy": policy } }))
    }

    /// In seconds.
    pub fn grace(self, seconds: i64) -> Self {
        self.merge(json!({ "spec": { "terminationGracePeriodSeconds": seconds } }))
    }

    pub fn host_network(self) -> Self {
        self.merge(json!({ "spec": { "hostNetwork": true } }))
    }

    /// A volume, with its source as in a manifest: `json!({ "emptyDir": {} })`.
    pub fn volume(mut self, name: &str, source: Value) -> Self {
        let mut volume = json!({ "name": name });
        merge(&mut volume, source);
        push(&mut self.pod["spec"]["volumes"], volume);
        self
    }

    /// Merges fields into `spec`.
    pub fn spec(self, spec: Value) -> Self {
        self.merge(json!({ "spec": spec }))
    }

    /// Merges fields into the pod. Objects are merged, everything else is replaced.
    pub fn merge(mut self, patch: Value) -> Self {
        merge(&mut self.pod, patch);
        self
    }

    // ---- containers ----

    /// Adds a main container. Its image is `<name>:1` until [`Self::image`] sets another.
    pub fn container(self, name: &str) -> Self {
        self.add("containers", name)
    }

    /// Adds an init container.
    pub fn init(self, name: &str) -> Self {
        self.add("initContainers", name)
    }

    /// Adds a sidecar container.
    pub fn sidecar(self, name: &str) -> Self {
        self.add("initContainers", name).with(json!({ "restartPolicy": "Always" }))
    }

    /// Adds an ephemeral container.
    pub fn ephemeral(self, name: &str) -> Self {
        self.add("ephemeralContainers", name)
    }

    pub fn image(self, image: &str) -> Self {
        self.with(json!({ "image": image }))
    }

    /// `Always`, `IfNotPresent` or `Never`.
    pub fn pull_policy(self, policy: &str) -> Self {
        self.with(json!({ "imagePullPolicy": policy }))
    }

    pub fn command(self, command: &[&str]) -> Self {
        self.with(json!({ "command": command }))
    }

    pub fn args(self, args: &[&str]) -> Self {
        self.with(json!({ "args": args }))
    }

    pub fn env(self, name: &str, value: &str) -> Self {
        self.append("env", json!({ "name": name, "value": value }))
    }

    pub fn port(self, port: u16) -> Self {
        self.append("ports", json!({ "containerPort": port, "protocol": "TCP" }))
    }

    pub fn mount(self, volume: &str, path: &str) -> Self {
        self.append("volumeMounts", json!({ "name": volume, "mountPath": path }))
    }

    /// Sets the container's requests: `requests("100m", "64Mi")`. An empty text requests none.
    pub fn requests(self, cpu: &str, memory: &str) -> Self {
        self.with(json!({ "resources": { "requests": amounts(cpu, memory) } }))
    }

    /// Sets the container's limits.
    pub fn limits(self, cpu: &str, memory: &str) -> Self {
        self.with(json!({ "resources": { "limits": amounts(cpu, memory) } }))
    }

    /// Sets a probe as in a manifest: `liveness(json!({ "exec": { "command": ["true"] } }))`.
    pub fn liveness(self, probe: Value) -> Self {
        self.with(json!({ "livenessProbe": probe }))
    }

    pub fn readiness(self, probe: Value) -> Self {
        self.with(json!({ "readinessProbe": probe }))
    }

    pub fn startup(self, probe: Value) -> Self {
        self.with(json!({ "startupProbe": probe }))
    }

    pub fn pre_stop(self, handler: Value) -> Self {
        self.with(json!({ "lifecycle": { "preStop": handler } }))
    }

    pub fn post_start(self, handler: Value) -> Self {
        self.with(json!({ "lifecycle": { "postStart": handler } }))
    }

    /// Merges fields into the last container.
    pub fn with(mut self, patch: Value) -> Self {
        if let Some(container) = self.last_container() {
            merge(container, patch);
        }
        self
    }

    /// Builds the pod.
    ///
    /// # Panics
    /// If a merged field is not part of a pod: that is a mistake in the test.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> Arc<Pod> {
        pod_from_json(self.pod)
    }

    /// The pod as JSON, which is also YAML: the content of a manifest file.
    #[must_use]
    pub fn manifest(self) -> String {
        self.pod.to_string()
    }

    fn add(mut self, list: &'static str, name: &str) -> Self {
        let container = json!({
            "name": name,
            "image": format!("{name}:1"),
            "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "resources": {},
        });
        push(&mut self.pod["spec"][list], container);
        self.list = list;
        self
    }

    fn append(mut self, field: &str, item: Value) -> Self {
        if let Some(container) = self.last_container() {
            push(&mut container[field], item);
        }
        self
    }

    fn last_container(&mut self) -> Option<&mut Value> {
        self.pod["spec"][self.list].as_array_mut()?.last_mut()
    }
}

fn amounts(cpu: &str, memory: &str) -> Value {
    let named = [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, amount)| !amount.is_empty());
    named.map(|(name, amount)| (name.to_owned(), Value::from(amount))).collect::<Map<_, _>>().into()
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            *list = Value::Array(vec![item]);
        }
    }
}

fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(fields.entry(key).or_insert(Value::Null), change);
            }
        }
        (slot, change) => *slot = change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_builder_settings_apply_to_the_last_container() {
        let pod = pod("web")
            .container("app")
            .image("nginx:1")
            .port(80)
            .env("A", "1")
            .env("B", "2")
            .sidecar("proxy")
            .command(&["run"])
            .requests("100m", "")
            .build();
        let spec = pod.spec.as_ref().unwrap();
        let app = &spec.containers[0];
        assert_eq!((app.name.as_str(), app.image.as_deref()), ("app", Some("nginx:1")));
        assert_eq!(app.env.as_ref().map(Vec::len), Some(2));
        assert_eq!(app.ports.as_ref().unwrap()[0].container_port, 80);
        let proxy = &spec.init_containers.as_ref().unwrap()[0];
        assert_eq!(
            (proxy.image.as_deref(), proxy.restart_policy.as_deref()),
            (Some("proxy:1"), Some("Always"))
        );
        assert_eq!(proxy.command.as_deref(), Some(["run".to_owned()].as_slice()));
        let requests = proxy.resources.as_ref().unwrap().requests.as_ref().unwrap();
        assert_eq!(requests.keys().collect::<Vec<_>>(), ["cpu"]);
    }

    #[test]
    fn pod_builder_sets_api_server_defaults() {
        let pod = pod("web").build();
        assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(pod.metadata.uid.as_deref(), Some("uid-of-web"));
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
        assert_eq!(spec.termination_grace_period_seconds, Some(30));
    }

    #[test]
    fn pod_builder_merges_arbitrary_fields() {
        let pod = pod("web")
            .label("app", "web")
            .label("tier", "front")
            .volume("data", json!({ "emptyDir": { "medium": "Memory" } }))
            .container("app")
            .mount("data", "/data")
            .with(json!({ "tty": true }))
            .spec(json!({ "securityContext": { "runAsUser": 1000 } }))
            .build();
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(pod.metadata.labels.as_ref().map(std::collections::BTreeMap::len), Some(2));
        assert_eq!(
            spec.volumes.as_ref().unwrap()[0].empty_dir.as_ref().unwrap().medium.as_deref(),
            Some("Memory")
        );
        assert_eq!(spec.containers[0].tty, Some(true));
        assert_eq!(spec.security_context.as_ref().unwrap().run_as_user, Some(1000));
    }

    #[test]
    #[should_panic(expected = "not a pod")]
    fn pod_builder_rejects_invalid_fields() {
        let _ = pod("web").spec(json!({ "restartPolicy": 7 })).build();
    }
}
