//! Amounts of resources by name, and which resources are extended ones.

use std::collections::BTreeMap;

use model::Amount;
use model::k8s::Quantity;

pub type Amounts = BTreeMap<String, Amount>;
pub type Quantities = BTreeMap<String, Quantity>;

/// The capacity and the allocatable amount of a device plugin's resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceAmounts {
    pub capacity: i64,
    pub allocatable: i64,
}

/// A resource that neither the kubelet nor Kubernetes itself defines: `example.com/gpu`.
#[must_use]
pub fn is_extended_resource(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}
