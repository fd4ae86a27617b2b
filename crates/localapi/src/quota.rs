//! ResourceQuotas: what an object counts for, which quotas that concerns, and whether it still fits. Pure: `admission` refuses what does not
//! fit, and `controllers::quota` keeps `status.used`.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use model::Amount;
use serde_json::{Value, json};

use crate::amounts::{self, Amounts};
use crate::object::{self, items, text};
use crate::resources::Resource;
use crate::store::Objects;

/// Kinds that are also counted by their plural alone.
const OLDER_COUNTS: &[&str] =
    &["configmaps", "persistentvolumeclaims", "resourcequotas", "secrets", "services"];
/// What each container must specify if a quota limits it.
const REQUIRED: &[&str] =
    &["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

/// What one object counts for.
pub(crate) fn usage(resource: &Resource, object: &Value) -> Amounts {
    let mut used = Amounts::from([(format!("count/{}", resource.qualified_name()), ONE)]);
    if OLDER_COUNTS.contains(&resource.name) {
        used.insert(resource.name.to_owned(), ONE);
    }
    match resource.name {
        "pods" if !object::has_ended(object) => used.extend(of_pod(object)),
        "persistentvolumeclaims" => used.extend(of_claim(object)),
        "services" => used.extend(of_service(object)),
        _ => {}
    }
    used
}

const ONE: Amount = Amount::from_units(1);

fn of_pod(pod: &Value) -> Amounts {
    let mut used = compute(&amounts::of_pod(pod, "requests"), &amounts::of_pod(pod, "limits"));
    used.insert("pods".to_owned(), ONE);
    used
}

/// Requests and limits under the names that quotas use.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::new();
    for (name, amount) in requests {
        let is_native = ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str());
        if is_native || name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
        }
        used.insert(format!("requests.{name}"), *amount);
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(limit) = limits.get(name) {
            used.insert(format!("limits.{name}"), *limit);
        }
    }
    used
}

fn of_claim(claim: &Value) -> Amounts {
    let requested = amounts::of_map(claim.pointer("/spec/resources/requests"));
    let storage = requested.get("storage").copied();
    let class = text(claim, "/spec/storageClassName");
    let mut used: Amounts =
        storage.map(|storage| ("requests.storage".to_owned(), storage)).into_iter().collect();
    if !class.is_empty() {
        used.insert(format!("{class}{STORAGE_CLASS}persistentvolumeclaims"), ONE);
        used.extend(storage.map(|storage| (format!("{class}{STORAGE_CLASS}requests.storage"), storage)));
    }
    used
}

fn of_service(service: &Value) -> Amounts {
    let ports = i64::try_from(items(service, "/spec/ports").len()).unwrap_or(i64::MAX);
    let named = |name: &str, count| (name.to_owned(), Amount::from_units(count));
    match text(service, "/spec/type") {
        "NodePort" => Amounts::from([named("services.nodeports", ports)]),
        "LoadBalancer" => {
            Amounts::from([named("services.nodeports", ports), named("services.loadbalancers", 1)])
        }
        _ => Amounts::new(),
    }
}

/// Whether a quota counts this object: it names one of the amounts, and the object is in all its scopes.
fn concerns(quota: &Value, object: &Value, used: &Amounts) -> bool {
    amounts::of_map(quota.pointer("/spec/hard")).keys().any(|name| counts(name, used))
        && is_in_scopes(quota, object)
}

/// A pod that requests no memory is still limited by a quota of memory: it must request some.
fn counts(name: &str, used: &Amounts) -> bool {
    used.contains_key(name) || (used.contains_key("pods") && REQUIRED.contains(&name))
}

fn is_in_scopes(quota: &Value, object: &Value) -> bool {
    let mut named = items(quota, "/spec/scopes").iter().filter_map(Value::as_str);
    named.all(|scope| is_in_scope(object, scope))
        && items(quota, "/spec/scopeSelector/matchExpressions").iter().all(|one| is_selected(object, one))
}

fn is_in_scope(pod: &Value, scope: &str) -> bool {
    let has_deadline = pod.pointer("/spec/activeDeadlineSeconds").is_some_and(|seconds| !seconds.is_null());
    let is_best_effort = text(pod, "/status/qosClass") == "BestEffort";
    match scope {
        "Terminating" => has_deadline,
        "NotTerminating" => !has_deadline,
        "BestEffort" => is_best_effort,
        "NotBestEffort" => !is_best_effort,
        "PriorityClass" => !text(pod, "/spec/priorityClassName").is_empty(),
        _ => false,
    }
}

fn is_selected(pod: &Value, expression: &Value) -> bool {
    let scope = text(expression, "/scopeName");
    if scope != "PriorityClass" {
        return is_in_scope(pod, scope);
    }
    let class = text(pod, "/spec/priorityClassName");
    let is_listed = items(expression, "/values").iter().any(|value| value == class);
    match text(expression, "/operator") {
        "In" => !class.is_empty() && is_listed,
        "NotIn" => !is_listed,
        "DoesNotExist" => class.is_empty(),
        _ => !class.is_empty(),
    }
}

