//! Rules for the pod as a whole.

use std::collections::BTreeSet;

use base_core::decimal::decimal;
use base_core::names;
use model::containers::{init_containers, regular_containers, spec_of};
use model::k8s::{Pod, PodDNSConfig, PodSpec};

use super::{Findings, container, fields, security, volumes};

const MAX_SECONDS: i64 = 2_147_483_647;

pub(super) fn check_metadata(pod: &Pod, found: &mut Findings<'_>) {
    let meta = &pod.metadata;
    match meta.name.as_deref().unwrap_or_default() {
        "" => found.required("metadata.name", "name or generateName is required"),
        name => {
            if let Some(problem) = names::subdomain_problem(name) {
                found.invalid("metadata.name", name, problem);
            }
        }
    }
    match meta.namespace.as_deref().unwrap_or_default() {
        "" => found.required("metadata.namespace", ""),
        namespace => {
            if let Some(problem) = names::label_problem(namespace) {
                found.invalid("metadata.namespace", namespace, problem);
            }
        }
    }
    // The API server gives pods their UIDs; only a manifest can bring a bad one.
    let uid = meta.uid.as_deref().filter(|uid| !uid.is_empty());
    if let Some((uid, problem)) = uid.and_then(|uid| Some((uid, model::pod_uid_problem(uid)?))) {
        found.invalid("metadata.uid", uid, problem);
    }
    for (key, value) in meta.labels.iter().flatten() {
        if let Some(problem) = names::qualified_name_problem(key) {
            found.invalid("metadata.labels", key.as_str(), problem);
        }
        if let Some(problem) = names::label_value_problem(value) {
            found.invalid("metadata.labels", value.as_str(), problem);
        }
    }
    for key in meta.annotations.iter().flat_map(|all| all.keys()) {
        // Unlike those of labels, keys of annotations may have capitals in their prefix.
        if let Some(problem) = names::qualified_name_problem(&key.to_lowercase()) {
            found.invalid("metadata.annotations", key.as_str(), problem);
        }
    }
}

pub(super) fn check_spec(pod: &Pod, found: &mut Findings<'_>) {
    let spec = spec_of(pod);
    volumes::check_volumes(spec, found);
    if spec.containers.is_empty() {
        found.required("spec.containers", "");
    }
    let containers: Vec<_> = regular_containers(pod).chain(init_containers(pod)).collect();
    container::check_unique(&containers, found);
    for one in &containers {
        container::check_container(one, spec, found);
    }
    if spec.ephemeral_containers.as_ref().is_some_and(|all| !all.is_empty()) {
        found.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    check_policies(spec, found);
    check_host_names(spec, found);
    check_dns(spec, found);
    check_namespaces(spec, found);
    security::check_pod_security(spec, found);
    check_tolerations(spec, found);
    if let Some(resources) = &spec.resources {
        container::check_pod_resources(resources, found);
    }
}

fn check_policies(spec: &PodSpec, found: &mut Findings<'_>) {
    match spec.restart_policy.as_deref().unwrap_or_default() {
        "" => found.required("spec.restartPolicy", ""),
        policy => found.one_of("spec.restartPolicy", Some(policy), &["Always", "Never", "OnFailure"]),
    }
    found.not_negative("spec.terminationGracePeriodSeconds", spec.termination_grace_period_seconds);
    if let Some(seconds) = spec.active_deadline_seconds {
        found.in_range("spec.activeDeadlineSeconds", seconds, 1..=MAX_SECONDS);
    }
    found.one_of(
        "spec.preemptionPolicy",
        spec.preemption_policy.as_deref(),
        &["Never", "PreemptLowerPriority"],
    );
    found.one_of("spec.os.name", spec.os.as_ref().map(|os| os.name.as_str()), &["linux", "windows"]);
    let classes =
        [("priorityClassName", &spec.priority_class_name), ("runtimeClassName", &spec.runtime_class_name)];
    for (field, name) in classes {
        let given = name.as_deref().filter(|name| !name.is_empty());
        if let Some((name, problem)) = given.and_then(|name| Some((name, names::subdomain_problem(name)?))) {
            found.invalid(format!("spec.{field}"), name, problem);
        }
    }
}

fn check_host_names(spec: &PodSpec, found: &mut Findings<'_>) {
    let labels = [("spec.hostname", &spec.hostname), ("spec.subdomain", &spec.subdomain)];
    for (path, name) in labels {
        let given = name.as_deref().filter(|name| !name.is_empty());
        if let Some((name, problem)) = given.and_then(|name| Some((name, names::label_problem(name)?))) {
            found.invalid(path, name, problem);
        }
    }
    if let Some(name) = spec.hostname_override.as_deref() {
        let path = "spec.hostnameOverride";
        if let Some(problem) = names::subdomain_problem(name) {
            found.invalid(path, name, problem);
        } else if name.len() > 64 {
            found.invalid(path, name, "must be no more than 64 characters");
        }
        if spec.host_network == Some(true) {
            found.forbidden(path, "may not be specified when hostNetwork is true");
        }
        if spec.set_hostname_as_fqdn == Some(true) {
            found.forbidden(path, "may not be specified when setHostnameAsFQDN is true");
        }
    }
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let path = format!("spec.hostAliases[{index}]");
        fields::check_ip(&format!("{path}.ip"), &alias.ip, found);
        for (at, name) in alias.hostnames.iter().flatten().enumerate() {
            if let Some(problem) = names::subdomain_problem(name) {
                found.invalid(format!("{path}.hostnames[{at}]"), name.as_str(), problem);
            }
        }
    }
}

