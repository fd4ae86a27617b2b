//! Which nodes a pod may run on, by its node selector and its required node affinity (docs/behaviour/admission.md).

use std::collections::BTreeMap;

use model::containers::spec_of;
use model::k8s::Pod;

use base_core::node_selector::selects_any;

/// The pod may run on a node of that name with these labels.
pub(super) fn selects(pod: &Pod, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let spec = spec_of(pod);
    let by_selector = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    by_selector
        && required.is_none_or(|required| selects_any(&required.node_selector_terms, Some(name), labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selects_node(spec: &Value) -> bool {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let labels = [("zone", "a"), ("cores", "8"), ("empty", "")];
        let labels = labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        selects(&pod, "n1", &labels)
    }

    /// Terms of requirements `key op value,value`; a field's begins with `@`.
    #[track_caller]
    fn check(terms: &[&[&str]], expected: bool) {
        let requirement = |text: &str| {
            let mut words = text.trim_start_matches('@').split(' ');
            let (key, operator) = (words.next().unwrap(), words.next().unwrap());
            let values: Vec<_> = words.next().into_iter().flat_map(|list| list.split(',')).collect();
            json!({"key": key, "operator": operator, "values": values})
        };
        let list = |term: &[&str], fields: bool| {
            term.iter().filter(|r| r.starts_with('@') == fields).map(|r| requirement(r)).collect::<Vec<_>>()
        };
        let terms: Vec<_> = terms
            .iter()
            .map(|term| json!({"matchExpressions": list(term, false), "matchFields": list(term, true)}))
            .collect();
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        assert_eq!(selects_node(&json!({"affinity": {"nodeAffinity": required}})), expected, "{terms:?}");
    }

    #[test]
    fn node_selector_operators_match_as_defined() {
        for (requirement, expected) in [
            ("zone In a,b", true),
            ("zone In b", false),
            ("none In a", false),
            ("zone NotIn b", true),
            ("zone NotIn a", false),
            ("none NotIn a", true),
            ("zone Exists", true),
            ("empty Exists", true),
            ("none Exists", false),
            ("none DoesNotExist", true),
            ("zone DoesNotExist", false),
            ("cores Gt 7", true),
            ("cores Gt 8", false),
            ("cores Lt 9", true),
            ("cores Lt 8", false),
            ("cores Gt x", false),
            ("cores Gt 1,2", false),
            ("zone Gt 1", false),
            ("none Lt 1", false),
            ("zone Like a", false),
            ("@metadata.name In n1,n2", true),
            ("@metadata.name NotIn n1", false),
            ("@metadata.name Exists", false),
            ("@spec.x In n1", false),
        ] {
            check(&[&[requirement]], expected);
        }
    }

    #[test]
    fn node_affinity_needs_one_term_with_all_requirements_met() {
        check(&[&["zone In b"], &["zone In a"]], true);
        check(&[&["zone In a", "cores Gt 9"]], false);
        check(&[&["zone In a", "@metadata.name In n2"]], false);
        check(&[&[]], false);
        check(&[], false);
    }

    #[test]
    fn node_selector_needs_every_label() {
        assert!(selects_node(&json!({})));
        assert!(selects_node(&json!({"nodeSelector": {"zone": "a", "cores": "8"}})));
        assert!(!selects_node(&json!({"nodeSelector": {"zone": "a", "cores": "4"}})));
        assert!(!selects_node(&json!({"nodeSelector": {"none": ""}})));
    }
}
