//! Objects that no client can decode: created, changed and deleted at random. Whatever the simulation checks must hold as without them.

use model::k8s::{ConfigMap, Pod, RuntimeClass, Secret, Service};
use serde_json::{Value, json};

use super::random::Dice;
use crate::world::World;

const NAME: &str = "hostile";

pub(super) fn step(world: &World, dice: &mut Dice) -> String {
    let (plural, version) =
        (dice.pick(&["pods", "services", "secrets", "configmaps", "runtimeclasses"]), dice.between(0, 1000));
    if dice.one_in(4) {
        remove(world, plural);
        return format!("hostile object of {plural} is removed");
    }
    put(world, plural, version);
    format!("hostile object of {plural}, version {version}")
}

fn remove(world: &World, plural: &str) {
    let api = world.api();
    match plural {
        "pods" => api.remove::<Pod>("default", NAME, Some(0)),
        "services" => api.remove::<Service>("default", NAME, None),
        "secrets" => api.remove::<Secret>("default", NAME, None),
        "configmaps" => api.remove::<ConfigMap>("default", NAME, None),
        _ => api.remove::<RuntimeClass>("", NAME, None),
    };
}

fn put(world: &World, plural: &str, version: u64) {
    let api = world.api();
    let object = |mut fields: Value| {
        let labels = json!({"version": version.to_string()});
        fields["metadata"] = json!({"name": NAME, "namespace": "default", "labels": labels});
        fields
    };
    match plural {
        "pods" => api.put_json::<Pod>(object(json!({"spec": {"nodeName": "node", "containers": 7}}))),
        "services" => api.put_json::<Service>(object(json!({"spec": 7}))),
        "secrets" => api.put_json::<Secret>(object(json!({"data": 7}))),
        "configmaps" => api.put_json::<ConfigMap>(object(json!({"data": 7}))),
        _ => api.put_json::<RuntimeClass>(object(json!({"handler": 7}))),
    };
}
