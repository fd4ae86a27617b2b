//! ClusterRoles that collect the rules of others follow them at once.

use serde_json::Value;

use crate::api::Api;
use crate::auth::rbac::aggregation;
use crate::encoding;
use crate::object;
use crate::store::{Key, NotStored, Objects, Write, Written};

const CLUSTER_ROLES: &str = "clusterroles";
/// How often collected rules are computed again: a role may collect those of a role that collects, too.
const MAX_ROUNDS: usize = 10;

/// Updates the ClusterRoles that collect rules. Call this after any ClusterRole has changed.
pub(crate) fn update(api: &Api) {
    for _ in 0..MAX_ROUNDS {
        let outdated = api.store.read(outdated);
        if outdated.is_empty() {
            return;
        }
        for key in outdated {
            let written: Result<Written, NotStored> = api.store.write(&key, |objects, current| {
                Ok(current.and_then(|current| collected(current, objects)).map_or(Write::Keep, Write::Put))
            });
            if let Err(error) = written {
                tracing::warn!(err = %error, name = key.name, "failed to update an aggregated ClusterRole");
                return;
            }
        }
    }
    tracing::warn!("aggregated ClusterRoles still change after {MAX_ROUNDS} rounds");
}

fn outdated(objects: &Objects) -> Vec<Key> {
    let roles = objects.of(CLUSTER_ROLES, None);
    roles.filter(|(_, role)| collected(role, objects).is_some()).map(|(key, _)| key.clone()).collect()
}

/// The role with the rules that it collects; `None` if it has them already, or collects none.
fn collected(role: &Value, objects: &Objects) -> Option<Value> {
    let rules = aggregation::rules(role, objects)?;
    if object::items(role, "/rules") == rules {
        return None;
    }
    let mut new = role.clone();
    new["rules"] = Value::Array(rules);
    encoding::complete(CLUSTER_ROLES, &mut new);
    Some(new)
}
