//! The roles and bindings of every cluster are completed when the server starts.

use serde_json::Value;

use crate::api::Api;
use crate::auth::User;
use crate::auth::rbac::defaults;
use crate::auth::rbac::reconciliation::{self, Change};
use crate::http::RequestInfo;
use crate::object;
use crate::registry::deletion::DeleteOptions;
use crate::registry::namespaces::ensure;
use crate::registry::{Scope, aggregated_roles, delete, update};
use crate::resources;
use crate::status::ApiError;
use crate::store::Key;

const CLUSTER_ROLES: &str = "clusterroles";

/// Creates the roles and bindings of every cluster, and adds to existing ones what they lack.
pub(super) fn reconcile(api: &Api) -> Result<(), ApiError> {
    for expected in defaults::roles(api.kinds().measured) {
        reconcile_one(api, CLUSTER_ROLES, expected, reconciliation::role)?;
    }
    for expected in defaults::bindings() {
        reconcile_one(api, "clusterrolebindings", expected, reconciliation::binding)?;
    }
    aggregated_roles::update(api);
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
