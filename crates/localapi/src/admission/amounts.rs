//! What a namespace allows its objects: LimitRanges and ResourceQuotas.

use serde_json::Value;

use super::limits;
use crate::object;
use crate::quota;
use crate::resources::Resource;
use crate::store::Objects;

pub(super) fn check(
    objects: &Objects,
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), String> {
    // An update that requests nothing else needs no look.
    if object::namespace(new).is_empty() || old.is_some_and(|old| old.get("spec") == new.get("spec")) {
        return Ok(());
    }
    let problems = match resource.name {
        "pods" if !is_mirror(new) => limits::check_pod(objects, new),
        "persistentvolumeclaims" => limits::check_claim(objects, new),
        _ => Vec::new(),
    };
    match problems.as_slice() {
        [] => {}
        [one] => return Err(one.clone()),
        several => return Err(format!("[{}]", several.join(", "))),
    }
    quota::refusal(resource, new, old, objects).map_or(Ok(()), Err)
}

/// It shows a pod that runs already.
fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some()
}
