//! The messages of events about resizes.

use model::k8s::{Container, Pod};
use serde_json::{Map, Value, json};

pub const STARTED: (&str, &str) = ("ResizeStarted", "Pod resize started");
pub const COMPLETED: (&str, &str) = ("ResizeCompleted", "Pod resize completed");
pub const FAILED: (&str, &str) = ("ResizeError", "Pod resize error");

/// The event's text: what happened, then the requests and limits of all containers as JSON. `error` may be empty.
#[must_use]
pub fn message(prefix: &str, pod: &Pod, generation: i64, error: &str) -> String {
    let summary = |list: &mut dyn Iterator<Item = &Container>| -> Value {
        list.map(|c| json!({"name": c.name, "resources": c.resources.clone().unwrap_or_default()})).collect()
    };
    let mut fields = Map::new();
    if let Some(spec) = &pod.spec {
        if spec.init_containers.as_ref().is_some_and(|list| !list.is_empty()) {
            fields.insert("initContainers".to_owned(), summary(&mut spec.init_containers.iter().flatten()));
        }
        fields.insert("containers".to_owned(), summary(&mut spec.containers.iter()));
    }
    fields.insert("generation".to_owned(), json!(generation));
    if !error.is_empty() {
        fields.insert("error".to_owned(), json!(error));
    }
    // In the field order of the Go kubelet, which is not alphabetical.
    let order = ["initContainers", "containers", "generation", "error"];
    let parts = order.iter().filter_map(|name| Some(format!("{}:{}", json!(name), fields.get(*name)?)));
    format!("{prefix}: {{{}}}", parts.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are recorded events of the Go kubelet.
    #[test]
    fn events_name_the_resources_of_all_containers() {
        let resources = json!({
            "limits": {"cpu": "150m", "memory": "96Mi"},
            "requests": {"cpu": "30m", "memory": "48Mi"},
        });
        let containers = json!([{"name": "main", "image": "i", "resources": resources}]);
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": containers}})).expect("a pod");
        assert_eq!(
            message(STARTED.1, &pod, 2, ""),
            "Pod resize started: {\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{\"cpu\":\"150m\",\
             \"memory\":\"96Mi\"},\"requests\":{\"cpu\":\"30m\",\"memory\":\"48Mi\"}}}],\"generation\":2}"
        );
        assert_eq!(
            message("Pod resize Deferred", &pod, 3, "Node didn't have enough resource: cpu"),
            "Pod resize Deferred: {\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":{\"cpu\":\"150m\",\
             \"memory\":\"96Mi\"},\"requests\":{\"cpu\":\"30m\",\"memory\":\"48Mi\"}}}],\"generation\":3,\
             \"error\":\"Node didn't have enough resource: cpu\"}"
        );
    }
}
