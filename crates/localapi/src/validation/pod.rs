//! Rules for pods as a whole.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::field::FieldValue;
use super::{ErrorList, container, names, volume};

pub(super) fn check(pod: &FieldValue<'_>, is_new: bool, errors: &mut ErrorList) {
    let spec = pod.at("spec");
    volume::check_volumes(&spec, errors);
    if spec.items("containers").is_empty() {
        errors.required("spec.containers", "");
    }
    check_unique(&spec, errors);
    for one in spec.items("containers") {
        container::check(&one, &spec, container::Kind::Regular, errors);
    }
    for one in spec.items("initContainers") {
        let is_sidecar = one.text_at("restartPolicy") == "Always";
        let kind = if is_sidecar { container::Kind::Sidecar } else { container::Kind::Init };
        container::check(&one, &spec, kind, errors);
    }
    for one in spec.items("ephemeralContainers") {
        if is_new {
            errors.forbidden("spec.ephemeralContainers", "cannot be set on create");
            break;
        }
        container::check(&one, &spec, container::Kind::Ephemeral, errors);
    }
    check_policies(&spec, errors);
    check_names(&spec, errors);
    check_host(&spec, errors);
    check_tolerations(&spec, errors);
    check_affinity(&spec, errors);
}

fn check_affinity(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let required = spec.at("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_set() && required.items("nodeSelectorTerms").is_empty() {
        let field = format!("{}.nodeSelectorTerms", required.path);
        errors.required(field, "must have at least one node selector term");
    }
}

/// Container names are unique in the whole pod.
fn check_unique(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for one in spec.items(list) {
            let name = one.at("name");
            if !name.text().is_empty() && !seen.insert(name.text()) {
                errors.duplicate(&name.path, name.text());
            }
        }
    }
}

fn check_policies(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let restart = spec.at("restartPolicy");
    if restart.text().is_empty() {
        errors.required(&restart.path, "");
    } else {
        errors.one_of(&restart, &["Always", "OnFailure", "Never"]);
    }
    let dns = spec.at("dnsPolicy");
    errors.one_of(&dns, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    if dns.text() == "None" && spec.items("dnsConfig.nameservers").is_empty() {
        let (field, detail) = if spec.at("dnsConfig").is_set() {
            (
                "spec.dnsConfig.nameservers",
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            )
        } else {
            ("spec.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
        };
        errors.required(field, detail);
    }
    errors.in_range(&spec.at("activeDeadlineSeconds"), 1, i64::from(i32::MAX));
    errors.not_negative(&spec.at("terminationGracePeriodSeconds"));
    errors.one_of(&spec.at("preemptionPolicy"), &["Never", "PreemptLowerPriority"]);
    errors.one_of(&spec.at("os.name"), &["linux", "windows"]);
}

fn check_names(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    for field in ["serviceAccountName", "nodeName", "runtimeClassName", "priorityClassName"] {
        let value = spec.at(field);
        if !value.text().is_empty() {
            errors.all_invalid(&value.path, value.text(), names::subdomain_problems(value.text()));
        }
    }
    for field in ["hostname", "subdomain"] {
        let value = spec.at(field);
        if !value.text().is_empty() {
            errors.all_invalid(&value.path, value.text(), names::label_problems(value.text()));
        }
    }
    for (key, value) in spec.entries("nodeSelector") {
        errors.all_invalid("spec.nodeSelector", key, names::label_key_problems(key));
        errors.all_invalid("spec.nodeSelector", value.text(), names::label_value_problems(value.text()));
    }
    for alias in spec.items("hostAliases") {
        let ip = alias.at("ip");
        if ip.text().parse::<IpAddr>().is_err() {
            errors.invalid(
                &ip.path,
                ip.text(),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            );
        }
    }
}

fn check_host(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid("spec.shareProcessNamespace", true, detail);
    }
    let has_own_users = spec.at("hostUsers").value.as_bool() == Some(false);
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if has_own_users && spec.flag(field) {
            errors.forbidden(format!("spec.{field}"), "when `hostUsers` is false");
        }
    }
}

fn check_tolerations(spec: &FieldValue<'_>, errors: &mut ErrorList) {
    for toleration in spec.items("tolerations") {
        let (key, operator, effect) =
            (toleration.at("key"), toleration.at("operator"), toleration.at("effect"));
        if !key.text().is_empty() {
            errors.all_invalid(&key.path, key.text(), names::label_key_problems(key.text()));
        } else if operator.text() != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&operator.path, operator.text(), detail);
        }
        errors.one_of(&operator, &["", "Equal", "Exists"]);
        let value = toleration.text_at("value");
        if operator.text() == "Exists" && !value.is_empty() {
            errors.invalid(&operator.path, value, "value must be empty when `operator` is 'Exists'");
        }
        errors.one_of(&effect, &["", "NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&effect.path, effect.text(), detail);
        }
    }
}
