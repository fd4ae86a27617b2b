//! The config maps and secrets from which variables are set: which a pod needs, and how they are decoded
//! (docs/behaviour/pod-environment.md). Never fetches one.

use std::collections::{BTreeMap, BTreeSet};

use base_core::object_name::ObjectName;
use model::containers::all_containers;
use model::env_value::EnvValue;
use model::k8s::{ConfigMap, FileKeySelector, Pod, Secret};

/// The objects from which variables may be set. A standalone kubelet has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvObjects {
    /// `data` of config maps in the pod's namespace, by name.
    pub config_maps: BTreeMap<String, BTreeMap<String, String>>,
    /// Decoded `data` of secrets in the pod's namespace, by name.
    pub secrets: BTreeMap<String, BTreeMap<String, EnvValue>>,
    /// Service environment variables; declared variables override them.
    pub services: BTreeMap<String, String>,
    /// Text of the files that the pod's variables name, of those that exist; `None` if the node does not support variables from files.
    pub files: Option<BTreeMap<EnvFile, String>>,
}

/// A file inside a volume of the pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvFile {
    pub volume: String,
    /// Relative to the volume.
    pub path: String,
}

impl EnvFile {
    #[must_use]
    pub fn of(selector: &FileKeySelector) -> Self {
        Self { volume: selector.volume_name.clone(), path: selector.path.clone() }
    }
}

/// Every object from which some container of the pod takes variables, optional ones too.
#[must_use]
pub fn required_env_objects(pod: &Pod) -> BTreeSet<ObjectName> {
    let mut names = BTreeSet::new();
    for container in all_containers(pod) {
        for source in container.env_from() {
            names.extend(source.config_map_ref.as_ref().map(|r| ObjectName::ConfigMap(r.name.clone())));
            names.extend(source.secret_ref.as_ref().map(|r| ObjectName::Secret(r.name.clone())));
        }
        for source in container.env().iter().filter_map(|variable| variable.value_from.as_ref()) {
            let config_map = source.config_map_key_ref.as_ref();
            names.extend(config_map.map(|r| ObjectName::ConfigMap(r.name.clone())));
            names.extend(source.secret_key_ref.as_ref().map(|r| ObjectName::Secret(r.name.clone())));
        }
    }
    names
}

/// The decoded objects, and the variables of services. Objects of another namespace than the pod's are left out.
#[must_use]
pub fn env_objects(
    pod: &Pod,
    config_maps: &[&ConfigMap],
    secrets: &[&Secret],
    services: BTreeMap<String, String>,
) -> EnvObjects {
    let is_in_namespace = |namespace: &Option<String>| *namespace == pod.metadata.namespace;
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let mut objects = EnvObjects { services, ..EnvObjects::default() };
    for map in config_maps.iter().filter(|map| is_in_namespace(&map.metadata.namespace)) {
        objects.config_maps.insert(name(&map.metadata.name), map.data.clone().unwrap_or_default());
    }
    for secret in secrets.iter().filter(|secret| is_in_namespace(&secret.metadata.namespace)) {
        let values = secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone().into()));
        objects.secrets.insert(name(&secret.metadata.name), values.collect());
    }
    objects
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_reference_of_every_container_counts() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "c1"}}, {"secretRef": {"name": "s1", "optional": true}}]}],
            "containers": [{"name": "a", "env": [
                {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c2", "key": "k"}}},
                {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
                {"name": "Z", "value": "z"}]}],
        }}))
        .unwrap();
        let config_map = |name: &str| ObjectName::ConfigMap(name.to_owned());
        let secret = |name: &str| ObjectName::Secret(name.to_owned());
        let expected = [config_map("c1"), config_map("c2"), secret("s1"), secret("s2")];
        assert_eq!(required_env_objects(&pod), BTreeSet::from(expected));
    }

    #[test]
    fn secrets_are_decoded_and_only_the_pods_namespace_counts() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"namespace": "ns"}})).unwrap();
        let config_map = |namespace: &str, value: &str| -> ConfigMap {
            serde_json::from_value(
                json!({"metadata": {"name": "c", "namespace": namespace}, "data": {"k": value}}),
            )
            .unwrap()
        };
        let secret: Secret = serde_json::from_value(
            json!({"metadata": {"name": "s", "namespace": "ns"}, "data": {"text": "dmFsdWU=", "bytes": "//4="}}),
        )
        .unwrap();
        let (own, other) = (config_map("ns", "own"), config_map("else", "other"));
        let objects = env_objects(&pod, &[&own, &other], &[&secret], BTreeMap::new());
        assert_eq!(objects.config_maps["c"]["k"], "own");
        let expected = [("text", EnvValue::from("value")), ("bytes", EnvValue::from(vec![0xff, 0xfe]))];
        let expected = expected.map(|(key, value)| (key.to_owned(), value));
        assert_eq!(objects.secrets["s"], BTreeMap::from(expected));
    }
}
