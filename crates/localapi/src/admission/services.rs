//! Services: allocation of cluster IPs and node ports. Routing is the task of kube-proxy.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::Context;
use crate::object::{self, items, text};
use crate::resources::{Resource, SERVICES_ADVICE};
use crate::status::ApiError;
use crate::store::Objects;
use crate::validation::Reason;

/// The range of cluster IPs, 10.96.0.0/16; the first belongs to the Service `kubernetes`.
const RANGE: [u8; 2] = [10, 96];
pub(crate) const API_ADDRESS: Ipv4Addr = Ipv4Addr::new(RANGE[0], RANGE[1], 0, 1);
const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

pub(super) fn create(
    context: &Context<'_>,
    resource: &Resource,
    service: &mut Value,
) -> Result<(), ApiError> {
    if context.api.behaviour.refuse_services {
        // That of the API server is the only one, with the address on which it listens.
        return match context.user.is_own() {
            true => Ok(()),
            false => Err(ApiError::not_served(resource, SERVICES_ADVICE)),
        };
    }
    allocate(context.objects, resource, service)
}

/// Keeps the cluster IP if the client omits it; a change of type may allocate or release one.
pub(super) fn update(
    context: &Context<'_>,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) -> Result<(), ApiError> {
    let same_kind = is_external(new) == is_external(old);
    let own = text(old, "/spec/clusterIP").to_owned();
    let given = text(new, "/spec/clusterIP");
    if same_kind && !own.is_empty() {
        if !given.is_empty() && given != own {
            let message = format!("Invalid value: {given:?}: field is immutable");
            let name = object::name(new);
            return Err(ApiError::invalid_field(resource, name, "spec.clusterIP", Reason::Invalid, message));
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
    let given = text(service, "/spec/clusterIP").to_owned();
    let allocated_already = |address: &str| {
        objects.of("services", None).any(|(key, other)| {
            text(other, "/spec/clusterIP") == address
                && !(key.name == name && key.namespace == object::namespace(service))
        })
    };
    let address = if given.is_empty() {
        free_cluster_ip(&allocated_already)
            .ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?
    } else if given == "None"
        || (given.parse::<Ipv4Addr>().is_ok_and(is_in_range) && !allocated_already(&given))
    {
        given
    } else {
        let message = format!(
            "Invalid value: {given:?}: failed to allocate IP {given}: it is already allocated, or not in the range 10.96.0.0/16"
        );
        return Err(ApiError::invalid_field(resource, &name, "spec.clusterIPs", Reason::Invalid, message));
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

fn free_cluster_ip(allocated_already: &impl Fn(&str) -> bool) -> Option<String> {
    (1..u16::MAX)
        .map(|host| {
            let [high, low] = host.to_be_bytes();
            Ipv4Addr::new(RANGE[0], RANGE[1], high, low)
        })
        .filter(|address| *address != API_ADDRESS)
        .map(|address| address.to_string())
        .find(|address| !allocated_already(address))
}

fn set_node_ports(objects: &Objects, service: &mut Value) -> Result<(), ApiError> {
    let mut allocated_already: BTreeSet<u64> = objects
        .of("services", None)
        .flat_map(|(_, other)| items(other, "/spec/ports"))
        .filter_map(|port| port["nodePort"].as_u64())
        .collect();
    for port in ports(service) {
        if port["nodePort"].as_u64().is_some_and(|own| own != 0) {
            continue;
        }
        let free = NODE_PORTS.clone().find(|number| !allocated_already.contains(number));
        let free = free.ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?;
        allocated_already.insert(free);
        port["nodePort"] = json!(free);
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::resources;
    use crate::store::{Key, NotStored, Store, Write};

    fn service(name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "a"}, "spec": spec})
    }

    fn allocated(store: &Store, mut service: Value) -> Result<Value, ApiError> {
        let resource = resources::stored("services").unwrap();
        store.read(|objects| allocate(objects, resource, &mut service))?;
        let key = Key::new("services", "a", object::name(&service));
        store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(service.clone()))).unwrap();
        Ok(service["spec"].clone())
    }

    #[test]
    fn each_service_gets_its_own_cluster_ip() {
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
    fn cluster_ip_that_is_allocated_or_out_of_range_is_refused() {
        let store = Store::new(10);
        allocated(&store, service("one", json!({}))).unwrap();
        for address in ["10.96.0.2", "192.168.0.1", "nonsense"] {
            let refused = allocated(&store, service("two", json!({"clusterIP": address}))).unwrap_err();
            assert!(refused.message.contains(address), "{}", refused.message);
        }
    }

    #[test]
    fn node_ports_are_allocated_once() {
        let store = Store::new(10);
        let ports = json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "nodePort": 30001}]});
        let one = allocated(&store, service("one", ports.clone())).unwrap();
        assert_eq!(one["ports"][0]["nodePort"], 30000);
        let two =
            allocated(&store, service("two", json!({"type": "NodePort", "ports": [{"port": 80}]}))).unwrap();
        assert_eq!(two["ports"][0]["nodePort"], 30002);
    }
}
