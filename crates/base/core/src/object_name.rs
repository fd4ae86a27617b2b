//! The names of the objects that a pod refers to.

/// An object in the pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectName {
    ConfigMap(String),
    Secret(String),
}
