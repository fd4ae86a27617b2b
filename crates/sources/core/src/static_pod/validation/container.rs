//! Rules for one container, and for containers among each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use base_core::names;
use model::containers::ContainerRef;
use model::k8s::{
    ContainerPort, ContainerRestartRule, EnvVar, EnvVarSource, FileKeySelector, PodSpec, Quantity,
    ResourceRequirements,
};
use model::{Amount, ContainerKind};

use super::{Findings, container_path, fields, handlers, security, volumes};

/// Names are unique in the whole pod, host ports among the containers that run at the same time.
pub(super) fn check_unique(containers: &[ContainerRef<'_>], found: &mut Findings<'_>) {
    let mut seen = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    for container in containers {
        let path = container_path(container);
        if !container.name().is_empty() && !seen.insert(container.name()) {
            found.duplicate(format!("{path}.name"), container.name());
        }
        let runs_with_others = match container.kind {
            ContainerKind::Regular | ContainerKind::Sidecar | ContainerKind::Ephemeral => true,
            ContainerKind::Init => false,
        };
        let ports = container.ports().iter().enumerate().filter(|_| runs_with_others);
        for (index, port) in ports {
            let Some(host_port) = port.host_port.filter(|number| *number != 0) else {
                continue;
            };
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let key = format!("{protocol}/{}/{host_port}", port.host_ip.as_deref().unwrap_or_default());
            if !host_ports.insert(key.clone()) {
                found.duplicate(format!("{path}.ports[{index}].hostPort"), &key);
            }
        }
    }
}

pub(super) fn check_container(container: &ContainerRef<'_>, spec: &PodSpec, found: &mut Findings<'_>) {
    let path = container_path(container);
    match container.name() {
        "" => found.required(format!("{path}.name"), ""),
        name => {
            if let Some(problem) = names::label_problem(name) {
                found.invalid(format!("{path}.name"), name, problem);
            }
        }
    }
    let image = container.image();
    if image.is_empty() {
        found.required(format!("{path}.image"), "");
    } else if image.trim() != image {
        found.invalid(format!("{path}.image"), image, "must not have leading or trailing whitespace");
    }
    let pull_policies = ["Always", "IfNotPresent", "Never"];
    found.one_of(format!("{path}.imagePullPolicy"), container.image_pull_policy(), &pull_policies);
    let message_policies = ["FallbackToLogsOnError", "File"];
    let message_policy = container.termination_message_policy();
    found.one_of(format!("{path}.terminationMessagePolicy"), Some(message_policy), &message_policies);
    check_ports(&path, container.ports(), spec, found);
    check_env(&path, container, found);
    volumes::check_mounts(&path, container, found);
    if let Some(resources) = container.resources() {
        check_resources(&format!("{path}.resources"), resources, spec, found);
    }
    if let Some(context) = container.security_context() {
        security::check_container_security(&format!("{path}.securityContext"), context, spec, found);
    }
    handlers::check_handlers(&path, container, spec, found);
    check_restart(&path, container, found);
}

const PORT_RANGE: RangeInclusive<i64> = 1..=65_535;

fn check_ports(path: &str, ports: &[ContainerPort], spec: &PodSpec, found: &mut Findings<'_>) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let problems = names::port_name_problems(name);
            if problems.is_empty() && !seen.insert(name) {
                found.duplicate(format!("{path}.name"), name);
            }
            for problem in problems {
                found.invalid(format!("{path}.name"), name, problem);
            }
        }
        match port.container_port {
            0 => found.required(format!("{path}.containerPort"), ""),
            number => found.in_range(format!("{path}.containerPort"), number, PORT_RANGE),
        }
        if let Some(number) = port.host_port.filter(|number| *number != 0) {
            found.in_range(format!("{path}.hostPort"), number, PORT_RANGE);
            if spec.host_network == Some(true) && number != port.container_port {
                let detail = "must match `hostPort` when `hostNetwork` is true";
                found.invalid(format!("{path}.containerPort"), port.container_port, detail);
            }
        }
        let protocol = port.protocol.as_deref();
        found.one_of(format!("{path}.protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        if let Some(ip) = port.host_ip.as_deref().filter(|ip| !ip.is_empty()) {
            fields::check_ip(&format!("{path}.hostIP"), ip, found);
        }
    }
}

