//! Objects of the API that stay in memory for as long as a pod exists.
//!
//! Owns: the packed form of such an object, which takes a tenth of the memory.
//!
//! The types of the API have a place for every optional field: a volume without any has 3 kB, the JSON of a whole pod 2 kB.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::k8s::{Pod, PodStatus, pod_from_json};
use crate::pod_status::{has_ended, is_ready};
use crate::source::is_static_pod;
use crate::{PodRef, QosClass};

/// An object that can be packed.
pub trait Pack: Clone + PartialEq {
    /// `None`: it has no JSON.
    fn to_json(&self) -> Option<Vec<u8>>;

    /// `None`: this is no JSON of such an object.
    fn from_json(json: &[u8]) -> Option<Self>;
}

impl Pack for Pod {
    fn to_json(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn from_json(json: &[u8]) -> Option<Self> {
        pod_from_json(json).ok()
    }
}

impl Pack for PodStatus {
    fn to_json(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn from_json(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }
}

/// An object that does not change. Clones share it.
#[derive(Clone)]
pub enum Kept<T> {
    Packed(Arc<[u8]>),
    /// Its JSON does not have all of it: a time that is no whole second, for example.
    Whole(Arc<T>),
}

impl<T: Pack> Kept<T> {
    #[must_use]
    pub fn new(object: T) -> Self {
        match object.to_json() {
            Some(json) if T::from_json(&json).as_ref() == Some(&object) => Self::Packed(json.into()),
            _ => Self::Whole(Arc::new(object)),
        }
    }

    /// The object: unpacked for this caller.
    #[must_use]
    #[expect(clippy::expect_used, reason = "it was packed only because this JSON had given the same object")]
    pub fn get(&self) -> Arc<T> {
        match self {
            Self::Packed(json) => Arc::new(T::from_json(json).expect("JSON of a packed object")),
            Self::Whole(object) => object.clone(),
        }
    }

    /// Its JSON; `None`: it has none.
    #[must_use]
    pub fn json(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Packed(json) => Some(Cow::Borrowed(json)),
            Self::Whole(object) => object.to_json().map(Cow::Owned),
        }
    }

    /// Whether it is this object, without unpacking it.
    #[must_use]
    pub fn is(&self, object: &T) -> bool {
        match self {
            Self::Packed(json) => object.to_json().is_some_and(|other| *other == **json),
            Self::Whole(own) => **own == *object,
        }
    }
}

impl<T> Kept<T> {
    #[must_use]
    pub const fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// Both are clones of one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Packed(a), Self::Packed(b)) => Arc::ptr_eq(a, b),
            (Self::Whole(a), Self::Whole(b)) => Arc::ptr_eq(a, b),
            (Self::Packed(_), Self::Whole(_)) | (Self::Whole(_), Self::Packed(_)) => false,
        }
    }
}

impl<T: PartialEq> PartialEq for Kept<T> {
    /// Equal objects have equal JSON: its fields have one order.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Packed(a), Self::Packed(b)) => a == b,
            (Self::Whole(a), Self::Whole(b)) => a == b,
            (Self::Packed(_), Self::Whole(_)) | (Self::Whole(_), Self::Packed(_)) => false,
        }
    }
}

impl<T: Pack + fmt::Debug> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A pod, with what is known of it without unpacking it. Clones share it.
#[derive(Clone)]
pub struct KeptPod(Arc<Known>);

#[derive(PartialEq)]
struct Known {
    identity: PodRef,
    is_static: bool,
    is_being_deleted: bool,
    qos: QosClass,
    pod: Kept<Pod>,
}

impl KeptPod {
    #[must_use]
    pub fn new(pod: Pod) -> Self {
        Self(Arc::new(Known {
            identity: PodRef::of(&pod),
            is_static: is_static_pod(&pod),
            is_being_deleted: pod.metadata.deletion_timestamp.is_some(),
            qos: QosClass::of(&pod),
            pod: Kept::new(pod),
        }))
    }

    #[must_use]
    pub fn identity(&self) -> &PodRef {
        &self.0.identity
    }

    /// It comes from this machine; the API has only its mirror pod.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.0.is_static
    }

    /// It has a deletion timestamp.
    #[must_use]
    pub fn is_being_deleted(&self) -> bool {
        self.0.is_being_deleted
    }

    #[must_use]
    pub fn qos(&self) -> QosClass {
        self.0.qos
    }

    /// As [`Kept::get`].
    #[must_use]
    pub fn get(&self) -> Arc<Pod> {
        self.0.pod.get()
    }

    /// As [`Kept::json`].
    #[must_use]
    pub fn json(&self) -> Option<Cow<'_, [u8]>> {
        self.0.pod.json()
    }

    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.0.pod.is_packed()
    }

    /// Both are clones of one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for KeptPod {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

