//! Builder for manifests in one line: pods as users write them, with the fields that tests change.

use model::k8s::Pod;
use serde_json::{Value, json};

/// A manifest under construction.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    value: Value,
}

/// A pod of the given containers that is restarted forever and has a grace period of 30 seconds.
pub(crate) fn pod(name: &str, containers: impl IntoIterator<Item = Value>) -> Manifest {
    let containers: Vec<Value> = containers.into_iter().collect();
    let value = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": containers},
    });
    Manifest { name: name.to_owned(), value }
}

/// A container of the image `<name>:1`.
pub(crate) fn container(name: &str) -> Value {
    json!({"name": name, "image": format!("{name}:1")})
}

/// A container with more fields.
pub(crate) fn container_with(name: &str, fields: Value) -> Value {
    let mut container = container(name);
    merge(&mut container, fields);
    container
}

impl Manifest {
    /// Merges fields into the spec.
    pub(crate) fn spec(mut self, fields: Value) -> Self {
        merge(&mut self.value["spec"], fields);
        self
    }

    pub(crate) fn init(self, containers: impl IntoIterator<Item = Value>) -> Self {
        let containers: Vec<Value> = containers.into_iter().collect();
        self.spec(json!({"initContainers": containers}))
    }

    /// Gives the pod a UID of its own, so that a change of the manifest changes the same pod.
    pub(crate) fn uid(mut self, uid: &str) -> Self {
        self.value["metadata"]["uid"] = uid.into();
        self
    }

    pub(crate) fn restart_policy(self, policy: &str) -> Self {
        self.spec(json!({"restartPolicy": policy}))
    }

    /// As an API server stores it, bound to the node.
    pub(crate) fn object(&self) -> Pod {
        let mut value = self.value.clone();
        let spec = json!({
            "nodeName": "node", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": false,
        });
        let mut with_defaults = spec;
        merge(&mut with_defaults, value["spec"].take());
        value["spec"] = with_defaults;
        value["status"] = json!({"phase": "Pending"});
        serde_json::from_value(value).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        self.value.to_string()
    }
}

fn merge(into: &mut Value, fields: Value) {
    let (Some(into), Value::Object(fields)) = (into.as_object_mut(), fields) else { return };
    into.extend(fields);
}
