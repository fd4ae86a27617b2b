//! Rules for services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::field::FieldValue;
use super::{ErrorList, names};

pub(super) fn check(service: &FieldValue<'_>, old: Option<&FieldValue<'_>>, errors: &mut ErrorList) {
    let spec = service.at("spec");
    let kind = spec.at("type");
    errors.one_of(&kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    errors.one_of(&spec.at("sessionAffinity"), &["ClientIP", "None"]);
    let ip = spec.at("clusterIP");
    let is_headless = ip.text() == "None";
    if kind.text() == "ExternalName" {
        let name = spec.at("externalName");
        if name.text().is_empty() {
            errors.required(&name.path, "");
        }
    } else if spec.items("ports").is_empty() && !is_headless {
        errors.required("spec.ports", "");
    }
    if !ip.text().is_empty() && !is_headless && ip.text().parse::<IpAddr>().is_err() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.invalid("spec.clusterIPs[0]", ip.text(), detail);
    }
    check_ports(&spec, errors);
    for (key, value) in spec.entries("selector") {
        errors.all_invalid("spec.selector", key, names::label_key_problems(key));
        errors.all_invalid("spec.selector", value.text(), names::label_value_problems(value.text()));
    }
    if let Some(old) = old.map(|old| old.at("spec")) {
        let is_named = |spec: &FieldValue<'_>| spec.text_at("type") == "ExternalName";
        let before = old.text_at("clusterIP");
        if !is_named(&spec) && !is_named(&old) && !before.is_empty() && ip.text() != before {
            errors.invalid("spec.clusterIPs[0]", ip.text(), "may not change once set");
        }
    }
}

fn check_ports(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let ports = spec.items("ports");
    let (mut seen_names, mut seen_numbers) = (BTreeSet::new(), BTreeSet::new());
    for port in &ports {
        let (name, number) = (port.at("name"), port.at("port"));
        if !name.text().is_empty() {
            errors.all_invalid(&name.path, name.text(), names::label_problems(name.text()));
            if !seen_names.insert(name.text()) {
                errors.duplicate(&name.path, name.text());
            }
        } else if ports.len() > 1 {
            errors.required(&name.path, "");
        }
        if number.is_set() {
            errors.in_range(&number, 1, 65_535);
        } else {
            errors.invalid(&number.path, 0, "must be between 1 and 65535, inclusive");
        }
        let protocol = port.at("protocol");
        errors.one_of(&protocol, &["SCTP", "TCP", "UDP"]);
        if !seen_numbers.insert((number.number(), protocol.text())) {
            errors.duplicate(&port.path, port.value.clone());
        }
        let target = port.at("targetPort");
        if target.value.is_string() {
            errors.all_invalid(&target.path, target.text(), names::port_name_problems(target.text()));
        } else {
            errors.in_range(&target, 1, 65_535);
        }
    }
}