fn check_env(path: &str, container: &ContainerRef<'_>, found: &mut Findings<'_>) {
    for (index, variable) in container.env().iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        if variable.name.is_empty() {
            found.required(format!("{path}.name"), "");
        } else if let Some(problem) = names::env_name_problem(&variable.name) {
            found.invalid(format!("{path}.name"), variable.name.as_str(), problem);
        }
        if let Some(source) = &variable.value_from {
            let path = format!("{path}.valueFrom");
            check_env_source(&path, variable, source, found);
            if let Some(file) = &source.file_key_ref {
                check_env_file(&format!("{path}.fileKeyRef"), file, found);
            }
        }
    }
    for (index, source) in container.env_from().iter().enumerate() {
        let path = format!("{path}.envFrom[{index}]");
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(problem) = names::env_name_problem(prefix) {
            found.invalid(format!("{path}.prefix"), prefix, problem);
        }
        match (source.config_map_ref.is_some(), source.secret_ref.is_some()) {
            (false, false) => found.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            (true, true) => found.invalid(path, "", "may not have more than one field specified at a time"),
            (true, false) | (false, true) => {}
        }
    }
}

/// Fields that a variable can show; labels and annotations only one at a time.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn check_env_source(path: &str, variable: &EnvVar, source: &EnvVarSource, found: &mut Findings<'_>) {
    let given = [
        source.field_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.config_map_key_ref.is_some(),
        source.secret_key_ref.is_some(),
        source.file_key_ref.is_some(),
    ];
    let is_valued = variable.value.as_deref().is_some_and(|value| !value.is_empty());
    match given.iter().filter(|is_given| **is_given).count() {
        0 => found.invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ),
        _ if is_valued => found.invalid(path, "", "may not be specified when `value` is not empty"),
        1 => {}
        _ => found.invalid(path, "", "may not have more than one field specified at a time"),
    }
    if let Some(field) = &source.field_ref {
        let is_one_of_many = |map: &str| {
            field.field_path.strip_prefix(map).is_some_and(|key| key.starts_with("['") && key.ends_with("']"))
        };
        if !is_one_of_many("metadata.labels") && !is_one_of_many("metadata.annotations") {
            found.one_of(format!("{path}.fieldRef.fieldPath"), Some(field.field_path.as_str()), &ENV_FIELDS);
        }
    }
    if let Some(field) = &source.resource_field_ref {
        fields::check_resource_field(
            &format!("{path}.resourceFieldRef"),
            &field.resource,
            field.divisor.as_ref(),
            found,
        );
    }
}

/// Names of variables in a file are no longer than this.
const LONGEST_FILE_KEY: usize = 128;

/// The file must be in an emptyDir of the pod: only what its own containers write is read back.
fn check_env_file(path: &str, file: &FileKeySelector, found: &mut Findings<'_>) {
    match file.key.as_str() {
        "" => found.required(format!("{path}.key"), ""),
        key if key.len() > LONGEST_FILE_KEY => {
            found.invalid(format!("{path}.key"), key, "must be no more than 128 bytes");
        }
        key => {
            if let Some(problem) = names::env_name_problem(key) {
                found.invalid(format!("{path}.key"), key, problem);
            }
        }
    }
    match file.path.as_str() {
        "" => found.required(format!("{path}.path"), ""),
        inner => {
            if let Some(problem) = names::inner_path_problem(inner) {
                found.invalid(format!("{path}.path"), inner, problem);
            }
        }
    }
    let name = file.volume_name.as_str();
    match found.volumes.get(name).copied() {
        _ if name.is_empty() => found.required(format!("{path}.volumeName"), ""),
        None => found.not_found(format!("{path}.volumeName"), name),
        Some(volume) if volume.empty_dir.is_none() => {
            found.invalid(format!("{path}.volumeName"), name, "must name an emptyDir volume");
        }
        Some(_) => {}
    }
}

