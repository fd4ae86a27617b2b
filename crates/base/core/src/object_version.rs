//! Versions of API objects.
//!
//! Owns: which of two versions of an object is newer. Never: what they contain.

use k8s_openapi::Metadata;
use model::k8s::ObjectMeta;

/// One version of one object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectVersion<'a> {
    pub uid: Option<&'a str>,
    /// Empty for an object that was never written to the API.
    pub resource_version: &'a str,
}

impl<'a> ObjectVersion<'a> {
    pub fn of<K: Metadata<Ty = ObjectMeta>>(object: &'a K) -> Self {
        let ObjectMeta { uid, resource_version, .. } = object.metadata();
        Self { uid: uid.as_deref(), resource_version: resource_version.as_deref().unwrap_or_default() }
    }

    /// Whether both are the same version of the same object: the API gives each version its own resource version.
    #[must_use]
    pub fn is_same_as(self, other: Self) -> bool {
        let is_known = !self.resource_version.is_empty();
        is_known && self.uid == other.uid && self.resource_version == other.resource_version
    }

    /// Whether this is a later version of the same object. Resource versions of one object compare as numbers; a version that is
    /// not a number counts as older.
    #[must_use]
    pub fn is_newer_than(self, other: Self) -> bool {
        let number = |version: Self| version.resource_version.parse::<u64>().ok();
        self.uid == other.uid && number(self) > number(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn version<'a>(uid: &'a str, resource_version: &'a str) -> ObjectVersion<'a> {
        ObjectVersion { uid: Some(uid), resource_version }
    }

    #[test]
    fn resource_versions_of_one_object_compare_as_numbers() {
        assert!(version("u", "10").is_newer_than(version("u", "9")));
        assert!(!version("u", "9").is_newer_than(version("u", "10")));
        assert!(!version("u", "9").is_newer_than(version("u", "9")));
        assert!(!version("v", "10").is_newer_than(version("u", "9")), "another object");
        assert!(!version("u", "x").is_newer_than(version("u", "9")));
        assert!(version("u", "9").is_newer_than(version("u", "")));
    }

    #[test]
    fn versions_are_the_same_only_if_the_api_gave_them() {
        assert!(version("u", "9").is_same_as(version("u", "9")));
        assert!(!version("u", "9").is_same_as(version("v", "9")));
        assert!(!version("u", "").is_same_as(version("u", "")), "never written to the API");
    }
}
