//! Rules for pods as a whole.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::place::Place;
use super::{Findings, container, names, volume};

pub(super) fn check(pod: &Place<'_>, is_new: bool, found: &mut Findings) {
    let spec = pod.at("spec");
    volume::check_volumes(&spec, found);
    if spec.items("containers").is_empty() {
        found.required("spec.containers", "");
    }
    check_unique(&spec, found);
    for one in spec.items("containers") {
        container::check(&one, &spec, container::Kind::Regular, found);
    }
    for one in spec.items("initContainers") {
        let is_sidecar = one.text_at("restartPolicy") == "Always";
        let kind = if is_sidecar { container::Kind::Sidecar } else { container::Kind::Init };
        container::check(&one, &spec, kind, found);
    }
    for one in spec.items("ephemeralContainers") {
        if is_new {
            found.forbidden("spec.ephemeralContainers", "cannot be set on create");
            break;
        }
        container::check(&one, &spec, container::Kind::Ephemeral, found);
    }
    check_policies(&spec, found);
    check_names(&spec, found);
    check_host(&spec, found);
    check_tolerations(&spec, found);
}

/// Container names are unique in the whole pod.
fn check_unique(spec: &Place<'_>, found: &mut Findings) {
    let mut seen = BTreeSet::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for one in spec.items(list) {
            let name = one.at("name");
            if !name.text().is_empty() && !seen.insert(name.text()) {
                found.duplicate(&name.path, name.text());
            }
        }
    }
}

fn check_policies(spec: &Place<'_>, found: &mut Findings) {
    let restart = spec.at("restartPolicy");
    if restart.text().is_empty() {
        found.required(&restart.path, "");
    } else {
        found.one_of(&restart, &["Always", "OnFailure", "Never"]);
    }
    let dns = spec.at("dnsPolicy");
    found.one_of(&dns, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    if dns.text() == "None" && spec.items("dnsConfig.nameservers").is_empty() {
        let (field, detail) = if spec.at("dnsConfig").is_set() {
            (
                "spec.dnsConfig.nameservers",
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            )
        } else {
            ("spec.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
        };
        found.required(field, detail);
    }
    found.in_range(&spec.at("activeDeadlineSeconds"), 1, i64::from(i32::MAX));
    found.not_negative(&spec.at("terminationGracePeriodSeconds"));
    found.one_of(&spec.at("preemptionPolicy"), &["Never", "PreemptLowerPriority"]);
    found.one_of(&spec.at("os.name"), &["linux", "windows"]);
}

fn check_names(spec: &Place<'_>, found: &mut Findings) {
    for field in ["serviceAccountName", "nodeName", "runtimeClassName", "priorityClassName"] {
        let place = spec.at(field);
        if !place.text().is_empty() {
            found.all_invalid(&place.path, place.text(), names::subdomain_problems(place.text()));
        }
    }
    for field in ["hostname", "subdomain"] {
        let place = spec.at(field);
        if !place.text().is_empty() {
            found.all_invalid(&place.path, place.text(), names::label_problems(place.text()));
        }
    }
    for (key, value) in spec.entries("nodeSelector") {
        found.all_invalid("spec.nodeSelector", key, names::label_key_problems(key));
        found.all_invalid("spec.nodeSelector", value.text(), names::label_value_problems(value.text()));
    }
    for alias in spec.items("hostAliases") {
        let ip = alias.at("ip");
        if ip.text().parse::<IpAddr>().is_err() {
            found.invalid(
                &ip.path,
                ip.text(),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            );
        }
    }
}

fn check_host(spec: &Place<'_>, found: &mut Findings) {
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        found.invalid("spec.shareProcessNamespace", true, detail);
    }
    let has_own_users = spec.at("hostUsers").value.as_bool() == Some(false);
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if has_own_users && spec.flag(field) {
            found.forbidden(format!("spec.{field}"), "when `hostUsers` is false");
        }
    }
}

fn check_tolerations(spec: &Place<'_>, found: &mut Findings) {
    for toleration in spec.items("tolerations") {
        let (key, operator, effect) =
            (toleration.at("key"), toleration.at("operator"), toleration.at("effect"));
        if !key.text().is_empty() {
            found.all_invalid(&key.path, key.text(), names::label_key_problems(key.text()));
        } else if operator.text() != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            found.invalid(&operator.path, operator.text(), detail);
        }
        found.one_of(&operator, &["", "Equal", "Exists"]);
        let value = toleration.text_at("value");
        if operator.text() == "Exists" && !value.is_empty() {
            found.invalid(&operator.path, value, "value must be empty when `operator` is 'Exists'");
        }
        found.one_of(&effect, &["", "NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            found.invalid(&effect.path, effect.text(), detail);
        }
    }
}
