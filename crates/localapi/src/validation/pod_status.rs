//! Which fields of the status of a pod may change.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::field::FieldValue;
use super::{ErrorList, names};

const NOT_NEGATIVE: &str = "must be a non-negative integer";
const NON_TERMINATED: &str = "may not be transitioned to non-terminated state";
const ONE_PER_FAMILY: &str = "may specify no more than one IP for each IP family";
const STATUS_LISTS: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

pub(super) fn check(pod: &FieldValue<'_>, old: &FieldValue<'_>, errors: &mut ErrorList) {
    let (status, before) = (pod.at("status"), old.at("status"));
    check_conditions(&status, errors);
    check_nomination(pod, &before, errors);
    let observed = status.at("observedGeneration");
    if let Some(number) = observed.number().filter(|number| *number < 0) {
        errors.invalid(&observed.path, number, NOT_NEGATIVE);
    }
    let class = status.at("qosClass");
    if class.text() != before.text_at("qosClass") {
        errors.invalid(&class.path, class.text(), "field is immutable");
    }
    let spec = old.at("spec");
    for list in STATUS_LISTS {
        check_transitions(&status, &before, &spec, list, errors);
    }
    check_addresses(&status, &before, "podIPs", errors);
    check_host_address(&status, errors);
    check_addresses(&status, &before, "hostIPs", errors);
    for list in STATUS_LISTS {
        check_users(&status, list, errors);
    }
    for one in status.items("ephemeralContainerStatuses") {
        let allocated = one.at("allocatedResourcesStatus");
        if allocated.value.as_array().is_some_and(|list| !list.is_empty()) {
            errors.forbidden(&allocated.path, "must not be specified in container status");
        }
    }
}

fn check_conditions(status: &FieldValue<'_>, errors: &mut ErrorList) {
    for condition in status.items("conditions") {
        let observed = condition.at("observedGeneration");
        if let Some(number) = observed.number().filter(|number| *number < 0) {
            errors.invalid(&observed.path, number, NOT_NEGATIVE);
        }
        let kind = condition.text_at("type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            let path = format!("{}.Type", condition.path);
            errors.all_invalid(&path, kind, names::label_key_problems(kind));
        }
    }
}

/// A bound pod cannot be nominated.
fn check_nomination(pod: &FieldValue<'_>, before: &FieldValue<'_>, errors: &mut ErrorList) {
    let nominated = pod.at("status.nominatedNodeName");
    if nominated.text().is_empty() || nominated.text() == before.text_at("nominatedNodeName") {
        return;
    }
    errors.all_invalid(&nominated.path, nominated.text(), names::subdomain_problems(nominated.text()));
    if !pod.text_at("spec.nodeName").is_empty() {
        errors.forbidden(&nominated.path, "may not be set on pods that are already bound to a node");
    }
}

/// A terminated container that its restart policy does not restart must stay terminated.
fn check_transitions(
    status: &FieldValue<'_>,
    before: &FieldValue<'_>,
    spec: &FieldValue<'_>,
    list: &str,
    errors: &mut ErrorList,
) {
    let containers = match list {
        "containerStatuses" => Some("containers"),
        "initContainerStatuses" => Some("initContainers"),
        _ => None,
    };
    if containers.is_some() && may_restart_all(spec) {
        return;
    }
    let now: BTreeMap<&str, bool> = status
        .items(list)
        .iter()
        .rev()
        .map(|one| (one.text_at("name"), one.at("state.terminated").is_set()))
        .collect();
    for (index, old) in before.items(list).iter().enumerate() {
        let (name, ended) = (old.text_at("name"), old.at("state.terminated"));
        if !ended.is_set() || now.get(name) != Some(&false) {
            continue;
        }
        let exit_code = ended.at("exitCode").number().unwrap_or_default();
        let restarts = containers.is_some_and(|containers| {
            let of_name = spec.items(containers).into_iter().find(|one| one.text_at("name") == name);
            of_name.is_some_and(|one| should_restart(&one, spec.text_at("restartPolicy"), exit_code))
        });
        if !restarts {
            errors.forbidden(format!("status.{list}[{index}].state"), NON_TERMINATED);
        }
    }
}

/// Whether a restart rule of any container can restart all containers of the pod.
fn may_restart_all(spec: &FieldValue<'_>) -> bool {
    ["initContainers", "containers"].iter().flat_map(|list| spec.items(list)).any(|container| {
        let rules = container.items("restartPolicyRules");
        rules.iter().any(|rule| rule.text_at("action") == "RestartAllContainers")
    })
}

