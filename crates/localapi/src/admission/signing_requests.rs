//! Certificate signing requests: the server sets the requesting user, whatever the object contains.

use serde_json::{Map, Value, json};

use super::Context;
use crate::object;

pub(super) fn create(context: &Context<'_>, request: &mut Value) {
    let user = context.user;
    let spec = object::map_at(request, "spec");
    spec.insert("username".to_owned(), json!(user.name));
    spec.insert("groups".to_owned(), json!(user.groups));
    for (field, value) in [("uid", json!(user.uid)), ("extra", json!(user.extra))] {
        let empty = value.as_str().is_some_and(str::is_empty) || value.as_object().is_some_and(Map::is_empty);
        if empty {
            spec.remove(field);
        } else {
            spec.insert(field.to_owned(), value);
        }
    }
    request["status"] = Value::Object(Map::new());
}