const DNS_POLICIES: [&str; 4] = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];

fn check_dns(spec: &PodSpec, found: &mut Findings<'_>) {
    let policy = spec.dns_policy.as_deref().unwrap_or_default();
    found.one_of("spec.dnsPolicy", Some(policy), &DNS_POLICIES);
    let path = "spec.dnsConfig";
    match &spec.dns_config {
        None if policy == "None" => {
            found.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        None => {}
        Some(config) => check_dns_config(path, policy, config, found),
    }
}

fn check_dns_config(path: &str, policy: &str, config: &PodDNSConfig, found: &mut Findings<'_>) {
    let servers = config.nameservers.as_deref().unwrap_or_default();
    let servers_path = format!("{path}.nameservers");
    if policy == "None" && servers.is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        found.required(servers_path.as_str(), detail);
    }
    if servers.len() > 3 {
        let text = servers.join(",");
        found.invalid(servers_path.as_str(), text.as_str(), "must not have more than 3 nameservers");
    }
    for (index, server) in servers.iter().enumerate() {
        fields::check_ip(&format!("{servers_path}[{index}]"), server, found);
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    let searches_path = format!("{path}.searches");
    if searches.len() > 32 {
        let text = searches.join(",");
        found.invalid(searches_path.as_str(), text.as_str(), "must not have more than 32 search paths");
    }
    if searches.join(" ").len() > 2048 {
        let text = searches.join(",");
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        found.invalid(searches_path.as_str(), text.as_str(), detail);
    }
    for (index, search) in searches.iter().enumerate() {
        if let Some(problem) = names::search_path_problem(search) {
            found.invalid(format!("{searches_path}[{index}]"), search.as_str(), problem);
        }
    }
    for (index, option) in config.options.iter().flatten().enumerate() {
        if option.name.as_deref().unwrap_or_default().is_empty() {
            found.required(format!("{path}.options[{index}]"), "must not be empty");
        }
    }
}

fn check_namespaces(spec: &PodSpec, found: &mut Findings<'_>) {
    let is_on = |flag: Option<bool>| flag == Some(true);
    if is_on(spec.share_process_namespace) && is_on(spec.host_pid) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        found.invalid("spec.shareProcessNamespace", true, detail);
    }
    if spec.host_users == Some(false) {
        let host_network = spec.host_network.filter(|_| !found.features.user_namespaces_host_network);
        let shared = [
            ("spec.hostNetwork", host_network),
            ("spec.hostPID", spec.host_pid),
            ("spec.hostIPC", spec.host_ipc),
        ];
        for (path, _) in shared.into_iter().filter(|(_, flag)| is_on(*flag)) {
            found.forbidden(path, "when `hostUsers` is false");
        }
    }
}

fn check_tolerations(spec: &PodSpec, found: &mut Findings<'_>) {
    let mut seen = BTreeSet::new();
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        let path = format!("spec.tolerations[{index}]");
        let key = toleration.key.as_deref().unwrap_or_default();
        let operator = toleration.operator.as_deref().unwrap_or_default();
        let effect = toleration.effect.as_deref().filter(|effect| !effect.is_empty());
        if let Some(problem) = names::qualified_name_problem(key).filter(|_| !key.is_empty()) {
            found.invalid(format!("{path}.key"), key, problem);
        }
        if key.is_empty() && operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            found.invalid(format!("{path}.operator"), operator, detail);
        }
        let value = toleration.value.as_deref().unwrap_or_default();
        if found.features.comparing_tolerations {
            found.one_of(format!("{path}.operator"), Some(operator), &["", "Equal", "Exists", "Gt", "Lt"]);
            if ["Gt", "Lt"].contains(&operator) && decimal(value).is_none() {
                found.invalid(
                    format!("{path}.value"),
                    value,
                    "must be a valid decimal integer in canonical form",
                );
            }
        } else {
            found.one_of(format!("{path}.operator"), Some(operator), &["", "Equal", "Exists"]);
        }
        if operator == "Exists" && !value.is_empty() {
            found.invalid(
                format!("{path}.operator"),
                value,
                "value must be empty when `operator` is 'Exists'",
            );
        }
        found.one_of(format!("{path}.effect"), effect, &["NoExecute", "NoSchedule", "PreferNoSchedule"]);
        if toleration.toleration_seconds.is_some() && effect != Some("NoExecute") {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            found.invalid(format!("{path}.effect"), effect.unwrap_or_default(), detail);
        }
        if !seen.insert((key, operator, value, effect)) {
            found.duplicate(path, key);
        }
    }
}
