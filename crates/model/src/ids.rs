//! Typed identifiers, so that a pod UID cannot be passed as a container ID.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::annotations as keys;
use crate::k8s::Pod;

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            #[must_use]
            pub fn new(id: impl AsRef<str>) -> Self {
                Self(Arc::from(id.as_ref()))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self::new(id)
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self::new(id)
            }
        }
    };
}

string_id! {
    /// The key of a pod in every table of the kubelet. A pod that is re-created under the same name has another UID.
    PodUid
}
impl PodUid {
    /// The UID of a pod object; empty if it has none.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self::new(pod.metadata.uid.as_deref().unwrap_or_default())
    }
}

string_id! {
    /// The runtime's ID of a pod sandbox.
    SandboxId
}
string_id! {
    /// The runtime's ID of a container, without the `containerd://` prefix of the API.
    ContainerId
}
string_id! {
    /// The runtime's ID of an image (usually `sha256:…`).
    ImageId
}

/// The identity of a pod, for logs, events and runtime metadata.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: PodUid,
}

impl PodRef {
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: impl Into<PodUid>) -> Self {
        Self { namespace: Arc::from(namespace), name: Arc::from(name), uid: uid.into() }
    }

    /// The identity of a pod object. Missing fields are empty, so that a malformed object can be named in an error.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        Self::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
            meta.uid.as_deref().unwrap_or_default(),
        )
    }

    /// The identity in the labels of a sandbox or container. Missing labels are empty.
    #[must_use]
    pub fn from_labels<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Self {
        let label = |key| label(key).unwrap_or_default();
        Self::new(label(keys::POD_NAMESPACE_LABEL), label(keys::POD_NAME_LABEL), label(keys::POD_UID_LABEL))
    }

    /// `<name>_<namespace>`, which must be unique among the running pods of a node.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.name, self.namespace)
    }

    #[must_use]
    pub fn has_full_name_of(&self, other: &Self) -> bool {
        self.name == other.name && self.namespace == other.namespace
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}({})", self.namespace, self.name, self.uid)
    }
}
