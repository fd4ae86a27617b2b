//! What a claim asks for: each request with the devices of the node that it selects, whether they are in use or not.

use serde_json::Value;

use super::super::CLASSES;
use super::Programs;
use super::device::{Device, Inventory, qualified};
use crate::amounts;
use crate::object::{self, items, text};
use crate::store::{Key, Objects};
use crate::taints;

/// On a namespace whose claims may have admin access.
const ADMIN_ACCESS: &str = "/metadata/labels/resource.kubernetes.io~1admin-access";

/// More than any node has.
const MAX_COUNT: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Request {
    /// In the order of preference; one unless the request is a list.
    pub(super) choices: Vec<Choice>,
}

impl Request {
    /// The devices that it has at least.
    pub(super) fn least(&self) -> usize {
        self.choices.iter().map(|choice| choice.count).min().unwrap_or_default()
    }
}

/// A request, or one in a list of requests.
#[derive(Debug)]
pub(super) struct Choice {
    /// `request`, or `request/subrequest`.
    pub(super) name: String,
    pub(super) class: String,
    /// Of the class.
    pub(super) config: Vec<Value>,
    pub(super) count: usize,
    pub(super) wants_all: bool,
    pub(super) admin_access: bool,
    pub(super) tolerations: Vec<Value>,
    /// The devices that it selects.
    pub(super) matching: Vec<usize>,
}

impl Choice {
    pub(super) fn wanted(&self) -> String {
        match (self.wants_all, self.count) {
            (true, _) => "all devices".to_owned(),
            (false, 1) => "1 device".to_owned(),
            (false, count) => format!("{count} devices"),
        }
    }
}

/// `namespace/name`
pub(super) fn shown(claim: &Value) -> String {
    format!("{}/{}", object::namespace(claim), object::name(claim))
}

pub(super) fn of_claim(
    claim: &Value,
    inventory: &Inventory,
    objects: &Objects,
    programs: &mut Programs,
) -> Result<Vec<Request>, String> {
    let mut requests = Vec::new();
    for request in items(claim, "/spec/devices/requests") {
        let name = text(request, "/name");
        let list = items(request, "/firstAvailable");
        let named = match request.get("exactly").filter(|exactly| !exactly.is_null()) {
            Some(exactly) => vec![(name.to_owned(), exactly)],
            None => list.iter().map(|sub| (format!("{name}/{}", text(sub, "/name")), sub)).collect(),
        };
        if named.is_empty() {
            return Err(format!("claim {}, request {name}: unsupported request type", shown(claim)));
        }
        let mut choices = Vec::new();
        for (name, details) in named {
            let choice = choice(claim, &name, details, inventory, objects, programs);
            choices.push(choice.map_err(|why| format!("claim {}, request {name}: {why}", shown(claim)))?);
        }
        requests.push(Request { choices });
    }
    Ok(requests)
}

fn choice(
    claim: &Value,
    name: &str,
    details: &Value,
    inventory: &Inventory,
    objects: &Objects,
    programs: &mut Programs,
) -> Result<Choice, String> {
    let class = text(details, "/deviceClassName");
    if class.is_empty() {
        return Err("missing device class name (unsupported request type?)".to_owned());
    }
    let found = objects.get(&Key::new(CLASSES, "", class)).ok_or_else(|| {
        format!("could not retrieve device class {class}: deviceclass.resource.k8s.io \"{class}\" not found")
    })?;
    let admin_access = details["adminAccess"] == true;
    let namespace = objects.get(&Key::new("namespaces", "", object::namespace(claim)));
    if admin_access && namespace.is_none_or(|namespace| text(namespace, ADMIN_ACCESS) != "true") {
        return Err(
            "admin access needs the label resource.kubernetes.io/admin-access: \"true\" on the namespace"
                .to_owned(),
        );
    }
    let wants_all = match text(details, "/allocationMode") {
        "" | "ExactCount" => false,
        "All" => true,
        other => return Err(format!("unsupported count mode {other}")),
    };
    if wants_all && let Some(pool) = inventory.incomplete.first() {
        return Err(format!("asks for all devices, but resource pool {pool} is currently being updated"));
    }
    if wants_all && let Some(pool) = inventory.invalid.first() {
        return Err(format!("asks for all devices, but resource pool {pool} is currently invalid"));
    }
    let tolerations = items(details, "/tolerations").to_vec();
    let mut matching = Vec::new();
    for (at, device) in inventory.devices.iter().enumerate() {
        let is_selected =
            selects(&format!("class {class}: "), items(found, "/spec/selectors"), device, programs)?
                && selects("", items(details, "/selectors"), device, programs)?;
        if is_selected
            && has_capacity(details, device)
            && taints::untolerated(&device.taints, &tolerations).is_none()
        {
            matching.push(at);
        }
    }
    let count = details.get("count").and_then(Value::as_u64).unwrap_or(1).min(MAX_COUNT);
    let count = if wants_all { matching.len().max(1) } else { usize::try_from(count).unwrap_or_default() };
    let config = items(found, "/spec/config").to_vec();
    let (name, class) = (name.to_owned(), class.to_owned());
    Ok(Choice { name, class, config, count, wants_all, admin_access, tolerations, matching })
}

/// Whether all selectors are true for the device. One without a value for it ends the allocation: it may be a mistake.
fn selects(of: &str, selectors: &[Value], device: &Device, programs: &mut Programs) -> Result<bool, String> {
    for (at, selector) in selectors.iter().enumerate() {
        let expression = text(selector, "/cel/expression");
        if expression.is_empty() {
            return Err(format!("{of}selector #{at}: CEL expression empty (unsupported selector type?)"));
        }
        let program = programs.get(expression);
        let program = program.map_err(|error| format!("{of}selector #{at}: CEL compile error: {error}"))?;
        let matches = program.matches(&device.input).map_err(|error| {
            format!("{of}selector #{at}: CEL runtime error for device {}: {error}", device.id.device)
        })?;
        if !matches {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the device has what the request needs of it. No device is shared, so that it is all for this request.
fn has_capacity(details: &Value, device: &Device) -> bool {
    let mut requests = details.pointer("/capacity/requests").and_then(Value::as_object).into_iter().flatten();
    requests.all(|(name, wanted)| {
        let capacity = device.capacity.get(&qualified(name, &device.id.driver));
        amounts::parse(wanted).is_some_and(|wanted| capacity.is_some_and(|capacity| *capacity >= wanted))
    })
}
