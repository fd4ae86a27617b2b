//! Where a volume is: its `nodeAffinity` and labels name zones and regions as in-tree types did, its driver by labels of its own.

use std::collections::{BTreeMap, BTreeSet};

use model::k8s::{NodeSelectorRequirement, NodeSelectorTerm, PersistentVolumeSpec, VolumeNodeAffinity};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// Between the zones in a label of a PersistentVolume.
pub(super) const SEPARATOR: &str = "__";

/// The labels by which a driver knows where nodes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopologyLabels {
    pub(super) zone: &'static str,
    /// `None`: the driver knows zones only, of which a PersistentVolume may have several.
    pub(super) region: Option<&'static str>,
}

type Labels = BTreeMap<String, String>;

/// Names the topology of the volume as its driver does; what `nodeAffinity` says counts more than labels.
pub(super) fn translate(labels: Option<&Labels>, spec: &mut PersistentVolumeSpec, driver: TopologyLabels) {
    let label = |name: &str| labels.and_then(|labels| labels.get(name)).map(String::as_str);
    let affinity = &mut spec.node_affinity;
    let (zone, region) = used_labels(label, affinity.as_ref());
    match driver.region {
        None => {
            move_topology(
                affinity,
                zone,
                driver.zone,
                label(zone).into_iter().flat_map(|zones| zones.split(SEPARATOR)),
            );
            // Nodes do not have the beta label any more.
            rename(affinity.as_mut(), BETA_REGION, if region == BETA_REGION { REGION } else { BETA_REGION });
        }
        Some(driver_region) => {
            move_topology(affinity, zone, driver.zone, label(zone).into_iter());
            move_topology(affinity, region, driver_region, label(region).into_iter());
        }
    }
}

/// The labels for zone and region that the volume uses.
fn used_labels<'a>(
    label: impl Fn(&str) -> Option<&'a str>,
    affinity: Option<&VolumeNodeAffinity>,
) -> (&'static str, &'static str) {
    let is_selected = |key: &str| expressions(affinity).any(|expression| expression.key == key);
    let is_beta = !is_selected(ZONE)
        && (is_selected(BETA_ZONE) || (label(ZONE).is_none() && label(BETA_ZONE).is_some()));
    if is_beta { (BETA_ZONE, BETA_REGION) } else { (ZONE, REGION) }
}

/// Renames the label; if the affinity does not have it, adds the values to all of its terms.
fn move_topology<'a>(
    affinity: &mut Option<VolumeNodeAffinity>,
    from: &str,
    to: &str,
    values: impl Iterator<Item = &'a str>,
) {
    let has_values = |expression: &NodeSelectorRequirement| {
        expression.key == from && expression.values.as_ref().is_some_and(|values| !values.is_empty())
    };
    if expressions(affinity.as_ref()).any(has_values) {
        return rename(affinity.as_mut(), from, to);
    }
    let values: BTreeSet<&str> = values.map(str::trim).filter(|value| !value.is_empty()).collect();
    if values.is_empty() {
        return;
    }
    let values = values.into_iter().map(str::to_owned).collect();
    let (key, operator) = (to.to_owned(), "In".to_owned());
    let expression = NodeSelectorRequirement { key, operator, values: Some(values) };
    let terms = &mut affinity.get_or_insert_default().required.get_or_insert_default().node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        term.match_expressions.get_or_insert_default().push(expression.clone());
    }
}

fn rename(affinity: Option<&mut VolumeNodeAffinity>, from: &str, to: &str) {
    let terms = affinity.and_then(|affinity| affinity.required.as_mut());
    let terms = terms.into_iter().flat_map(|required| &mut required.node_selector_terms);
    for expression in terms.flat_map(|term| term.match_expressions.iter_mut().flatten()) {
        if expression.key == from {
            expression.key = to.to_owned();
        }
    }
}

