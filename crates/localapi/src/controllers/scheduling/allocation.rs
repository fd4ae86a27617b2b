//! Which devices of this node the claims of a pod get. Pure: the first solution of a bounded search, in the order of pools, devices and
//! requests, so that the same objects always lead to the same allocation.

mod constraint;
mod device;
mod request;
mod result;
mod search;

use std::collections::BTreeMap;

use serde_json::Value;

use super::CLAIMS;
use crate::cel::{CompileError, Program};
use crate::object::items;
use crate::store::Objects;
use device::{DeviceId, Inventory};
use request::Request;
use search::{Search, Unsolved};

/// The devices of one claim, and of all claims of a pod.
const MAX_RESULTS: usize = 32;
const MAX_DEVICES_OF_POD: usize = 256;
/// How many devices in use a message names.
const MAX_NAMED: usize = 3;

/// Compiled selectors, by their text.
#[derive(Debug, Default)]
struct Programs(BTreeMap<String, Result<Program, CompileError>>);

impl Programs {
    fn get(&mut self, text: &str) -> Result<&Program, CompileError> {
        let entry = self.0.entry(text.to_owned()).or_insert_with(|| Program::compile(text));
        entry.as_ref().map_err(Clone::clone)
    }
}

/// A device that is in use, and the claim that it is allocated to.
type InUse = BTreeMap<DeviceId, String>;

/// `status.allocation` of each claim, or why that cannot be.
pub(super) fn allocate(claims: &[&Value], node: &str, objects: &Objects) -> Result<Vec<Value>, String> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let mut inventory = Inventory::of_node(node, objects)?;
    let in_use = in_use(objects);
    inventory.consume(&in_use);
    let mut programs = Programs::default();
    let mut requests = Vec::new();
    for claim in claims {
        let of_claim = request::of_claim(claim, &inventory, objects, &mut programs)?;
        let least: usize = of_claim.iter().map(Request::least).sum();
        if least > MAX_RESULTS {
            return Err(format!(
                "claim {}: number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}",
                request::shown(claim)
            ));
        }
        requests.push(of_claim);
    }
    let least: usize = requests.iter().flatten().map(Request::least).sum();
    if least > MAX_DEVICES_OF_POD {
        return Err(format!(
            "the claims of the pod request {least} devices, of which a pod may have {MAX_DEVICES_OF_POD}"
        ));
    }
    let constraints =
        claims.iter().map(|claim| constraint::of_claim(claim)).collect::<Result<Vec<_>, _>>()?;
    let mut search = Search::new(&inventory, &in_use, &requests, constraints);
    match search.run() {
        Ok(()) => {}
        Err(Unsolved::TooLong) => {
            return Err(format!(
                "1 cannot allocate all claims: no allocation was found in {} steps",
                search::MAX_STEPS
            ));
        }
        Err(Unsolved::Impossible) => return Err(missing(claims, &requests, &inventory, &in_use)),
    }
    let chosen = search.chosen();
    let results = claims.iter().zip(&requests).enumerate();
    Ok(results
        .map(|(at, (claim, requests))| {
            result::allocation(
                claim,
                requests,
                chosen.get(at).map(Vec::as_slice).unwrap_or_default(),
                &inventory,
                node,
            )
        })
        .collect())
}

/// What all claims have: devices with admin access do not count.
fn in_use(objects: &Objects) -> InUse {
    let mut in_use = InUse::new();
    for (_, claim) in objects.of(CLAIMS, None) {
        for result in items(claim, "/status/allocation/devices/results") {
            if result["adminAccess"] != true {
                in_use.insert(DeviceId::of(result), request::shown(claim));
            }
        }
    }
    in_use
}

/// What a scheduler says, and then what is wanted and what there is.
fn missing(claims: &[&Value], requests: &[Vec<Request>], inventory: &Inventory, in_use: &InUse) -> String {
    let mut parts = Vec::new();
    for (claim, requests) in claims.iter().zip(requests) {
        for request in requests {
            for choice in &request.choices {
                let used: Vec<String> = choice
                    .matching
                    .iter()
                    .filter_map(|at| inventory.devices.get(*at))
                    .filter_map(|device| Some((device, in_use.get(&device.id)?)))
                    .map(|(device, user)| format!("{} by claim {user}", device.id.device))
                    .collect();
                let named = used.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
                let mut text = format!(
                    "claim {}, request {}: {} of class {}, {} on this node",
                    request::shown(claim),
                    choice.name,
                    choice.wanted(),
                    choice.class,
                    match choice.matching.len() {
                        0 => "none match".to_owned(),
                        1 => "1 matches".to_owned(),
                        count => format!("{count} match"),
                    },
                );
                if !used.is_empty() {
                    text.push_str(&format!(", {} in use ({named})", used.len()));
                }
                parts.push(text);
            }
        }
    }
    let pools = [
        (&inventory.incomplete, "currently being updated"),
        (&inventory.invalid, "invalid: it has a name twice"),
    ];
    for (pools, why) in pools {
        parts.extend(pools.iter().take(MAX_NAMED).map(|pool| format!("resource pool {pool} is {why}")));
    }
    match inventory.with_binding_conditions {
        0 => {}
        count => parts.push(format!("devices with binding conditions, which are not used here: {count}")),
    }
    format!("1 cannot allocate all claims. {}", parts.join("; "))
}
