//! Whether a PersistentVolume may be mounted on this node: its `nodeAffinity` names the nodes that can reach it.

use std::collections::BTreeMap;

use model::k8s::{PersistentVolumeSpec, VolumeNodeAffinity};

use base_core::node_selector::selects_any;

/// `labels`: of the Node; `None` if it is not known.
///
/// # Errors
/// The volume is of other nodes, or the Node is not known. The text is that of the event.
pub fn check_node_affinity(
    affinity: Option<&VolumeNodeAffinity>,
    node: &str,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<(), String> {
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else { return Ok(()) };
    let labels = labels.ok_or_else(|| format!("error retrieving node: node {node:?} not found"))?;
    match selects_any(&required.node_selector_terms, None, labels) {
        true => Ok(()),
        false => Err("no matching NodeSelectorTerms".to_owned()),
    }
}

/// The affinity of a PersistentVolume; `None` if every node may mount it.
#[must_use]
pub fn affinity_of(spec: &PersistentVolumeSpec) -> Option<Box<VolumeNodeAffinity>> {
    spec.node_affinity.clone().filter(|affinity| affinity.required.is_some()).map(Box::new)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(affinity: Value) -> Result<(), String> {
        let labels = [("test-key1", "test-value1"), ("test-key2", "test-value2")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let affinity: Option<VolumeNodeAffinity> = serde_json::from_value(affinity).unwrap();
        check_node_affinity(affinity.as_ref(), "node", Some(&labels))
    }

    fn terms(terms: &[&[(&str, &[&str])]]) -> Value {
        let expression =
            |(key, values): &(&str, &[&str])| json!({"key": key, "operator": "In", "values": values});
        let term = |term: &&[(&str, &[&str])]| json!({"matchExpressions": term.iter().map(expression).collect::<Vec<_>>()});
        json!({"required": {"nodeSelectorTerms": terms.iter().map(term).collect::<Vec<_>>()}})
    }

    /// The cases of `TestCheckVolumeNodeAffinity` of Kubernetes.
    #[test]
    fn volume_is_mounted_on_nodes_with_the_labels_of_one_of_its_terms() {
        let (one, two) = ("test-key1", "test-key2");
        for (name, affinity, is_ok) in [
            ("valid-nil", json!(null), true),
            ("valid-no-constraints", json!({}), true),
            ("select-nothing", json!({"required": {"nodeSelectorTerms": []}}), false),
            ("select-nothing-empty-terms", terms(&[&[]]), false),
            (
                "valid-multiple-terms",
                terms(&[
                    &[("test-key3", &["test-value1", "test-value3"])],
                    &[(two, &["test-value0", "test-value2"])],
                ]),
                true,
            ),
            (
                "valid-multiple-match-expressions",
                terms(&[&[(one, &["test-value1", "test-value3"]), (two, &["test-value0", "test-value2"])]]),
                true,
            ),
            (
                "invalid-multiple-match-expressions-key",
                terms(&[&[
                    (one, &["test-value1", "test-value3"]),
                    ("test-key3", &["test-value0", "test-value2"]),
                ]]),
                false,
            ),
            (
                "invalid-multiple-match-expressions-values",
                terms(&[&[(one, &["test-value3", "test-value4"]), (two, &["test-value0", "test-value2"])]]),
                false,
            ),
            (
                "invalid-multiple-terms",
                terms(&[
                    &[("test-key3", &["test-value1", "test-value3"])],
                    &[(two, &["test-value0", "test-value1"])],
                ]),
                false,
            ),
        ] {
            let expected = is_ok.then_some(()).ok_or_else(|| "no matching NodeSelectorTerms".to_owned());
            assert_eq!(check(affinity), expected, "{name}");
        }
    }

    /// As in the Go kubelet, which compares labels only.
    #[test]
    fn fields_of_a_term_are_ignored_and_an_unknown_node_is_an_error() {
        let expressions = json!([{"key": "test-key1", "operator": "Exists"}]);
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["other"]}]);
        let term = json!({"matchExpressions": expressions, "matchFields": fields});
        let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
        assert_eq!(check(affinity.clone()), Ok(()));
        let affinity = serde_json::from_value(affinity).unwrap();
        let unknown = "error retrieving node: node \"n\" not found".to_owned();
        assert_eq!(check_node_affinity(Some(&affinity), "n", None), Err(unknown));
        assert_eq!(check_node_affinity(None, "n", None), Ok(()));
    }
}
