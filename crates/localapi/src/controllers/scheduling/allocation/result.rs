//! `status.allocation` of a claim.

use serde_json::{Value, json};

use super::device::Inventory;
use super::request::{Choice, Request};
use super::search::Chosen;
use crate::object::items;

pub(super) fn allocation(
    claim: &Value,
    requests: &[Request],
    chosen: &[Chosen],
    inventory: &Inventory,
    node: &str,
) -> Value {
    let choice = |chosen: &Chosen| requests.get(chosen.request)?.choices.get(chosen.choice);
    let devices = chosen.iter().filter_map(|it| Some((choice(it)?, inventory.devices.get(it.device)?)));
    let results: Vec<Value> = devices
        .clone()
        .map(|(choice, device)| {
            let id = &device.id;
            let mut result =
                json!({"request": choice.name, "driver": id.driver, "pool": id.pool, "device": id.device});
            if choice.admin_access {
                result["adminAccess"] = json!(true);
            }
            if !choice.tolerations.is_empty() {
                result["tolerations"] = json!(choice.tolerations);
            }
            result
        })
        .collect();
    let mut allocation = json!({"devices": {"results": results}});
    let config = config(claim, requests, chosen);
    if !config.is_empty() {
        allocation["devices"]["config"] = Value::Array(config);
    }
    if devices.clone().any(|(_, device)| device.is_local) {
        let here = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        allocation["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchFields": [here]}]});
    }
    allocation
}

/// The choice of each request that was made.
fn made<'a>(requests: &'a [Request], chosen: &[Chosen]) -> Vec<&'a Choice> {
    let of_request = |at: usize, request: &'a Request| {
        let made = chosen.iter().find(|chosen| chosen.request == at)?;
        request.choices.get(made.choice)
    };
    requests.iter().enumerate().filter_map(|(at, request)| of_request(at, request)).collect()
}

/// The configuration of the classes, each once, and then that of the claim. What applies to all requests names none.
fn config(claim: &Value, requests: &[Request], chosen: &[Chosen]) -> Vec<Value> {
    let made = made(requests, chosen);
    let mut config = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for choice in &made {
        if seen.contains(&choice.class.as_str()) {
            continue;
        }
        seen.push(&choice.class);
        let of_class = made.iter().filter(|other| other.class == choice.class);
        let names: Vec<&str> = of_class.map(|other| other.name.as_str()).collect();
        config.extend(choice.config.iter().map(|one| entry("FromClass", names.clone(), one, requests.len())));
    }
    for one in items(claim, "/spec/devices/config") {
        let names: Vec<&str> = items(one, "/requests").iter().filter_map(Value::as_str).collect();
        let is_concerned = made.iter().any(|choice| {
            let parent = choice.name.split_once('/').map_or(choice.name.as_str(), |(parent, _)| parent);
            names.contains(&choice.name.as_str()) || names.contains(&parent)
        });
        if names.is_empty() || is_concerned {
            config.push(entry("FromClaim", names, one, requests.len()));
        }
    }
    config
}

fn entry(source: &str, requests: Vec<&str>, of: &Value, all: usize) -> Value {
    let mut entry = json!({"source": source});
    if !requests.is_empty() && requests.len() < all {
        entry["requests"] = json!(requests);
    }
    if let Some(opaque) = of.get("opaque") {
        entry["opaque"] = opaque.clone();
    }
    entry
}
