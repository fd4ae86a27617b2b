//! Namespaces: the initial ones, the default objects of each, and the deletion of a namespace with its content.

use std::sync::Arc;

use ::http::StatusCode;
use serde_json::{Value, json};

use super::create::create;
use super::deletion::{self, Decision, DeleteOptions};
use crate::api::Api;
use crate::auth::User;
use crate::object;
use crate::resources;
use crate::status::ApiError;
use crate::store::{Key, NotStored, Write, Written};

/// The namespaces of every cluster.
pub(crate) const INITIAL: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];
/// Namespaces that cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-public", "kube-system"];

/// Marks the namespace as terminating, deletes its content, and removes it once it is empty.
pub(crate) fn delete(api: &Api, key: &Key, options: &DeleteOptions) -> Result<Written, ApiError> {
    let resource = resources::stored(key.resource).ok_or_else(ApiError::no_such_path)?;
    if IMMORTAL.contains(&key.name.as_str()) {
        return Err(ApiError::forbidden_object(resource, &key.name, "this namespace may not be deleted"));
    }
    let now = api.now();
    let mut dry_run_result = None;
    let written = api.store.write(key, |_, current| {
        let current = current.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
        options.check(resource, current)?;
        if object::is_terminating(current) {
            return Ok::<_, ApiError>(Write::Keep);
        }
        let mut marked = (**current).clone();
        object::metadata(&mut marked).insert("deletionTimestamp".to_owned(), json!(object::time(now)));
        object::map_at(&mut marked, "status").insert("phase".to_owned(), json!("Terminating"));
        if options.dry_run {
            dry_run_result = Some(Written { object: Some(Arc::new(marked)), removed: false });
            return Ok(Write::Keep);
        }
        Ok(Write::Put(marked))
    })?;
    if !options.dry_run {
        empty(api, &key.name);
        finish(api, &key.name);
    }
    Ok(dry_run_result.unwrap_or(written))
}

/// Call this after an object was removed: it may have been the last one of a terminating namespace.
pub(crate) fn after_removal(api: &Api, key: &Key) {
    if !key.namespace.is_empty() {
        finish(api, &key.namespace);
    }
}

/// Deletes the content of a namespace; bound pods and objects with finalizers stay until their kubelet or controller
/// releases them.
fn empty(api: &Api, namespace: &str) {
    let now = api.now();
    for key in api.store.read(|objects| objects.keys_in(namespace)) {
        let Some(resource) = resources::stored(key.resource) else { continue };
        let deleted: Result<Written, ApiError> = api.store.write(&key, |_, current| {
            let Some(current) = current else { return Ok(Write::Keep) };
            Ok(match deletion::decide(resource, current, &DeleteOptions::default(), now) {
                Decision::Remove(last) => Write::Remove(last),
                Decision::Mark(marked) => Write::Put(marked),
                Decision::Leave => Write::Keep,
            })
        });
        if let Err(error) = deleted {
            tracing::warn!(err = %error, name = key.name, "failed to delete an object of a terminating namespace");
        }
    }
}

/// Removes the namespace if it is terminating, empty and without finalizers.
pub(crate) fn finish(api: &Api, namespace: &str) {
    let key = Key::new("namespaces", "", namespace);
    let done: Result<Written, NotStored> = api.store.write(&key, |objects, current| {
        Ok(match current {
            Some(current)
                if object::is_terminating(current)
                    && object::finalizers(current).is_empty()
                    && !objects.any_in(namespace) =>
            {
                Write::Remove((**current).clone())
            }
            Some(_) | None => Write::Keep,
        })
    });
    if let Err(error) = done {
        tracing::warn!(err = %error, namespace, "failed to remove a terminating namespace; the next start does it");
    }
}

/// Continues the deletions that were not complete when the server stopped.
pub(crate) fn resume(api: &Api) {
    let names: Vec<String> = api.store.read(|objects| {
        let terminating =
            objects.of("namespaces", None).filter(|(_, namespace)| object::is_terminating(namespace));
        terminating.map(|(key, _)| key.name.clone()).collect()
    });
    for name in names {
        empty(api, &name);
        finish(api, &name);
    }
}

/// Creates the default ServiceAccount and the ConfigMap `kube-root-ca.crt` of a namespace.
pub(crate) fn populate(api: &Api, namespace: &str) -> Result<(), ApiError> {
    if !api.behaviour.service_accounts {
        return Ok(());
    }
    ensure(api, "serviceaccounts", namespace, json!({"metadata": {"name": "default"}}))?;
    let authority = json!({
        "metadata": {"name": "kube-root-ca.crt"},
        "data": {"ca.crt": api.authority.pem().certificate},
    });
    ensure(api, "configmaps", namespace, authority)
}

/// Creates an object unless it exists.
pub(crate) fn ensure(api: &Api, resource: &str, namespace: &str, mut object: Value) -> Result<(), ApiError> {
    let resource = resources::stored(resource).ok_or_else(ApiError::no_such_path)?;
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    match create(api, &User::own(), resource, namespace, object, "", false) {
        Err(error) if error.code == StatusCode::CONFLICT => Ok(()),
        // Nothing can be created in a terminating namespace.
        Err(error) if error.code == StatusCode::FORBIDDEN => Ok(()),
        done => done.map(drop),
    }
}
