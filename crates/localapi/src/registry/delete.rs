//! Deletion of an object in the store.

use std::sync::Arc;

use super::aggregated_roles;
use super::deletion::{self, Decision, DeleteOptions};
use super::namespaces;
use crate::api::Api;
use crate::resources::Resource;
use crate::status::ApiError;
use crate::store::{Key, Write, Written};

/// Deletes one object: removes it, or marks it as being deleted. A dry run returns what the deletion would.
pub(crate) fn delete(
    api: &Api,
    resource: &'static Resource,
    key: &Key,
    options: &DeleteOptions,
) -> Result<Written, ApiError> {
    let now = api.now();
    if resource.name == "namespaces" {
        return namespaces::delete(api, key, options);
    }
    let mut dry_run_result = None;
    let written = api.store.write(key, |_, current| {
        let current = current.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
        options.check(resource, current)?;
        let decision = deletion::decide(resource, current, options, now);
        if options.dry_run {
            let (object, removed) = match decision {
                Decision::Remove(last) => (Arc::new(last), true),
                Decision::Mark(marked) => (Arc::new(marked), false),
                Decision::Leave => (Arc::clone(current), false),
            };
            dry_run_result = Some(Written { object: Some(object), removed });
            return Ok::<_, ApiError>(Write::Keep);
        }
        Ok(match decision {
            Decision::Remove(last) => Write::Remove(last),
            Decision::Mark(marked) => Write::Put(marked),
            Decision::Leave => Write::Keep,
        })
    })?;
    if written.removed {
        namespaces::after_removal(api, key);
        if resource.name == "clusterroles" {
            aggregated_roles::update(api);
        }
    }
    Ok(dry_run_result.unwrap_or(written))
}
