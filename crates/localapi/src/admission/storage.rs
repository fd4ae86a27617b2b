//! New volumes and claims: the default storage class, and the finalizers that keep them as long as they are in use.

use serde_json::{Value, json};

use super::Context;
use crate::object::{self, text};
use crate::store::Objects;

/// Finalizers that keep a claim while a pod uses it, and a volume while it is bound.
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub(crate) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Marks the class of claims that name none.
const DEFAULT: &str = "/metadata/annotations/storageclass.kubernetes.io~1is-default-class";
const CLASS_ANNOTATION: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";

pub(super) fn create_claim(context: &Context<'_>, claim: &mut Value) {
    let names_a_class = claim.pointer("/spec/storageClassName").is_some_and(|class| !class.is_null());
    if !names_a_class
        && claim.pointer(CLASS_ANNOTATION).is_none()
        && let Some(class) = default_class(context.objects)
    {
        object::map_at(claim, "spec").insert("storageClassName".to_owned(), json!(class));
    }
    protect(context, claim, CLAIM_PROTECTION);
}

pub(super) fn create_volume(context: &Context<'_>, volume: &mut Value) {
    protect(context, volume, VOLUME_PROTECTION);
}

/// The controller of volumes removes it.
fn protect(context: &Context<'_>, object: &mut Value, finalizer: &str) {
    if context.api.behaviour.local_volumes.is_none() {
        return;
    }
    let mut finalizers = object::finalizers(object).to_vec();
    if !finalizers.iter().any(|held| held == finalizer) {
        finalizers.push(json!(finalizer));
        object::set_list(object::metadata(object), "finalizers", finalizers);
    }
}

/// The newest of those that are marked as the default, and of those the first by name.
fn default_class(objects: &Objects) -> Option<&str> {
    let marked = objects.of("storageclasses", None).filter(|(_, class)| text(class, DEFAULT) == "true");
    let newest = marked.max_by(|(one, first), (other, second)| {
        let created = |class| text(class, "/metadata/creationTimestamp");
        created(first).cmp(created(second)).then_with(|| other.name.cmp(&one.name))
    });
    newest.map(|(key, _)| key.name.as_str())
}
