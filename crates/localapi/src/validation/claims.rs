//! Rules for PersistentVolumes and their claims.

use model::Amount;

use super::field::FieldValue;
use super::{ErrorList, names};
use crate::amounts;

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];
const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const SELECTOR_OPERATORS: &[&str] = &["DoesNotExist", "Exists", "In", "NotIn"];
/// The fields of a volume that are no source.
const NO_SOURCES: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];
const IMMUTABLE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

pub(super) fn check_claim(claim: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    let spec = claim.at("spec");
    check_modes(&spec, "at least 1 access mode is required", errors);
    let selector = spec.at("selector");
    for expression in selector.items("matchExpressions") {
        let operator = expression.at("operator");
        if !SELECTOR_OPERATORS.contains(&operator.text()) {
            errors.invalid(&operator.path, operator.text(), "not a valid selector operator");
        }
    }
    // The path is that of the real server.
    let requested = FieldValue {
        path: format!("{}.resources[storage]", spec.path),
        value: spec.at("resources.requests.storage").value,
    };
    check_size(&requested, errors);
    check_class_and_mode(&spec, errors);
    if let Some(old) = old {
        check_claim_update(claim, old, errors);
    }
}

fn check_modes(spec: &FieldValue<'_>, required: &str, errors: &mut ErrorList) {
    let modes = spec.items("accessModes");
    let path = spec.at("accessModes").path;
    if modes.is_empty() {
        errors.required(&path, required);
    }
    for mode in &modes {
        errors.one_of(&FieldValue { path: path.clone(), value: mode.value }, MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode.text() == "ReadWriteOncePod") {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn check_size(size: &FieldValue<'_>, errors: &mut ErrorList) {
    match amounts::parse(size.value) {
        None if !size.is_set() => errors.required(&size.path, ""),
        None => errors.invalid(&size.path, size.value.clone(), "must be a quantity such as 500Mi or 1Gi"),
        Some(amount) if amount <= Amount::ZERO => {
            errors.invalid(&size.path, size.value.clone(), "must be greater than zero");
        }
        Some(_) => {}
    }
}

fn check_class_and_mode(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let class = spec.at("storageClassName");
    if !class.text().is_empty() {
        errors.all_invalid(&class.path, class.text(), names::subdomain_problems(class.text()));
    }
    errors.one_of(&spec.at("volumeMode"), VOLUME_MODES);
}

/// A claim may get its volume, and a bound one another size.
fn check_claim_update(claim: &FieldValue<'_>, old: &FieldValue<'_>, errors: &mut ErrorList) {
    let is_bound = old.text_at("status.phase") == "Bound";
    let storage = |claim: &FieldValue<'_>| amounts::parse(claim.at("spec.resources.requests.storage").value);
    let comparable = |claim: &FieldValue<'_>| {
        let mut spec = claim.at("spec").value.clone();
        if let Some(fields) = spec.as_object_mut() {
            if is_bound {
                fields.remove("resources");
                fields.remove("volumeAttributesClassName");
            }
            if old.text_at("spec.volumeName").is_empty() {
                fields.remove("volumeName");
            }
        }
        spec
    };
    if comparable(claim) != comparable(old) {
        errors.forbidden("spec", IMMUTABLE);
    }
    let capacity = amounts::parse(old.at("status.capacity.storage").value);
    let is_smaller =
        storage(claim) < storage(old) && capacity.is_some_and(|capacity| storage(claim) < Some(capacity));
    if is_bound && is_smaller {
        errors.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity");
    }
}

pub(super) fn check_volume(volume: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    let spec = volume.at("spec");
    check_modes(&spec, "", errors);
    let capacity = spec.at("capacity");
    let amounts = spec.entries("capacity");
    if amounts.is_empty() {
        errors.required(&capacity.path, "");
    }
    match amounts.as_slice() {
        [(name, size)] if *name == "storage" => check_size(size, errors),
        _ => errors.unsupported(&capacity.path, capacity.value, &["storage"]),
    }
    errors.one_of(&spec.at("persistentVolumeReclaimPolicy"), POLICIES);
    check_source(&spec, errors);
    check_class_and_mode(&spec, errors);
    let affinity = spec.at("nodeAffinity");
    let terms = affinity.at("required.nodeSelectorTerms");
    if affinity.is_set() && affinity.items("required.nodeSelectorTerms").is_empty() {
        errors.required(terms.path, "must have at least one node selector term");
    }
    if let Some(old) = old
        && source_of(&spec).map(|source| source.value)
            != source_of(&old.at("spec")).map(|source| source.value)
    {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden("spec.persistentvolumesource", detail);
    }
}

/// The sources of a volume, of which there must be one.
fn sources<'a>(spec: &FieldValue<'a>) -> Vec<FieldValue<'a>> {
    let fields = spec.value.as_object().into_iter().flatten();
    let set = fields.filter(|(name, value)| !NO_SOURCES.contains(&name.as_str()) && value.is_object());
    set.map(|(name, _)| spec.at(name)).collect()
}