impl fmt::Debug for KeptPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.identity.fmt(f)
    }
}

/// A pod status, with what is known of it without unpacking it.
#[derive(Clone, PartialEq)]
pub struct KeptStatus {
    has_ended: bool,
    is_ready: bool,
    status: Kept<PodStatus>,
}

impl KeptStatus {
    #[must_use]
    pub fn new(status: PodStatus) -> Self {
        Self { has_ended: has_ended(&status), is_ready: is_ready(&status), status: Kept::new(status) }
    }

    /// As [`has_ended`].
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// As [`is_ready`].
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// As [`Kept::get`].
    #[must_use]
    pub fn get(&self) -> Arc<PodStatus> {
        self.status.get()
    }

    /// As [`Kept::json`].
    #[must_use]
    pub fn json(&self) -> Option<Cow<'_, [u8]>> {
        self.status.json()
    }

    /// As [`Kept::is`].
    #[must_use]
    pub fn is(&self, status: &PodStatus) -> bool {
        self.status.is(status)
    }

    /// Both are clones of one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.status.is_same(&other.status)
    }

    #[must_use]
    pub const fn is_packed(&self) -> bool {
        self.status.is_packed()
    }
}

impl fmt::Debug for KeptStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"kubernetes.io/config.source": "file", "empty": ""},
                "labels": {},
            },
            "spec": {
                "containers": [{
                    "name": "c", "env": [], "resources": {"requests": {"cpu": "0.5"}},
                    "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5},
                }],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        });
        serde_json::from_value(pod).unwrap()
    }

    fn status(started: &str) -> PodStatus {
        serde_json::from_value(json!({"phase": "Running", "startTime": started})).unwrap()
    }

    #[test]
    fn pod_is_the_same_with_its_empty_lists_and_maps() {
        let kept = KeptPod::new(pod());
        assert!(kept.is_packed());
        assert_eq!(*kept.get(), pod());
        assert_eq!(kept, KeptPod::new(pod()));
        assert!(kept.is_same(&kept.clone()) && !kept.is_same(&KeptPod::new(pod())));
        assert_eq!((kept.identity(), kept.is_static()), (&PodRef::new("n", "p", "u"), true));
        assert_eq!(kept.qos(), QosClass::Burstable);
        assert!(!kept.is_being_deleted());
        let mut deleted = pod();
        deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
        assert!(KeptPod::new(deleted).is_being_deleted());
    }

    #[test]
    fn status_is_known_to_be_final_or_ready_without_unpacking_it() {
        let of = |json| KeptStatus::new(serde_json::from_value(json).unwrap());
        let ready = |status: &str| {
            json!({"phase": "Running", "conditions": [
            {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": status}]})
        };
        let cases = [
            (json!({}), (false, false)),
            (json!({"phase": "Pending"}), (false, false)),
            (ready("True"), (false, true)),
            (ready("False"), (false, false)),
            (ready("Unknown"), (false, false)),
            (json!({"phase": "Succeeded"}), (true, false)),
            (json!({"phase": "Failed"}), (true, false)),
        ];
        for (status, expected) in cases {
            let kept = of(status.clone());
            assert_eq!((kept.has_ended(), kept.is_ready()), expected, "{status}");
            assert!(kept == of(status.clone()) && !kept.is_same(&of(status)) && kept.is_same(&kept.clone()));
        }
    }

    #[test]
    fn object_that_its_json_would_change_is_not_packed() {
        let whole = status("2026-01-01T00:00:00Z");
        let mut fractional = whole.clone();
        fractional.start_time = Some(crate::k8s::Time("2026-01-01T00:00:00.5Z".parse().unwrap()));
        for (status, is_packed) in [(&whole, true), (&fractional, false)] {
            let kept = Kept::new(status.clone());
            assert_eq!(matches!(kept, Kept::Packed(_)), is_packed);
            assert_eq!(*kept.get(), *status);
            assert!(kept.is(status) && kept == Kept::new(status.clone()));
            assert_eq!(kept.json().unwrap(), serde_json::to_vec(status).unwrap());
        }
        assert_ne!(Kept::new(whole), Kept::new(fractional));
    }
}
