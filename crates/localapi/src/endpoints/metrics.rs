//! GET of what the kubelet measures (`metrics.k8s.io`). It selects stored objects as metrics-server does, by labels, name and namespace, and
//! asks the kubelet for all of them at once.

use std::borrow::Cow;
use std::sync::Arc;

use ::http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::list::{Item, List};
use super::negotiation::{self, Include, Media};
use super::selection::Selection;
use super::{Call, response};
use crate::http::Body;
use crate::resource_metrics::{self, Measured, Measurements};
use crate::resources;
use crate::status::ApiError;

pub(super) async fn read(call: &Call) -> Result<Response<Body>, ApiError> {
    if call.info.subresource.is_some() {
        return Err(ApiError::no_such_path());
    }
    if ![Method::GET, Method::HEAD].contains(&call.method) {
        return Err(ApiError::method_not_allowed());
    }
    if call.watches() {
        return Err(ApiError::verb_not_supported(call.resource(), "watch"));
    }
    match &call.info.name {
        Some(name) => get(call, name).await,
        None => list(call).await,
    }
}

async fn get(call: &Call, name: &str) -> Result<Response<Body>, ApiError> {
    let resource = call.resource();
    let (group, measured_as) = (resource.group, resource.measured_as.unwrap_or(resource.name));
    let stored = call.api.store.get(&call.key()).ok_or_else(|| match resources::stored(resource.name) {
        // The words of its informers.
        Some(pods) if resource.namespaced => ApiError::not_found(pods, name),
        Some(_) | None => ApiError::not_found_of_kind("", "node", name),
    })?;
    let measured = measure(call, &[stored]).await?.pop().ok_or_else(|| {
        let qualified = match call.namespace() {
            "" => name.to_owned(),
            namespace => format!("{namespace}/{name}"),
        };
        ApiError::not_found_of_kind(group, measured_as, &qualified)
    })?;
    match &call.media {
        Media::Object => Ok(response::json(StatusCode::OK, &measured.object)),
        Media::Metadata(version) => {
            Ok(response::json(StatusCode::OK, &negotiation::metadata_only(&measured.object, version)))
        }
        Media::Table(version) => table(call, &[measured], version),
    }
}

async fn list(call: &Call) -> Result<Response<Body>, ApiError> {
    call.check_list_options()?;
    let resource = call.resource();
    let selection = Selection::of_measured(call)?;
    let listing = call.api.store.list(resource.name, call.info.namespace.as_deref());
    let stored: Vec<Arc<Value>> = listing
        .objects
        .iter()
        .filter(|(_, object)| selection.includes(object))
        .map(|(_, object)| object.tree())
        .collect();
    let measured = measure(call, &stored).await?;
    let metadata = json!({});
    match &call.media {
        Media::Object => {
            let items = measured.iter().map(|of| Item(Cow::Borrowed(&of.object))).collect();
            let (kind, api_version) = (format!("{}List", resource.kind), resource.api_version());
            Ok(response::json(StatusCode::OK, &List { kind, api_version, metadata, items }))
        }
        Media::Metadata(version) => {
            let items = measured.iter().map(|of| negotiation::metadata_only(&of.object, version)).collect();
            Ok(response::json(StatusCode::OK, &negotiation::metadata_list(items, metadata, version)))
        }
        Media::Table(version) => table(call, &measured, version),
    }
}

fn table(call: &Call, measured: &[Measured], version: &str) -> Result<Response<Body>, ApiError> {
    let include = Include::parse(call.query.get("includeObject"))?;
    let objects: Vec<Value> = measured.iter().map(|of| of.object.clone()).collect();
    let table = negotiation::with_objects(resource_metrics::table(measured), &objects, version, include);
    Ok(response::json(StatusCode::OK, &table))
}

/// The measurements of these objects. Those that have none are left out.
async fn measure(call: &Call, stored: &[Arc<Value>]) -> Result<Vec<Measured>, ApiError> {
    if stored.is_empty() {
        return Ok(Vec::new());
    }
    let measurements = measurements(call).await?;
    let now = call.api.now();
    let of_object = |of: &Arc<Value>| resource_metrics::of_object(call.resource(), of, &measurements, now);
    Ok(stored.iter().filter_map(of_object).collect())
}

async fn measurements(call: &Call) -> Result<Arc<Measurements>, ApiError> {
    let api = &call.api;
    let node = api.behaviour.bind_to.as_deref().unwrap_or_default();
    let answer = api.usage.get(api.proxy.stats_summary(&api.store, node)).await;
    answer.map_err(|error| {
        let what = format!("failed to read the usage of node {node:?} from its kubelet");
        ApiError::unavailable(format!("{what}: {error}"))
    })
}