fn source_of<'a>(spec: &FieldValue<'a>) -> Option<FieldValue<'a>> {
    sources(spec).into_iter().next()
}

fn check_source(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let sources = sources(spec);
    match sources.as_slice() {
        [] => errors.required(&spec.path, "must specify a volume type"),
        [_, rest @ ..] => {
            for other in rest {
                errors.forbidden(&other.path, "may not specify more than 1 volume type");
            }
        }
    }
    let host_path = spec.at("hostPath");
    if host_path.is_set() {
        check_host_path(spec, &host_path, errors);
    }
    if spec.at("csi").is_set() {
        let (driver, handle) = (spec.at("csi.driver"), spec.at("csi.volumeHandle"));
        if driver.text().is_empty() {
            errors.required(&driver.path, "");
        } else {
            errors.all_invalid(&driver.path, driver.text(), names::subdomain_problems(driver.text()));
        }
        if handle.text().is_empty() {
            errors.required(&handle.path, "");
        }
    }
    if spec.at("nfs").is_set() {
        let (server, path) = (spec.at("nfs.server"), spec.at("nfs.path"));
        if server.text().is_empty() {
            errors.required(&server.path, "");
        }
        match path.text() {
            "" => errors.required(&path.path, ""),
            text if !text.starts_with('/') => errors.invalid(&path.path, text, "must be an absolute path"),
            _ => {}
        }
    }
    if spec.at("local").is_set() {
        check_path(&spec.at("local.path"), errors);
    }
}