fn expressions(affinity: Option<&VolumeNodeAffinity>) -> impl Iterator<Item = &NodeSelectorRequirement> {
    let terms = affinity.and_then(|affinity| affinity.required.as_ref());
    let terms = terms.into_iter().flat_map(|required| &required.node_selector_terms);
    terms.flat_map(|term| term.match_expressions.iter().flatten())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::persistent;
    use super::*;

    const GCE: (&str, &str) = ("gcePersistentDisk", "topology.gke.io/zone");
    const EBS: (&str, &str) = ("awsElasticBlockStore", "topology.ebs.csi.aws.com/zone");
    const CINDER: (&str, &str) = ("cinder", "topology.cinder.csi.openstack.org/zone");
    const VSPHERE: &str = "vsphereVolume";

    fn source(kind: &str) -> Value {
        match kind {
            "gcePersistentDisk" => json!({"pdName": "pd"}),
            "vsphereVolume" => json!({"volumePath": "path"}),
            _ => json!({"volumeID": "vol"}),
        }
    }

    fn affinity(terms: &[&[(&str, &[&str])]]) -> Value {
        let expression =
            |(key, values): &(&str, &[&str])| json!({"key": key, "operator": "In", "values": values});
        let term = |term: &&[(&str, &[&str])]| json!({"matchExpressions": term.iter().map(expression).collect::<Vec<_>>()});
        json!({"required": {"nodeSelectorTerms": terms.iter().map(term).collect::<Vec<_>>()}})
    }

    fn translated(kind: &str, labels: Value, affinity: Value) -> Value {
        let spec = json!({kind: source(kind), "nodeAffinity": affinity});
        let spec = persistent(json!({"metadata": {"labels": labels}, "spec": spec})).unwrap();
        spec.get("nodeAffinity").cloned().unwrap_or_default()
    }

    /// The cases of `TestTopologyTranslation` of Kubernetes.
    #[test]
    fn zones_are_named_as_by_the_driver() {
        let beta = json!({BETA_ZONE: "us-east-1a", BETA_REGION: "us-east-1"});
        let ga = json!({ZONE: "us-east-1a", REGION: "us-east-1"});
        let regional_beta = json!({BETA_ZONE: "europe-west1-b__europe-west1-c"});
        let regional = json!({ZONE: "europe-west1-b__europe-west1-c"});
        let none = || json!(null);
        let (b, c) = ("europe-west1-b", "europe-west1-c");
        for ((kind, key), labels, topology, expected) in [
            (GCE, beta.clone(), none(), &["us-east-1a"][..]),
            (GCE, ga.clone(), none(), &["us-east-1a"]),
            (GCE, none(), affinity(&[&[(BETA_ZONE, &["us-east-2a"])]]), &["us-east-2a"]),
            (GCE, none(), affinity(&[&[(GCE.1, &["us-east-2a"])]]), &["us-east-2a"]),
            (GCE, beta.clone(), affinity(&[&[(BETA_ZONE, &["us-east-2a"])]]), &["us-east-2a"]),
            (GCE, regional_beta.clone(), none(), &[b, c]),
            (GCE, none(), affinity(&[&[(ZONE, &[b, c])]]), &[b, c]),
            (GCE, regional_beta, affinity(&[&[(BETA_ZONE, &["f", "g"])]]), &["f", "g"]),
            (GCE, regional, affinity(&[&[(ZONE, &["f", "g"])]]), &["f", "g"]),
            (EBS, beta.clone(), none(), &["us-east-1a"]),
            (EBS, beta.clone(), affinity(&[&[(BETA_ZONE, &["us-east-2a"])]]), &["us-east-2a"]),
            (EBS, ga.clone(), none(), &["us-east-1a"]),
            (EBS, ga, affinity(&[&[(ZONE, &["us-east-2a"])]]), &["us-east-2a"]),
            (CINDER, beta.clone(), none(), &["us-east-1a"]),
            (CINDER, beta, affinity(&[&[(BETA_ZONE, &["us-east-2a"])]]), &["us-east-2a"]),
        ] {
            let expected = affinity(&[&[(key, expected)]]);
            assert_eq!(
                translated(kind, labels.clone(), topology.clone()),
                expected,
                "{kind} {labels} {topology}"
            );
        }
        let terms = affinity(&[&[(ZONE, &["f"])], &[(ZONE, &["g"])]]);
        let expected = affinity(&[&[(GCE.1, &["f"])], &[(GCE.1, &["g"])]]);
        assert_eq!(translated(GCE.0, none(), terms), expected, "each term");
    }

    /// The cases of `TestTranslateTopologyFromInTreeToCSI` of Kubernetes.
    #[test]
    fn beta_label_of_a_region_becomes_the_present_one() {
        let labels = json!({ZONE: "us-east1-a", REGION: "us-east1"});
        for (zone, region) in [(ZONE, REGION), (BETA_ZONE, BETA_REGION)] {
            let found = affinity(&[&[(zone, &["us-west2-b"]), (region, &["us-west2"])]]);
            let expected = affinity(&[&[(GCE.1, &["us-west2-b"]), (REGION, &["us-west2"])]]);
            assert_eq!(translated(GCE.0, labels.clone(), found), expected);
        }
    }

    /// The values of `TestAddTopology` of Kubernetes.
    #[test]
    fn zones_of_labels_are_sorted_and_empty_ones_left_out() {
        let zones = json!({ZONE: " __us-central1-f__us-central1-a__\t__us-central1-f"});
        let expected = affinity(&[&[(EBS.1, &["us-central1-a", "us-central1-f"])]]);
        assert_eq!(translated(EBS.0, zones, json!(null)), expected);
        assert_eq!(translated(EBS.0, json!({ZONE: " __ "}), json!(null)), json!(null));
        let other = affinity(&[&[("rack", &["1"])], &[("rack", &["2"])]]);
        let expected =
            affinity(&[&[("rack", &["1"]), (EBS.1, &["a"])], &[("rack", &["2"]), (EBS.1, &["a"])]]);
        assert_eq!(translated(EBS.0, json!({ZONE: "a"}), other), expected, "in each term");
    }

    /// As in `TestTranslateVSphereInTreePVToCSI` of Kubernetes.
    #[test]
    fn vsphere_has_labels_for_zones_and_regions() {
        let (zone, region) = ("topology.csi.vmware.com/zone", "topology.csi.vmware.com/region");
        let expected = affinity(&[&[(zone, &["z1"]), (region, &["r1"])]]);
        for (zone, region) in [(ZONE, REGION), (BETA_ZONE, BETA_REGION)] {
            let found = affinity(&[&[(zone, &["z1"]), (region, &["r1"])]]);
            assert_eq!(translated(VSPHERE, json!(null), found), expected);
            assert_eq!(translated(VSPHERE, json!({zone: "z1", region: "r1"}), json!(null)), expected);
        }
    }
}
