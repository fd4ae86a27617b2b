//! Rules for volumes and volume mounts.

use std::collections::BTreeSet;

use super::field::FieldValue;
use super::{ErrorList, names};

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

pub(super) fn check_volumes(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for volume in spec.items("volumes") {
        let name = volume.at("name");
        if name.text().is_empty() {
            errors.required(&name.path, "");
        } else {
            errors.all_invalid(&name.path, name.text(), names::label_problems(name.text()));
            if !seen.insert(name.text()) {
                errors.duplicate(&name.path, name.text());
            }
        }
        let fields = volume.value.as_object().into_iter().flatten();
        let mut sources =
            fields.filter(|(key, value)| *key != "name" && !value.is_null()).map(|(key, _)| key);
        if sources.next().is_none() {
            errors.required(&volume.path, "must specify a volume type");
        }
        for another in sources {
            errors.forbidden(format!("{}.{another}", volume.path), "may not specify more than 1 volume type");
        }
        check_source(&volume, errors);
    }
}

fn check_source(volume: &FieldValue<'_>, errors: &mut ErrorList) {
    let needed = [
        ("secret", "secretName"),
        ("configMap", "name"),
        ("persistentVolumeClaim", "claimName"),
        ("csi", "driver"),
        ("nfs", "server"),
        ("nfs", "path"),
        ("image", "reference"),
        ("hostPath", "path"),
    ];
    for (source, field) in needed {
        if volume.at(source).is_set() && volume.at(source).text_at(field).is_empty() {
            errors.required(format!("{}.{source}.{field}", volume.path), "");
        }
    }
    let path = volume.at("hostPath.path");
    if has_parent_segment(path.text()) {
        errors.invalid(&path.path, path.text(), "must not contain '..'");
    }
    errors.one_of(&volume.at("hostPath.type"), &HOST_PATH_TYPES);
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        let mode = volume.at(source).at("defaultMode");
        if let Some(bits) = mode.number().filter(|bits| !(0..=0o777).contains(bits)) {
            errors.invalid(&mode.path, bits, "must be a number between 0 and 0777 (octal), both inclusive");
        }
        for item in volume.at(source).items("items") {
            let path = item.at("path");
            if path.text().is_empty() {
                errors.required(&path.path, "");
            } else {
                check_inner_path(&path, errors);
            }
        }
    }
}

pub(super) fn check_mounts(container: &FieldValue<'_>, spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let volumes = spec.value["volumes"].as_array().into_iter().flatten();
    let volumes: BTreeSet<&str> = volumes.filter_map(|volume| volume["name"].as_str()).collect();
    let mut paths = BTreeSet::new();
    for mount in container.items("volumeMounts") {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        if name.text().is_empty() {
            errors.required(&name.path, "");
        } else if !volumes.contains(name.text()) {
            errors.not_found(&name.path, name.text());
        }
        if path.text().is_empty() {
            errors.required(&path.path, "");
        } else if !paths.insert(path.text()) {
            errors.invalid(&path.path, path.text(), "must be unique");
        }
        for field in ["subPath", "subPathExpr"] {
            check_inner_path(&mount.at(field), errors);
        }
        let propagation = mount.at("mountPropagation");
        errors.one_of(&propagation, &["Bidirectional", "HostToContainer", "None"]);
        if propagation.text() == "Bidirectional" && !container.flag("securityContext.privileged") {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.forbidden(&propagation.path, detail);
        }
    }
}

fn has_parent_segment(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// A path inside a volume.
fn check_inner_path(path: &FieldValue<'_>, errors: &mut ErrorList) {
    if path.text().starts_with('/') {
        errors.invalid(&path.path, path.text(), "must be a relative path");
    } else if has_parent_segment(path.text()) {
        errors.invalid(&path.path, path.text(), "must not contain '..'");
    }
}