/// Why an object does not fit: the first quota that refuses it. `old` is the stored object of an update, which counts already.
pub(crate) fn refusal(
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
    objects: &Objects,
) -> Option<String> {
    let namespace = object::namespace(new);
    let mut quotas = objects.of("resourcequotas", Some(namespace)).peekable();
    quotas.peek()?;
    let used = usage(resource, new);
    let before = old.map(|old| usage(resource, old)).unwrap_or_default();
    let more = Amounts::from_iter(used.iter().filter_map(|(name, amount)| {
        let more = *amount - before.get(name).copied().unwrap_or_default();
        (more > Amount::ZERO).then(|| (name.clone(), more))
    }));
    for (key, quota) in quotas.filter(|(_, quota)| concerns(quota, new, &used)) {
        let hard = amounts::of_map(quota.pointer("/spec/hard"));
        if let Some(missing) = missing(resource, new, &hard).filter(|_| old.is_none()) {
            return Some(format!("failed quota: {}: must specify {missing}", key.name));
        }
        let requested: Amounts =
            more.iter().filter(|(name, _)| hard.contains_key(*name)).map(owned).collect();
        if requested.is_empty() {
            continue;
        }
        let present = total(quota, objects, namespace);
        let is_exceeded = |name: &String, more: &Amount| {
            let limit = hard.get(name).copied().unwrap_or_default();
            present.get(name).copied().unwrap_or_default() + *more > limit
        };
        let exceeded: BTreeSet<&String> =
            requested.iter().filter(|(name, more)| is_exceeded(name, more)).map(|(name, _)| name).collect();
        if !exceeded.is_empty() {
            let of = |amounts: &Amounts| listed(&exceeded, amounts);
            return Some(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                key.name,
                of(&requested),
                of(&present),
                of(&hard)
            ));
        }
    }
    None
}

fn owned(entry: (&String, &Amount)) -> (String, Amount) {
    (entry.0.clone(), *entry.1)
}

fn listed(names: &BTreeSet<&String>, amounts: &Amounts) -> String {
    let one = |name: &&String| {
        let amount = amounts.get(*name).copied().unwrap_or_default();
        format!("{name}={}", amounts::text(name, amount))
    };
    names.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The required amounts that containers do not specify: `limits.cpu for: main; requests.cpu for: main`.
fn missing(resource: &Resource, pod: &Value, hard: &Amounts) -> Option<String> {
    if resource.name != "pods" {
        return None;
    }
    let containers: Vec<(&str, Amounts)> = ["/spec/containers", "/spec/initContainers"]
        .into_iter()
        .flat_map(|list| items(pod, list))
        .map(|container| {
            let side = |side| amounts::of_container(container, side);
            (text(container, "/name"), compute(&side("requests"), &side("limits")))
        })
        .collect();
    let mut parts = Vec::new();
    for name in REQUIRED.iter().filter(|name| hard.contains_key(**name)) {
        let without = containers.iter().filter(|(_, specified)| !specified.contains_key(*name));
        let without: BTreeSet<&str> = without.map(|(container, _)| *container).collect();
        if !without.is_empty() {
            parts.push(format!("{name} for: {}", without.into_iter().collect::<Vec<_>>().join(",")));
        }
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What the objects of a namespace use of a quota.
pub(crate) fn total(quota: &Value, objects: &Objects, namespace: &str) -> Amounts {
    let hard = amounts::of_map(quota.pointer("/spec/hard"));
    let mut sum: Amounts = hard.keys().map(|name| (name.clone(), Amount::ZERO)).collect();
    for resource in counted(&hard) {
        for (_, object) in objects.of(resource.name, Some(namespace)) {
            let used = usage(resource, object);
            if concerns(quota, object, &used) {
                for (name, amount) in used {
                    sum.entry(name).and_modify(|total| *total = *total + amount);
                }
            }
        }
    }
    sum
}

/// The kinds that a quota with these amounts counts.
fn counted(hard: &Amounts) -> Vec<&'static Resource> {
    let is_counted = |resource: &&Resource| {
        hard.keys().any(|name| match name.strip_prefix("count/") {
            Some(counted) => counted == resource.qualified_name(),
            None if name.contains(STORAGE_CLASS) || name == "requests.storage" => {
                resource.name == "persistentvolumeclaims"
            }
            None if OLDER_COUNTS.contains(&name.as_str()) => resource.name == *name,
            None if name.starts_with("services.") => resource.name == "services",
            None => resource.name == "pods",
        })
    };
    // Events of both groups are stored as one.
    let stored = |resource: &&Resource| {
        crate::resources::stored(resource.name).is_some_and(|stored| stored.group == resource.group)
    };
    crate::resources::RESOURCES.iter().filter(stored).filter(is_counted).collect()
}

/// The status of a quota.
pub(crate) fn status(quota: &Value, objects: &Objects, namespace: &str) -> Value {
    let used = total(quota, objects, namespace);
    let used: serde_json::Map<String, Value> =
        used.into_iter().map(|(name, amount)| (name.clone(), json!(amounts::text(&name, amount)))).collect();
    json!({"hard": quota.pointer("/spec/hard").cloned().unwrap_or_else(|| json!({})), "used": used})
}
