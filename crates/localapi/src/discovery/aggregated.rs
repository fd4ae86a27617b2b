//! Aggregated discovery: all groups and their kinds in one document, for clients that accept it.

use serde_json::{Value, json};

use crate::resources::{self, GroupVersion, Kinds, Resource, Subresource};

pub(super) struct Document {
    pub(super) content_type: &'static str,
    pub(super) text: String,
}

/// The document for `/api` (the core group) or `/apis` (all others); `None` if `accept` contains no supported version.
pub(super) fn document(kinds: Kinds, core: bool, accept: &str) -> Option<Document> {
    let wanted = accept.split(',').find(|entry| {
        entry.contains("application/json")
            && entry.contains("g=apidiscovery.k8s.io")
            && ["v=v2;", "v=v2beta1;"].iter().any(|version| format!("{};", entry.trim()).contains(version))
    })?;
    let beta = wanted.contains("v=v2beta1");
    let version = if beta { "v2beta1" } else { "v2" };
    let groups = if core { vec![("", vec![resources::CORE])] } else { kinds.groups() };
    let items: Vec<Value> = groups.iter().map(|(group, versions)| item(kinds, group, versions)).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    });
    let content_type = if beta {
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
    } else {
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    };
    Some(Document { content_type, text: list.to_string() })
}

fn item(kinds: Kinds, group: &str, versions: &[GroupVersion]) -> Value {
    let versions: Vec<Value> = versions.iter().map(|of| version(kinds, *of)).collect();
    json!({
        "metadata": if group.is_empty() { json!({}) } else { json!({"name": group}) },
        "versions": versions,
    })
}

fn version(kinds: Kinds, of: GroupVersion) -> Value {
    let resources: Vec<Value> =
        kinds.all().filter(|resource| resource.group_version() == of).map(entry).collect();
    json!({"version": of.version, "resources": resources, "freshness": "Current"})
}

fn entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.name,
        "responseKind": kind(resource.group_version(), resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if resource.all {
        entry["categories"] = json!(["all"]);
    }
    if !resource.subresources.is_empty() {
        let subs = resource.subresources.iter().map(|sub| sub_entry(resource, sub));
        entry["subresources"] = subs.collect();
    }
    entry
}

fn sub_entry(resource: &Resource, sub: &Subresource) -> Value {
    json!({
        "subresource": sub.name,
        "responseKind": kind(sub.group_version.unwrap_or(resource.group_version()), sub.kind),
        "verbs": sub.verbs,
    })
}

fn kind(of: GroupVersion, kind: &str) -> Value {
    json!({"group": of.group, "version": of.version, "kind": kind})
}
