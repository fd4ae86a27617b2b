//! Priority classes: the priority of a new pod, and which classes may exist.

use serde_json::{Value, json};

use super::Context;
use crate::object::{self, text};
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::{Key, Objects};
use crate::validation::SYSTEM_CLASSES;

const CLASSES: &str = "priorityclasses";
const PREEMPT: &str = "PreemptLowerPriority";

/// Sets the priority that the pod's class has, or the default class.
pub(super) fn set(context: &Context<'_>, resource: &Resource, pod: &mut Value) -> Result<(), ApiError> {
    let name = object::name(pod).to_owned();
    let refuse = |why: String| Err(ApiError::forbidden_object(resource, &name, &why));
    let named = text(pod, "/spec/priorityClassName").to_owned();
    let class = match named.as_str() {
        "" => default_class(context.objects),
        named => match context.objects.get(&Key::new(CLASSES, "", named)) {
            Some(class) => Some(&**class),
            None if is_system(named) => None,
            None => return refuse(format!("no PriorityClass with name {named} was found")),
        },
    };
    let system = SYSTEM_CLASSES.iter().find(|(system, _)| *system == named).map(|(_, value)| *value);
    let value = class.map(value).or(system).unwrap_or(0);
    let policy = class.map(|class| text(class, "/preemptionPolicy")).filter(|policy| !policy.is_empty());
    let policy = policy.unwrap_or(PREEMPT);
    let given = pod.pointer("/spec/priority").and_then(Value::as_i64);
    if let Some(given) = given.filter(|given| *given != value) {
        return refuse(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        ));
    }
    let given = text(pod, "/spec/preemptionPolicy");
    if !given.is_empty() && given != policy {
        return refuse(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    let spec = object::map_at(pod, "spec");
    if let Some(class) = class {
        spec.insert("priorityClassName".to_owned(), json!(object::name(class)));
    }
    spec.insert("priority".to_owned(), json!(value));
    spec.insert("preemptionPolicy".to_owned(), json!(policy));
    Ok(())
}

fn is_system(name: &str) -> bool {
    SYSTEM_CLASSES.iter().any(|(system, _)| *system == name)
}

fn value(class: &Value) -> i64 {
    class.get("value").and_then(Value::as_i64).unwrap_or(0)
}

/// The lowest of those that are marked as the default.
fn default_class(objects: &Objects) -> Option<&Value> {
    let marked = objects.of(CLASSES, None).map(|(_, class)| &**class).filter(|class| is_default(class));
    marked.min_by_key(|class| value(class))
}

fn is_default(class: &Value) -> bool {
    class.get("globalDefault") == Some(&Value::Bool(true))
}

/// Refuses a second default.
pub(super) fn check_class(context: &Context<'_>, resource: &Resource, class: &Value) -> Result<(), ApiError> {
    let name = object::name(class);
    let refuse = |why: &str| Err(ApiError::forbidden_object(resource, name, why));
    match default_class(context.objects) {
        Some(other) if is_default(class) && object::name(other) != name => refuse(&format!(
            "PriorityClass {} is already marked as default. Only one default can exist",
            object::name(other)
        )),
        Some(_) | None => Ok(()),
    }
}
