//! The controllers of roles: ClusterRoles that collect the rules of others follow them at once, and the roles and bindings
//! of every cluster are completed when the server starts.

use serde_json::Value;

use super::delete::delete;
use super::deletion::DeleteOptions;
use super::namespaces::ensure;
use super::update::{Scope, update};
use crate::api::Api;
use crate::auth::User;
use crate::auth::rbac::reconciliation::{self, Change};
use crate::auth::rbac::{aggregation, defaults};
use crate::encoding;
use crate::http::RequestInfo;
use crate::object;
use crate::resources;
use crate::status::ApiError;
use crate::store::{Key, NotStored, Objects, Write, Written};

const CLUSTER_ROLES: &str = "clusterroles";
/// How often collected rules are computed again: a role may collect those of a role that collects, too.
const MAX_ROUNDS: usize = 10;

/// Updates the ClusterRoles that collect rules. Call this after any ClusterRole has changed.
pub(crate) fn aggregate(api: &Api) {
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

/// Creates the roles and bindings of every cluster, and adds to existing ones what they lack.
pub(crate) fn reconcile(api: &Api) -> Result<(), ApiError> {
    for expected in defaults::roles() {
        reconcile_one(api, CLUSTER_ROLES, expected, reconciliation::role)?;
    }
    for expected in defaults::bindings() {
        reconcile_one(api, "clusterrolebindings", expected, reconciliation::binding)?;
    }
    aggregate(api);
    Ok(())
}

fn reconcile_one(
    api: &Api,
    plural: &'static str,
    expected: Value,
    change: impl Fn(&Value, &Value) -> Change,
) -> Result<(), ApiError> {
    let key = Key::new(plural, "", object::name(&expected));
    let Some(existing) = api.store.get(&key) else { return ensure(api, plural, "", expected) };
    let resource = resources::stored(plural).ok_or_else(ApiError::no_such_path)?;
    match change(&existing, &expected) {
        Change::Keep => Ok(()),
        Change::Update(new) => {
            let name = Some(key.name);
            let info = RequestInfo { resource, namespace: None, name, subresource: None };
            update(api, &User::own(), &info, Scope::Main, "", false, |_| Ok(new)).map(drop)
        }
        Change::Recreate => {
            delete(api, resource, &key, &DeleteOptions::default())?;
            ensure(api, plural, "", expected)
        }
    }
}