fn check_host_path(spec: &FieldValue<'_>, host_path: &FieldValue<'_>, errors: &mut ErrorList) {
    let path = host_path.at("path");
    check_path(&path, errors);
    errors.one_of_all(&host_path.at("type"), HOST_PATH_TYPES);
    if path.text() == "/" && spec.text_at("persistentVolumeReclaimPolicy") == "Recycle" {
        let field = spec.at("persistentVolumeReclaimPolicy").path;
        errors.forbidden(field, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

fn check_path(path: &FieldValue<'_>, errors: &mut ErrorList) {
    if path.text().is_empty() {
        errors.required(&path.path, "");
    }
    if path.text().split('/').any(|part| part == "..") {
        errors.invalid(&path.path, path.text(), "must not contain '..'");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validation::check;

    fn problems(resource: &str, object: &Value, old: Option<&Value>) -> String {
        check(resource, object, old).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    fn claim(change: &Value) -> Value {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "a"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"},
        });
        for (field, value) in change.as_object().unwrap() {
            claim["spec"][field] = value.clone();
        }
        claim
    }

    fn volume(change: &Value) -> Value {
        let mut volume = json!({
            "metadata": {"name": "v"},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/srv"}},
        });
        for (field, value) in change.as_object().unwrap() {
            volume["spec"][field] = value.clone();
        }
        volume
    }

    #[test]
    fn claim_needs_modes_and_a_size() {
        for (change, expected) in [
            (json!({}), ""),
            (
                json!({"accessModes": []}),
                "spec.accessModes: Required value: at least 1 access mode is required",
            ),
            (
                json!({"accessModes": ["ReadSometimes"]}),
                r#"spec.accessModes: Unsupported value: "ReadSometimes": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod""#,
            ),
            (
                json!({"accessModes": ["ReadWriteOncePod", "ReadWriteMany"]}),
                "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
            ),
            (json!({"resources": {}}), "spec.resources[storage]: Required value"),
            (
                json!({"resources": {"requests": {"storage": "0"}}}),
                r#"spec.resources[storage]: Invalid value: "0": must be greater than zero"#,
            ),
            (
                json!({"volumeMode": "Tape"}),
                r#"spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem""#,
            ),
            (
                json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
                r#"spec.selector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator"#,
            ),
        ] {
            assert_eq!(problems("persistentvolumeclaims", &claim(&change), None), expected, "{change}");
        }
    }

    #[test]
    fn bound_claim_may_grow_and_change_nothing_else() {
        let mut old = claim(&json!({"volumeName": "v"}));
        old["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
        let changed = |change: Value| {
            let mut new = old.clone();
            for (field, value) in change.as_object().unwrap() {
                new["spec"][field] = value.clone();
            }
            problems("persistentvolumeclaims", &new, Some(&old))
        };
        let size = |size: &str| json!({"resources": {"requests": {"storage": size}}});
        assert_eq!(changed(size("2Gi")), "");
        assert!(changed(size("1Mi")).contains("field can not be less than status.capacity"));
        assert!(changed(json!({"volumeName": "other"})).starts_with("spec: Forbidden: spec is immutable"));
        let pending = claim(&json!({}));
        assert_eq!(
            problems("persistentvolumeclaims", &claim(&json!({"volumeName": "v"})), Some(&pending)),
            ""
        );
        assert!(
            problems("persistentvolumeclaims", &claim(&size("2Gi")), Some(&pending)).contains("immutable")
        );
    }

    #[test]
    fn volume_needs_modes_a_capacity_and_one_source() {
        for (change, expected) in [
            (json!({}), ""),
            (json!({"accessModes": []}), "spec.accessModes: Required value"),
            (
                json!({"capacity": {}}),
                r#"spec.capacity: Required value; spec.capacity: Unsupported value: {}: supported values: "storage""#,
            ),
            (
                json!({"capacity": {"storage": "0"}}),
                r#"spec.capacity[storage]: Invalid value: "0": must be greater than zero"#,
            ),
            (json!({"hostPath": null}), "spec: Required value: must specify a volume type"),
            (
                json!({"nfs": {"server": "s", "path": "/p"}}),
                "spec.nfs: Forbidden: may not specify more than 1 volume type",
            ),
            (
                json!({"persistentVolumeReclaimPolicy": "Burn"}),
                r#"spec.persistentVolumeReclaimPolicy: Unsupported value: "Burn": supported values: "Delete", "Recycle", "Retain""#,
            ),
            (
                json!({"hostPath": {"path": "/a/../b"}}),
                r#"spec.hostPath.path: Invalid value: "/a/../b": must not contain '..'"#,
            ),
            (
                json!({"hostPath": null, "csi": {"driver": "", "volumeHandle": ""}}),
                "spec.csi.driver: Required value; spec.csi.volumeHandle: Required value",
            ),
            (
                json!({"hostPath": null, "nfs": {"server": "", "path": "x"}}),
                r#"spec.nfs.server: Required value; spec.nfs.path: Invalid value: "x": must be an absolute path"#,
            ),
            (
                json!({"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}),
                "spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term",
            ),
        ] {
            assert_eq!(problems("persistentvolumes", &volume(&change), None), expected, "{change}");
        }
        let moved = problems(
            "persistentvolumes",
            &volume(&json!({"hostPath": {"path": "/other"}})),
            Some(&volume(&json!({}))),
        );
        assert!(moved.contains("spec.persistentvolumesource is immutable after creation"), "{moved}");
    }
}