fn check_resources(path: &str, resources: &ResourceRequirements, spec: &PodSpec, found: &mut Findings<'_>) {
    let is_known = |name: &str| {
        matches!(name, "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-")
            || (name.contains('/') && names::qualified_name_problem(name).is_none())
    };
    for (side, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for (name, quantity) in amounts.iter().flatten() {
            if !is_known(name) {
                let detail = "must be a standard resource for containers";
                found.invalid(format!("{path}.{side}"), name.as_str(), detail);
            }
            check_amount(&format!("{path}.{side}[{name}]"), quantity, found);
        }
    }
    check_request_limit_pairs(path, resources, found);
    let asks = |wanted: fn(&str) -> bool| {
        let sides = [&resources.limits, &resources.requests];
        sides.into_iter().flatten().flat_map(BTreeMap::keys).any(|name| wanted(name))
    };
    let of_pod = spec.resources.is_some();
    if asks(|name| name.starts_with("hugepages-"))
        && !asks(|name| matches!(name, "cpu" | "memory"))
        && !of_pod
    {
        found.forbidden(path, "HugePages require cpu or memory");
    }
    if resources.claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        found.forbidden(format!("{path}.claims"), "static pods may not reference resourceclaims");
    }
}

fn check_amount(path: &str, quantity: &Quantity, found: &mut Findings<'_>) {
    match Amount::of(quantity) {
        Err(error) => found.invalid(path, quantity.0.as_str(), error.to_string()),
        Ok(amount) if amount < Amount::ZERO => {
            found.invalid(path, quantity.0.as_str(), "must be greater than or equal to 0");
        }
        Ok(_) => {}
    }
}

/// No request above its limit; what cannot be overcommitted is requested exactly as it is limited.
fn check_request_limit_pairs(path: &str, resources: &ResourceRequirements, found: &mut Findings<'_>) {
    let amount = |quantity: &Quantity| Amount::of(quantity).ok();
    for (name, written) in resources.requests.iter().flatten() {
        let limit = resources.limits.as_ref().and_then(|limits| limits.get(name));
        let overcommits = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        let path = format!("{path}.requests");
        match (amount(written), limit, limit.and_then(amount)) {
            (Some(request), Some(text), Some(limit)) if overcommits && request > limit => {
                let detail = format!("must be less than or equal to {name} limit of {}", text.0);
                found.invalid(path, written.0.as_str(), detail);
            }
            (Some(request), Some(text), Some(limit)) if !overcommits && request != limit => {
                let detail = format!("must be equal to {name} limit of {}", text.0);
                found.invalid(path, written.0.as_str(), detail);
            }
            (Some(_), None, _) if !overcommits => {
                found.required(path, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
}

/// Resources of the pod as a whole.
pub(super) fn check_pod_resources(resources: &ResourceRequirements, found: &mut Findings<'_>) {
    for (side, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for (name, quantity) in amounts.iter().flatten() {
            let path = format!("spec.resources.{side}[{name}]");
            if !name.starts_with("hugepages-") {
                found.one_of(path.as_str(), Some(name), &["cpu", "memory"]);
            }
            check_amount(&path, quantity, found);
        }
    }
    check_request_limit_pairs("spec.resources", resources, found);
}

const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;

fn check_restart(path: &str, container: &ContainerRef<'_>, found: &mut Findings<'_>) {
    found.one_of(format!("{path}.restartPolicy"), container.restart_policy(), &RESTART_POLICIES);
    let rules = container.restart_policy_rules();
    if !rules.is_empty() && container.restart_policy().is_none() {
        found.required(
            format!("{path}.restartPolicy"),
            "must specify restartPolicy when restart rules are used",
        );
    }
    found.too_many(format!("{path}.restartPolicyRules"), rules.len(), MAX_RULES);
    for (index, rule) in rules.iter().enumerate() {
        check_rule(&format!("{path}.restartPolicyRules[{index}]"), rule, found);
    }
}

fn check_rule(path: &str, rule: &ContainerRestartRule, found: &mut Findings<'_>) {
    found.one_of(format!("{path}.action"), Some(rule.action.as_str()), &["Restart", "RestartAllContainers"]);
    let Some(codes) = &rule.exit_codes else {
        return found.required(format!("{path}.exitCodes"), "must be specified");
    };
    let path = format!("{path}.exitCodes");
    found.one_of(format!("{path}.operator"), Some(codes.operator.as_str()), &["In", "NotIn"]);
    let values = codes.values.as_deref().unwrap_or_default();
    if values.is_empty() {
        found.required(format!("{path}.values"), "at least one value must be specified");
    }
    found.too_many(format!("{path}.values"), values.len(), MAX_EXIT_CODES);
    let mut seen = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        found.in_range(format!("{path}.values[{index}]"), *value, 0..=255);
        if !seen.insert(value) {
            found.duplicate(format!("{path}.values[{index}]"), &value.to_string());
        }
    }
}