fn should_restart(container: &FieldValue<'_>, of_pod: &str, exit_code: i64) -> bool {
    let own = container.text_at("restartPolicy");
    if !own.is_empty() && container.items("restartPolicyRules").iter().any(|rule| matches(rule, exit_code)) {
        return true;
    }
    match if own.is_empty() { of_pod } else { own } {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    }
}

fn matches(rule: &FieldValue<'_>, exit_code: i64) -> bool {
    let is_listed = rule.items("exitCodes.values").iter().any(|value| value.number() == Some(exit_code));
    match rule.text_at("exitCodes.operator") {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    }
}

/// Invalid addresses that are stored already may stay.
fn check_addresses(status: &FieldValue<'_>, before: &FieldValue<'_>, list: &str, errors: &mut ErrorList) {
    let known: Vec<&str> = before.items(list).iter().map(|one| one.text_at("ip")).collect();
    let now = status.items(list);
    let parsed: Vec<Option<IpAddr>> = now.iter().map(|one| one.text_at("ip").parse().ok()).collect();
    for (one, address) in now.iter().zip(&parsed) {
        let text = one.text_at("ip");
        if address.is_none() && !known.contains(&text) {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.invalid(&one.path, text, detail);
        }
    }
    let families = |is_v4: bool| parsed.iter().flatten().filter(|address| address.is_ipv4() == is_v4).count();
    if now.len() > 1 && (now.len() > 2 || families(true) != 1 || families(false) != 1) {
        let all = status.at(list);
        errors.invalid(&all.path, all.value.clone(), ONE_PER_FAMILY);
    }
}

fn check_host_address(status: &FieldValue<'_>, errors: &mut ErrorList) {
    if let Some(first) = status.items("hostIPs").first() {
        let address = first.at("ip");
        if address.text() != status.text_at("hostIP") {
            errors.invalid(&address.path, address.text(), "must be equal to `hostIP`");
        }
    }
}

fn check_users(status: &FieldValue<'_>, list: &str, errors: &mut ErrorList) {
    for one in status.items(list) {
        let user = one.at("user.linux");
        errors.in_range(&user.at("uid"), 0, i64::from(i32::MAX));
        errors.in_range(&user.at("gid"), 0, i64::from(i32::MAX));
        for group in user.items("supplementalGroups") {
            errors.in_range(&group, 0, i64::from(i32::MAX));
        }
    }
}

