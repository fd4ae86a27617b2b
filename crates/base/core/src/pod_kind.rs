//! What kind of pod a pod is: static, mirror or critical. Every part of the kubelet treats these kinds differently.

use model::annotations::CONFIG_MIRROR;
use model::containers::spec_of;
use model::k8s::Pod;
pub use model::source::is_static_pod;

/// From this priority on a pod is one that the cluster cannot do without.
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The pod is the API's picture of a static one.
#[must_use]
pub fn is_mirror_pod(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CONFIG_MIRROR))
}

/// The pod must run here: it is static, or the mirror of one, or has a priority for the system itself.
#[must_use]
pub fn is_critical_pod(pod: &Pod) -> bool {
    is_static_pod(pod)
        || is_mirror_pod(pod)
        || spec_of(pod).priority.is_some_and(|priority| priority >= CRITICAL_PRIORITY)
}
