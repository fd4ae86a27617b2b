//! Services: a virtual address from the service range, and node ports. Nothing routes to them: that is kube-proxy's work.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::Context;
use crate::object::{self, items, text};
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::Objects;
use crate::validation::Reason;

/// The range of virtual addresses, 10.96.0.0/16; its first is the API server's own Service.
const RANGE: [u8; 2] = [10, 96];
pub(crate) const API_ADDRESS: Ipv4Addr = Ipv4Addr::new(RANGE[0], RANGE[1], 0, 1);
const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

pub(super) fn create(
    context: &Context<'_>,
    resource: &Resource,
    service: &mut Value,
) -> Result<(), ApiError> {
    allocate(context.objects, resource, service)
}

/// The address stays when the client does not send it; a change of type may need one, or none.
pub(super) fn update(
    context: &Context<'_>,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    let same_kind = is_external(new) == is_external(old);
    let own = text(old, "/spec/clusterIP").to_owned();
    let said = text(new, "/spec/clusterIP");
    if same_kind && !own.is_empty() {
        if !said.is_empty() && said != own {
            let said = format!("Invalid value: {said:?}: field is immutable");
            let name = object::name(new);
            return Err(ApiError::invalid_field(resource, name, "spec.clusterIP", Reason::Invalid, said));
        }
        object::map_at(new, "spec").insert("clusterIP".to_owned(), json!(own));
    }
    keep_node_ports(new, old);
    allocate(context.objects, resource, new)
}

fn ports(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    ports.map(Vec::as_mut_slice).unwrap_or_default().iter_mut().filter(|port| port.is_object())
}

fn is_external(service: &Value) -> bool {
    text(service, "/spec/type") == "ExternalName"
}

fn keep_node_ports(new: &mut Value, old: &Value) {
    let of_old: Vec<(Value, Value, Value)> = items(old, "/spec/ports")
        .iter()
        .map(|port| (port["port"].clone(), port["protocol"].clone(), port["nodePort"].clone()))
        .collect();
    for port in ports(new) {
        let same = of_old.iter().find(|(number, protocol, node_port)| {
            *number == port["port"]
                && !node_port.is_null()
                && (port["protocol"].is_null() || *protocol == port["protocol"])
        });
        if let (true, Some((_, _, node_port))) = (port["nodePort"].is_null(), same) {
            port["nodePort"] = node_port.clone();
        }
    }
}

fn allocate(objects: &Objects, resource: &Resource, service: &mut Value) -> Result<(), ApiError> {
    let name = object::name(service).to_owned();
    let kind = text(service, "/spec/type").to_owned();
    if kind == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            object::map_at(service, "spec").remove(field);
        }
        return Ok(());
    }
    let said = text(service, "/spec/clusterIP").to_owned();
    let taken = |address: &str| {
        objects.of("services", None).any(|(key, other)| {
            text(other, "/spec/clusterIP") == address
                && !(key.name == name && key.namespace == object::namespace(service))
        })
    };
    let address = if said.is_empty() {
        free_address(&taken)
            .ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?
    } else if said == "None" || (said.parse::<Ipv4Addr>().is_ok_and(is_in_range) && !taken(&said)) {
        said
    } else {
        let said = format!(
            "Invalid value: {said:?}: failed to allocate IP {said}: it is taken, or not in the range 10.96.0.0/16"
        );
        return Err(ApiError::invalid_field(resource, &name, "spec.clusterIPs", Reason::Invalid, said));
    };
    let spec = object::map_at(service, "spec");
    spec.insert("clusterIPs".to_owned(), json!([address]));
    spec.insert("clusterIP".to_owned(), json!(address));
    spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
    spec.entry("ipFamilyPolicy").or_insert_with(|| json!("SingleStack"));
    if ["NodePort", "LoadBalancer"].contains(&kind.as_str()) {
        return set_node_ports(objects, service);
    }
    Ok(())
}

fn is_in_range(address: Ipv4Addr) -> bool {
    address.octets()[..2] == RANGE
}

fn free_address(taken: &impl Fn(&str) -> bool) -> Option<String> {
    (1..u16::MAX)
        .map(|host| {
            let [high, low] = host.to_be_bytes();
            Ipv4Addr::new(RANGE[0], RANGE[1], high, low)
        })
        .filter(|address| *address != API_ADDRESS)
        .map(|address| address.to_string())
        .find(|address| !taken(address))
}

fn set_node_ports(objects: &Objects, service: &mut Value) -> Result<(), ApiError> {
    let mut taken: BTreeSet<u64> = objects
        .of("services", None)
        .flat_map(|(_, other)| items(other, "/spec/ports"))
        .filter_map(|port| port["nodePort"].as_u64())
        .collect();
    for port in ports(service) {
        if port["nodePort"].as_u64().is_some_and(|own| own != 0) {
            continue;
        }
        let free = NODE_PORTS.clone().find(|number| !taken.contains(number));
        let free = free.ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?;
        taken.insert(free);
        port["nodePort"] = json!(free);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::resources;
    use crate::store::{Key, Store, Write};

    fn service(name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "a"}, "spec": spec})
    }

    fn allocated(store: &Store, mut service: Value) -> Result<Value, ApiError> {
        let resource = resources::stored("services").unwrap();
        store.read(|objects| allocate(objects, resource, &mut service))?;
        let key = Key::new("services", "a", object::name(&service));
        store.write(&key, |_, _| Ok::<_, Infallible>(Write::Put(service.clone()))).unwrap();
        Ok(service["spec"].clone())
    }

    #[test]
    fn each_service_gets_an_address_of_its_own() {
        let store = Store::new(10);
        let one = allocated(&store, service("one", json!({}))).unwrap();
        let two = allocated(&store, service("two", json!({}))).unwrap();
        assert_eq!((&one["clusterIP"], &two["clusterIP"]), (&json!("10.96.0.2"), &json!("10.96.0.3")));
        assert_eq!(one["clusterIPs"], json!(["10.96.0.2"]));
        assert_eq!(
            allocated(&store, service("three", json!({"clusterIP": "None"}))).unwrap()["clusterIP"],
            "None"
        );
        let external = allocated(&store, service("four", json!({"type": "ExternalName"}))).unwrap();
        assert_eq!(external.get("clusterIP"), None);
    }

    #[test]
    fn an_address_that_is_taken_or_out_of_range_is_refused() {
        let store = Store::new(10);
        allocated(&store, service("one", json!({}))).unwrap();
        for address in ["10.96.0.2", "192.168.0.1", "nonsense"] {
            let refused = allocated(&store, service("two", json!({"clusterIP": address}))).unwrap_err();
            assert!(refused.message.contains(address), "{}", refused.message);
        }
    }

    #[test]
    fn node_ports_are_given_out_once() {
        let store = Store::new(10);
        let ports = json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "nodePort": 30001}]});
        let one = allocated(&store, service("one", ports.clone())).unwrap();
        assert_eq!(one["ports"][0]["nodePort"], 30000);
        let two =
            allocated(&store, service("two", json!({"type": "NodePort", "ports": [{"port": 80}]}))).unwrap();
        assert_eq!(two["ports"][0]["nodePort"], 30002);
    }
}
