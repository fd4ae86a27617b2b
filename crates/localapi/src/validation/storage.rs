//! Rules for CSIDrivers, CSINodes and VolumeAttachments.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field::FieldValue;
use super::{ErrorList, names};

const MAX_NODE_ID: usize = 192;
/// The shortest `nodeAllocatableUpdatePeriodSeconds`.
const MIN_UPDATE_PERIOD: i64 = 10;
const IMMUTABLE: &str = "field is immutable";

pub(super) fn check_driver(driver: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    let period = driver.at("spec.nodeAllocatableUpdatePeriodSeconds");
    if let Some(seconds) = period.number().filter(|seconds| *seconds < MIN_UPDATE_PERIOD) {
        errors.invalid(&period.path, seconds, "must be greater than or equal to 10 seconds");
    }
    let policy = driver.at("spec.fsGroupPolicy");
    errors.one_of(&policy, &["File", "None", "ReadWriteOnceWithFSType"]);
    for field in ["spec.attachRequired", "spec.volumeLifecycleModes"] {
        refuse_change(driver, old, field, errors);
    }
}

pub(super) fn check_node(node: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    let drivers = node.items("spec.drivers");
    let mut seen = BTreeSet::new();
    for driver in &drivers {
        check_node_driver(driver, errors);
        if !seen.insert(driver.text_at("name")) {
            errors.duplicate(driver.at("name").path, driver.text_at("name"));
        }
    }
    // Only the number of volumes may change while a driver is registered.
    let without_count = |driver: &FieldValue<'_>| {
        let mut driver = driver.value.clone();
        driver.as_object_mut().map(|fields| fields.remove("allocatable"));
        driver
    };
    for before in old.map(|old| old.items("spec.drivers")).unwrap_or_default() {
        let now = drivers.iter().find(|driver| driver.text_at("name") == before.text_at("name"));
        if let Some(now) = now.filter(|now| without_count(now) != without_count(&before)) {
            errors.invalid("spec.drivers", now.value.clone(), IMMUTABLE);
        }
    }
}

fn check_node_driver(driver: &FieldValue<'_>, errors: &mut ErrorList) {
    let (name, id) = (driver.at("name"), driver.at("nodeID"));
    errors.all_invalid(&name.path, name.text(), names::subdomain_problems(name.text()));
    if id.text().is_empty() {
        errors.required(&id.path, "");
    }
    if id.text().len() > MAX_NODE_ID {
        errors.invalid(&id.path, id.text(), format!("must be {MAX_NODE_ID} characters or less"));
    }
    errors.not_negative(&driver.at("allocatable.count"));
    let mut seen = BTreeSet::new();
    for key in driver.items("topologyKeys") {
        errors.all_invalid(&driver.path, key.text(), names::label_key_problems(key.text()));
        if !seen.insert(key.text()) {
            errors.duplicate(&driver.path, key.text());
        }
    }
}

pub(super) fn check_attachment(
    attachment: &FieldValue<'_>,
    old: Option<&FieldValue<'_>>,
    errors: &mut ErrorList,
) {
    for field in ["spec.attacher", "spec.nodeName"] {
        if attachment.text_at(field).is_empty() {
            errors.required(field, "");
        }
    }
    let source = attachment.at("spec.source");
    let is_set = |field: &str| source.at(field).is_set();
    if !is_set("persistentVolumeName") && !is_set("inlineVolumeSpec") {
        errors
            .required(&source.path, "must specify exactly one of inlineVolumeSpec and persistentVolumeName");
    }
    refuse_change(attachment, old, "spec", errors);
}

fn refuse_change(object: &FieldValue<'_>, old: Option<&FieldValue<'_>>, field: &str, errors: &mut ErrorList) {
    let value = |object: &FieldValue<'_>| -> Value { object.at(field).value.clone() };
    if old.is_some_and(|old| value(old) != value(object)) {
        errors.invalid(field, value(object), IMMUTABLE);
    }
}
