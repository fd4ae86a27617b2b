//! Rules for one container.

use std::collections::BTreeSet;

use model::Amount;
use serde_json::Value;

use super::field::FieldValue;
use super::{ErrorList, names, volume};

const CONTAINER_RESOURCES: &[&str] = &["cpu", "memory", "ephemeral-storage"];
/// Resources without a domain that only a quota can have.
const QUOTA_RESOURCES: &[&str] = &[
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    Init,
    Sidecar,
    Ephemeral,
}

pub(super) fn check(container: &FieldValue<'_>, spec: &FieldValue<'_>, kind: Kind, errors: &mut ErrorList) {
    let (name, image) = (container.at("name"), container.at("image"));
    if name.text().is_empty() {
        errors.required(&name.path, "");
    } else {
        errors.all_invalid(&name.path, name.text(), names::label_problems(name.text()));
    }
    if image.text().is_empty() {
        errors.required(&image.path, "");
    } else if image.text().trim() != image.text() {
        errors.invalid(&image.path, image.text(), "must not have leading or trailing whitespace");
    }
    errors.one_of(&container.at("imagePullPolicy"), &["Always", "IfNotPresent", "Never"]);
    errors.one_of(&container.at("terminationMessagePolicy"), &["File", "FallbackToLogsOnError"]);
    errors.one_of(&container.at("restartPolicy"), &["Always", "OnFailure", "Never"]);
    check_ports(container, spec, errors);
    check_env(container, errors);
    check_resources(container, errors);
    volume::check_mounts(container, spec, errors);
    match kind {
        Kind::Regular | Kind::Sidecar => check_handlers(container, errors),
        Kind::Init => {
            let detail = "may not be set for init containers without restartPolicy=Always";
            forbid(
                container,
                &["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"],
                detail,
                errors,
            );
        }
        Kind::Ephemeral => {
            let detail = "not allowed for ephemeral containers";
            let fields = ["ports", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
            forbid(container, &fields, detail, errors);
        }
    }
}

fn forbid(container: &FieldValue<'_>, fields: &[&str], detail: &str, errors: &mut ErrorList) {
    for value in fields.iter().map(|field| container.at(field)).filter(FieldValue::is_set) {
        errors.forbidden(value.path, detail);
    }
}

fn check_ports(container: &FieldValue<'_>, spec: &FieldValue<'_>, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for port in container.items("ports") {
        let (name, number, host) = (port.at("name"), port.at("containerPort"), port.at("hostPort"));
        if !name.text().is_empty() {
            let problems = names::port_name_problems(name.text());
            if problems.is_empty() && !seen.insert(name.text()) {
                errors.duplicate(&name.path, name.text());
            }
            errors.all_invalid(&name.path, name.text(), problems);
        }
        if number.number().unwrap_or_default() == 0 {
            errors.required(&number.path, "");
        } else {
            errors.in_range(&number, 1, 65_535);
        }
        if host.number().is_some_and(|number| number != 0) {
            errors.in_range(&host, 1, 65_535);
            if spec.flag("hostNetwork") && host.number() != number.number() {
                let detail = "must match `hostPort` when `hostNetwork` is true";
                errors.invalid(&number.path, number.value.clone(), detail);
            }
        }
        errors.one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn check_env(container: &FieldValue<'_>, errors: &mut ErrorList) {
    for variable in container.items("env") {
        let name = variable.at("name");
        if name.text().is_empty() {
            errors.required(&name.path, "");
        } else if !name.text().bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.invalid(&name.path, name.text(), detail);
        }
        let source = variable.at("valueFrom");
        if !source.is_set() {
            continue;
        }
        let given =
            source.value.as_object().map_or(0, |all| all.values().filter(|one| !one.is_null()).count());
        let detail = match given {
            0 => {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            }
            _ if !variable.text_at("value").is_empty() => "may not be specified when `value` is not empty",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.invalid(&source.path, "", detail);
    }
}

fn check_resources(container: &FieldValue<'_>, errors: &mut ErrorList) {
    let resources = container.at("resources");
    for side in ["limits", "requests"] {
        for (name, quantity) in resources.entries(side) {
            check_resource_name(name, &quantity.path, errors);
            match amount(quantity.value) {
                None => {
                    let detail = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
                    errors.invalid(&quantity.path, quantity.value.clone(), detail);
                }
                Some(amount) if amount < Amount::ZERO => {
                    let detail = "must be greater than or equal to 0";
                    errors.invalid(&quantity.path, quantity.value.clone(), detail);
                }
                Some(_) => {}
            }
        }
    }
    for (name, request) in resources.entries("requests") {
        let Some(limit) = resources.value.pointer("/limits").and_then(|limits| limits.get(name)) else {
            continue;
        };
        let overcommits = matches!(name, "cpu" | "memory" | "ephemeral-storage");
        let relation = match (amount(request.value), amount(limit)) {
            (Some(request), Some(limit)) if overcommits && request > limit => "less than or equal to",
            (Some(request), Some(limit)) if !overcommits && request != limit => "equal to",
            _ => continue,
        };
        let limit = limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
        let field = format!("{}.requests", resources.path);
        errors.invalid(field, request.value.clone(), format!("must be {relation} {name} limit of {limit}"));
    }
}

/// Resources without a domain are those of Kubernetes.
fn check_resource_name(name: &str, path: &str, errors: &mut ErrorList) {
    let problems = names::label_key_problems(name);
    if !problems.is_empty() {
        return problems.into_iter().for_each(|problem| errors.invalid(path, name, problem));
    }
    let is_of_containers = CONTAINER_RESOURCES.contains(&name) || name.starts_with("hugepages-");
    if !name.contains('/') {
        if !is_of_containers && !QUOTA_RESOURCES.contains(&name) {
            errors.invalid(path, name, "must be a standard resource type or fully qualified");
        }
        if !is_of_containers {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
        return;
    }
    let as_request = format!("requests.{name}");
    let is_extended = !name.starts_with("requests.") && names::label_key_problems(&as_request).is_empty();
    if !name.contains("kubernetes.io/") && !is_extended {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn amount(quantity: &Value) -> Option<Amount> {
    match quantity {
        Value::String(text) => Amount::parse(text).ok(),
        Value::Number(number) => Amount::parse(&number.to_string()).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn check_handlers(container: &FieldValue<'_>, errors: &mut ErrorList) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(name);
        if !probe.is_set() {
            continue;
        }
        check_handler(&probe, errors);
        for field in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errors.not_negative(&probe.at(field));
        }
        let threshold = probe.at("successThreshold");
        if let Some(times) = threshold.number().filter(|times| *times != 1 && name != "readinessProbe") {
            errors.invalid(&threshold.path, times, "must be 1");
        }
    }
    for hook in ["lifecycle.postStart", "lifecycle.preStop"].map(|hook| container.at(hook)) {
        if hook.is_set() {
            check_handler(&hook, errors);
        }
    }
}

/// Checks that a handler has exactly one action, with its required fields.
fn check_handler(handler: &FieldValue<'_>, errors: &mut ErrorList) {
    let actions = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"].map(|action| handler.at(action));
    let mut given = actions.iter().filter(|action| action.is_set());
    if given.next().is_none() {
        errors.required(&handler.path, "must specify a handler type");
    }
    for another in given {
        errors.forbidden(&another.path, "may not specify more than 1 handler type");
    }
    let [exec, http, tcp, grpc, _] = &actions;
    if exec.is_set() && exec.items("command").is_empty() {
        errors.required(format!("{}.command", exec.path), "");
    }
    if http.is_set() {
        check_port(&http.at("port"), errors);
        errors.one_of(&http.at("scheme"), &["HTTP", "HTTPS"]);
    }
    if tcp.is_set() {
        check_port(&tcp.at("port"), errors);
    }
    errors.in_range(&grpc.at("port"), 1, 65_535);
}

/// A number or the name of a port.
fn check_port(port: &FieldValue<'_>, errors: &mut ErrorList) {
    if port.value.is_string() {
        errors.all_invalid(&port.path, port.text(), names::port_name_problems(port.text()));
    } else if port.is_set() {
        errors.in_range(port, 1, 65_535);
    } else {
        errors.invalid(&port.path, 0, "must be between 1 and 65535, inclusive");
    }
}
