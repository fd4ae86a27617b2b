//! Rules for one container.

use std::collections::BTreeSet;

use model::Amount;
use serde_json::Value;

use super::place::Place;
use super::{Findings, names, volume};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    Init,
    Sidecar,
    Ephemeral,
}

pub(super) fn check(container: &Place<'_>, spec: &Place<'_>, kind: Kind, found: &mut Findings) {
    let (name, image) = (container.at("name"), container.at("image"));
    if name.text().is_empty() {
        found.required(&name.path, "");
    } else {
        found.all_invalid(&name.path, name.text(), names::label_problems(name.text()));
    }
    if image.text().is_empty() {
        found.required(&image.path, "");
    } else if image.text().trim() != image.text() {
        found.invalid(&image.path, image.text(), "must not have leading or trailing whitespace");
    }
    found.one_of(&container.at("imagePullPolicy"), &["Always", "IfNotPresent", "Never"]);
    found.one_of(&container.at("terminationMessagePolicy"), &["File", "FallbackToLogsOnError"]);
    found.one_of(&container.at("restartPolicy"), &["Always", "OnFailure", "Never"]);
    check_ports(container, spec, found);
    check_env(container, found);
    check_resources(container, found);
    volume::check_mounts(container, spec, found);
    match kind {
        Kind::Regular | Kind::Sidecar => check_handlers(container, found),
        Kind::Init => {
            let detail = "may not be set for init containers without restartPolicy=Always";
            forbid(
                container,
                &["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"],
                detail,
                found,
            );
        }
        Kind::Ephemeral => {
            let detail = "not allowed for ephemeral containers";
            let fields = ["ports", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
            forbid(container, &fields, detail, found);
        }
    }
}

fn forbid(container: &Place<'_>, fields: &[&str], detail: &str, found: &mut Findings) {
    for place in fields.iter().map(|field| container.at(field)).filter(Place::is_set) {
        found.forbidden(place.path, detail);
    }
}

fn check_ports(container: &Place<'_>, spec: &Place<'_>, found: &mut Findings) {
    let mut seen = BTreeSet::new();
    for port in container.items("ports") {
        let (name, number, host) = (port.at("name"), port.at("containerPort"), port.at("hostPort"));
        if !name.text().is_empty() {
            let problems = names::port_name_problems(name.text());
            if problems.is_empty() && !seen.insert(name.text()) {
                found.duplicate(&name.path, name.text());
            }
            found.all_invalid(&name.path, name.text(), problems);
        }
        if number.number().unwrap_or_default() == 0 {
            found.required(&number.path, "");
        } else {
            found.in_range(&number, 1, 65_535);
        }
        if host.number().is_some_and(|number| number != 0) {
            found.in_range(&host, 1, 65_535);
            if spec.flag("hostNetwork") && host.number() != number.number() {
                let detail = "must match `hostPort` when `hostNetwork` is true";
                found.invalid(&number.path, number.value.clone(), detail);
            }
        }
        found.one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn check_env(container: &Place<'_>, found: &mut Findings) {
    for variable in container.items("env") {
        let name = variable.at("name");
        if name.text().is_empty() {
            found.required(&name.path, "");
        } else if !name.text().bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            found.invalid(&name.path, name.text(), detail);
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
        found.invalid(&source.path, "", detail);
    }
}

fn check_resources(container: &Place<'_>, found: &mut Findings) {
    let resources = container.at("resources");
    for side in ["limits", "requests"] {
        for (_, quantity) in resources.entries(side) {
            match amount(quantity.value) {
                None => {
                    let detail = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
                    found.invalid(&quantity.path, quantity.value.clone(), detail);
                }
                Some(amount) if amount < Amount::ZERO => {
                    let detail = "must be greater than or equal to 0";
                    found.invalid(&quantity.path, quantity.value.clone(), detail);
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
        found.invalid(field, request.value.clone(), format!("must be {relation} {name} limit of {limit}"));
    }
}

fn amount(quantity: &Value) -> Option<Amount> {
    match quantity {
        Value::String(text) => Amount::parse(text).ok(),
        Value::Number(number) => Amount::parse(&number.to_string()).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn check_handlers(container: &Place<'_>, found: &mut Findings) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(name);
        if !probe.is_set() {
            continue;
        }
        check_handler(&probe, found);
        for field in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            found.not_negative(&probe.at(field));
        }
        let threshold = probe.at("successThreshold");
        if let Some(times) = threshold.number().filter(|times| *times != 1 && name != "readinessProbe") {
            found.invalid(&threshold.path, times, "must be 1");
        }
    }
    for hook in ["lifecycle.postStart", "lifecycle.preStop"].map(|hook| container.at(hook)) {
        if hook.is_set() {
            check_handler(&hook, found);
        }
    }
}

/// Exactly one action, and that one complete.
fn check_handler(handler: &Place<'_>, found: &mut Findings) {
    let actions = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"].map(|action| handler.at(action));
    let mut given = actions.iter().filter(|action| action.is_set());
    if given.next().is_none() {
        found.required(&handler.path, "must specify a handler type");
    }
    for another in given {
        found.forbidden(&another.path, "may not specify more than 1 handler type");
    }
    let [exec, http, tcp, grpc, _] = &actions;
    if exec.is_set() && exec.items("command").is_empty() {
        found.required(format!("{}.command", exec.path), "");
    }
    if http.is_set() {
        check_port(&http.at("port"), found);
        found.one_of(&http.at("scheme"), &["HTTP", "HTTPS"]);
    }
    if tcp.is_set() {
        check_port(&tcp.at("port"), found);
    }
    found.in_range(&grpc.at("port"), 1, 65_535);
}

/// A number or the name of a port.
fn check_port(port: &Place<'_>, found: &mut Findings) {
    if port.value.is_string() {
        found.all_invalid(&port.path, port.text(), names::port_name_problems(port.text()));
    } else if port.is_set() {
        found.in_range(port, 1, 65_535);
    } else {
        found.invalid(&port.path, 0, "must be between 1 and 65535, inclusive");
    }
}