/// Restores fields that a status update cannot clear: the QoS class and observed generations.
pub(crate) fn keep_recorded(new: &mut Value, old: &Value) {
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else { return };
    let before = &old["status"];
    let is_unset = |value: Option<&Value>| {
        value.is_none_or(|value| value.is_null() || value.as_i64() == Some(0) || value.as_str() == Some(""))
    };
    for field in ["qosClass", "observedGeneration"] {
        if is_unset(status.get(field)) && !is_unset(before.get(field)) {
            status.insert(field.to_owned(), before[field].clone());
        }
    }
    let mut recorded: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for condition in before["conditions"].as_array().into_iter().flatten().rev() {
        let kind = condition["type"].as_str().unwrap_or_default();
        recorded.entry(kind).or_default().push(&condition["observedGeneration"]);
    }
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let kind = condition["type"].as_str().unwrap_or_default();
        let generation = recorded.get_mut(kind).and_then(Vec::pop).cloned().unwrap_or_default();
        if is_unset(condition.get("observedGeneration")) && !generation.is_null() {
            condition["observedGeneration"] = generation;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Cases: `TestValidatePodStatusUpdate` in `pkg/apis/core/validation/validation_test.go`.

    use serde_json::json;

    use super::*;

    fn refused(spec: &Value, old: &Value, new: &Value) -> String {
        let pod = |status: &Value| json!({"metadata": {"name": "foo", "namespace": "ns"}, "spec": spec, "status": status});
        let errors = super::super::check("pods/status", &pod(new), Some(&pod(old)));
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    fn spec(policy: &str) -> Value {
        json!({"restartPolicy": policy, "nodeName": "node1", "containers": [{"name": "nginx"}],
            "initContainers": [{"name": "init"}, {"name": "restartable-init", "restartPolicy": "Always"}]})
    }

    fn statuses(list: &str, name: &str, state: &Value) -> Value {
        json!({list: [{"name": name, "state": state}]})
    }

    #[test]
    fn pod_status_transition_from_terminated_is_refused_unless_the_container_restarts() {
        const INIT: &str = "status.initContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
        const MAIN: &str =
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
        const DEBUG: &str = "status.ephemeralContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
        for (policy, list, name, code, expected) in [
            ("Never", "initContainerStatuses", "init", 0, INIT),
            ("Never", "initContainerStatuses", "restartable-init", 0, ""),
            ("OnFailure", "initContainerStatuses", "restartable-init", 0, ""),
            ("Always", "initContainerStatuses", "restartable-init", 0, ""),
            ("Never", "containerStatuses", "nginx", 1, MAIN),
            ("Never", "containerStatuses", "nginx", 0, MAIN),
            ("OnFailure", "containerStatuses", "nginx", 0, MAIN),
            ("OnFailure", "containerStatuses", "nginx", 1, ""),
            ("Always", "containerStatuses", "nginx", 0, ""),
            ("Always", "ephemeralContainerStatuses", "debug", 0, DEBUG),
        ] {
            let old = statuses(list, name, &json!({"terminated": {"exitCode": code}}));
            for state in [json!({"running": {}}), json!({"waiting": {"reason": "x"}}), json!({})] {
                let new = statuses(list, name, &state);
                assert_eq!(refused(&spec(policy), &old, &new), expected, "{policy} {name} {code} {state}");
            }
            assert_eq!(refused(&spec(policy), &old, &old), "");
        }
    }

    #[test]
    fn pod_status_transition_follows_container_restart_rules() {
        let with = |action: &str, values: Value| {
            let rule = json!({"action": action, "exitCodes": {"operator": "In", "values": values}});
            json!({"restartPolicy": "Never", "containers": [{"name": "other"},
                {"name": "c", "restartPolicy": "Never", "restartPolicyRules": [rule]}]})
        };
        let from = |name: &str| statuses("containerStatuses", name, &json!({"terminated": {"exitCode": 42}}));
        let to = |name: &str| statuses("containerStatuses", name, &json!({"running": {}}));
        let refusal =
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
        assert_eq!(refused(&with("Restart", json!([42])), &from("c"), &to("c")), "");
        assert_eq!(refused(&with("Restart", json!([41])), &from("c"), &to("c")), refusal);
        assert_eq!(refused(&with("Restart", json!([42])), &from("other"), &to("other")), refusal);
        assert_eq!(refused(&with("RestartAllContainers", json!([1])), &from("other"), &to("other")), "");
    }

    #[test]
    fn pod_status_generations_nomination_class_and_addresses_are_checked() {
        for (old, new, expected) in [
            (json!({}), json!({"observedGeneration": 1}), ""),
            (
                json!({}),
                json!({"observedGeneration": -1}),
                "status.observedGeneration: Invalid value: -1: must be a non-negative integer",
            ),
            (
                json!({}),
                json!({"conditions": [{"type": "PodScheduled", "status": "True", "observedGeneration": -1}]}),
                "status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
            ),
            (
                json!({"nominatedNodeName": "node2"}),
                json!({"nominatedNodeName": "node3"}),
                "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node",
            ),
            (json!({"nominatedNodeName": "node2"}), json!({"nominatedNodeName": "node2"}), ""),
            (json!({"nominatedNodeName": "node2"}), json!({}), ""),
            (
                json!({"qosClass": "Burstable"}),
                json!({"qosClass": "Guaranteed"}),
                "status.qosClass: Invalid value: \"Guaranteed\": field is immutable",
            ),
            (json!({}), json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "fd00::1"}]}), ""),
            (
                json!({}),
                json!({"podIPs": [{"ip": "localhost"}]}),
                "status.podIPs[0]: Invalid value: \"localhost\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
            (
                json!({}),
                json!({"hostIP": "1.1.1.1", "hostIPs": [{"ip": "1.1.1.2"}]}),
                "status.hostIPs[0].ip: Invalid value: \"1.1.1.2\": must be equal to `hostIP`",
            ),
        ] {
            assert_eq!(refused(&spec("Always"), &old, &new), expected, "{new}");
        }
        let two =
            refused(&spec("Always"), &json!({}), &json!({"podIPs": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}]}));
        assert!(two.starts_with("status.podIPs: Invalid value: ") && two.ends_with(ONE_PER_FAMILY), "{two}");
    }

    #[test]
    fn pod_status_writer_cannot_clear_class_and_observed_generations() {
        let old = json!({"status": {"qosClass": "Burstable", "observedGeneration": 2,
            "conditions": [{"type": "Ready", "observedGeneration": 2}, {"type": "Initialized"}]}});
        let mut new = json!({"status": {"conditions": [{"type": "Initialized"}, {"type": "Ready"}]}});
        keep_recorded(&mut new, &old);
        let expected = json!({"status": {"qosClass": "Burstable", "observedGeneration": 2,
            "conditions": [{"type": "Initialized"}, {"type": "Ready", "observedGeneration": 2}]}});
        assert_eq!(new, expected);
    }
}
