//! Non-resource paths: groups, versions and kinds, the server version, health, and the OpenAPI documents, all derived from
//! the table of kinds; and the documents of OpenID for the tokens of service accounts.

mod aggregated;
mod health;
mod openapi;
mod openid;

use ::http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::http::{Body, Query, response};
use crate::resources::{self, GroupVersion, Kinds, Resource, Subresource};
use crate::status::ApiError;

/// The API version that this server implements; clients derive its features from it.
const VERSION: (&str, &str, &str) = ("1", "36", "v1.36.0");

/// The document at `path`, in the form that `accept` requests.
pub(crate) fn handle(api: &Api, path: &str, query: &Query, accept: &str) -> Result<Response<Body>, ApiError> {
    let kinds = api.kinds();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let aggregated = || {
        let document = aggregated::document(kinds, segments.first() == Some(&"api"), accept)?;
        Some(response::bytes(StatusCode::OK, document.content_type, document.text))
    };
    let document = match segments.as_slice() {
        [endpoint @ ("healthz" | "livez" | "readyz")] => return Ok(health::all(api, endpoint, query)),
        [endpoint @ ("healthz" | "livez" | "readyz"), check] => return Ok(health::one(api, endpoint, check)),
        ["version"] => version(),
        [] => paths(kinds),
        ["api" | "apis"] => {
            if let Some(response) = aggregated() {
                return Ok(response);
            }
            if segments[0] == "api" { core_versions() } else { groups(kinds) }
        }
        ["api", "v1"] => resource_list(kinds, resources::CORE),
        ["apis", group] => {
            let found = kinds.groups().into_iter().find(|(known, _)| known == group);
            let (name, versions) = found.ok_or_else(ApiError::no_such_path)?;
            self::group(name, &versions, true)
        }
        ["apis", group, version] => {
            let mut known = kinds.group_versions().into_iter();
            let found = known.find(|found| (found.group, found.version) == (*group, *version));
            resource_list(kinds, found.ok_or_else(ApiError::no_such_path)?)
        }
        [".well-known", "openid-configuration"] => return Ok(openid::configuration(api)),
        ["openid", "v1", "jwks"] => return Ok(openid::keys(api)),
        ["openapi", ..] => return openapi::handle(kinds, &segments[1..], accept),
        _ => return Err(ApiError::no_such_path()),
    };
    Ok(response::json(StatusCode::OK, &document))
}

fn version() -> Value {
    let (major, minor, git) = VERSION;
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": format!("{git}+localapi"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

fn paths(kinds: Kinds) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for (group, versions) in kinds.groups() {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{version}")));
    }
    let others = [
        "/.well-known/openid-configuration",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ];
    paths.extend(others.map(str::to_owned));
    json!({"paths": paths})
}

fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

fn groups(kinds: Kinds) -> Value {
    let groups: Vec<Value> =
        kinds.groups().iter().map(|(name, versions)| group(name, versions, false)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group(name: &str, versions: &[GroupVersion], standalone: bool) -> Value {
    let entry = |of: &GroupVersion| json!({"groupVersion": of.to_string(), "version": of.version});
    let versions: Vec<Value> = versions.iter().map(entry).collect();
    let mut group = json!({"name": name, "preferredVersion": versions.first(), "versions": versions});
    if standalone {
        group["kind"] = json!("APIGroup");
        group["apiVersion"] = json!("v1");
    }
    group
}

fn resource_list(kinds: Kinds, of: GroupVersion) -> Value {
    let mut resources = Vec::new();
    for resource in kinds.all().filter(|resource| resource.group_version() == of) {
        resources.push(entry(resource));
        resources.extend(resource.subresources.iter().map(|sub| sub_entry(resource, sub)));
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": of.to_string(),
        "resources": resources,
    })
}

fn entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.name,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if resource.all {
        entry["categories"] = json!(["all"]);
    }
    entry
}

fn sub_entry(resource: &Resource, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.name, sub.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": sub.kind,
        "verbs": sub.verbs,
    });
    if let Some(GroupVersion { group, version }) = sub.group_version {
        entry["group"] = json!(group);
        entry["version"] = json!(version);
    }
    entry
}
