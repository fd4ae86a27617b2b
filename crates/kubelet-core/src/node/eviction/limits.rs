//! How much of the node's disk one pod may use (docs/behaviour/eviction.md): the limits of its volumes, of the pod and of
//! its containers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use model::Amount;
use model::containers::{init_containers, regular_containers, spec_of};
use model::explain::NearLimit;
use model::k8s::{Pod, Quantity, ResourceRequirements};
use model::quantity::{binary_text, decimal_text};
use stats_core::sample::PodDisks;

use super::DiskLayout;
use super::message::EvictionNotice;
use super::usage::{PodUsage, plus};

const STORAGE: &str = "ephemeral-storage";

/// Which limit was exceeded, named as in the metric `kubelet_evictions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceededLimit {
    Volume,
    Pod,
    Container,
}

impl ExceededLimit {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Volume => "emptydirfs.limit",
            Self::Pod => "ephemeralpodfs.limit",
            Self::Container => "ephemeralcontainerfs.limit",
        }
    }
}

/// The pod has a limit of local storage that must be monitored.
#[must_use]
pub fn has_limits(pod: &Pod) -> bool {
    let sized = |volume: &model::k8s::Volume| {
        volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref()).is_some_and(is_positive)
    };
    spec_of(pod).volumes.iter().flatten().any(sized)
        || init_containers(pod).chain(regular_containers(pod)).any(|c| limit_of(c.resources()).is_some())
}

fn is_positive(quantity: &Quantity) -> bool {
    amount(quantity) > 0
}

/// The first limit that the pod exceeds: of a volume, then of the pod, then of a container.
#[must_use]
pub fn compute_exceeded_limit(
    pod: &Pod,
    usage: &PodUsage,
    disks: &PodDisks,
    layout: DiskLayout,
) -> Option<(ExceededLimit, EvictionNotice)> {
    let uses = storage_uses(pod, usage, disks, layout);
    let exceeded = uses.into_iter().find(|used| is_over(used.bytes, &used.limit))?;
    let limit = &exceeded.limit.0;
    let (of, message) = match exceeded.of {
        UseOf::Volume(name) => (
            ExceededLimit::Volume,
            format!("Usage of EmptyDir volume {name:?} exceeds the limit {limit:?}. "),
        ),
        UseOf::Pod => (
            ExceededLimit::Pod,
            format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "),
        ),
        UseOf::Container(name) => (
            ExceededLimit::Container,
            format!("Container {name} exceeded its local ephemeral storage limit {limit:?}. "),
        ),
    };
    Some((of, EvictionNotice::own_fault(message)))
}

/// What uses most of its limit of local storage.
#[must_use]
pub fn compute_near_storage(
    pod: &Pod,
    usage: &PodUsage,
    disks: &PodDisks,
    layout: DiskLayout,
    at: Timestamp,
) -> Vec<NearLimit> {
    let near = |used: &StorageUse<'_>| {
        let part = match used.of {
            UseOf::Volume(name) | UseOf::Container(name) => Some(name),
            UseOf::Pod => None,
        };
        let limit = u64::try_from(amount(&used.limit)).unwrap_or(0);
        NearLimit::check(STORAGE, part, used.bytes, limit, at)
    };
    storage_uses(pod, usage, disks, layout).iter().filter_map(near).collect()
}

/// What has a limit of local storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UseOf<'a> {
    Volume(&'a str),
    Pod,
    Container(&'a str),
}

struct StorageUse<'a> {
    of: UseOf<'a>,
    bytes: u64,
    limit: Quantity,
}

/// What the volumes, the pod and its containers use, of those that have a limit.
fn storage_uses<'a>(
    pod: &'a Pod,
    usage: &'a PodUsage,
    disks: &PodDisks,
    layout: DiskLayout,
) -> Vec<StorageUse<'a>> {
    let mut uses = volume_uses(pod, disks);
    if let Some(limit) = pod_limit(pod) {
        let bytes = plus(plus(usage.layers(), usage.logs()), plus(usage.volumes, usage.files)).bytes;
        uses.push(StorageUse { of: UseOf::Pod, bytes, limit });
    }
    uses.extend(container_uses(pod, usage, layout));
    uses
}

fn volume_uses<'a>(pod: &'a Pod, disks: &PodDisks) -> Vec<StorageUse<'a>> {
    let used: BTreeMap<&str, u64> =
        disks.volumes.iter().rev().map(|sample| (&*sample.name, sample.used.bytes)).collect();
    let volumes = spec_of(pod).volumes.iter().flatten().filter_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref().filter(|limit| is_positive(limit))?;
        let bytes = *used.get(&*volume.name)?;
        Some(StorageUse { of: UseOf::Volume(&volume.name), bytes, limit: limit.clone() })
    });
    volumes.collect()
}

fn container_uses<'a>(
    pod: &'a Pod,
    usage: &'a PodUsage,
    layout: DiskLayout,
) -> impl Iterator<Item = StorageUse<'a>> {
    let specs: BTreeMap<&str, _> = regular_containers(pod).rev().map(|spec| (spec.name(), spec)).collect();
    usage.containers.iter().filter_map(move |container| {
        let limit = limit_of(specs.get(&*container.name)?.resources())?.clone();
        let logs = container.logs.unwrap_or_default();
        let used = match layout {
            DiskLayout::One => plus(logs, container.layer.unwrap_or_default()),
            // With a split layout, writable layers are on no disk that is shared with other pods' files.
            DiskLayout::ImagesApart | DiskLayout::Split => logs,
        };
        Some(StorageUse { of: UseOf::Container(&container.name), bytes: used.bytes, limit })
    })
}

/// The limit of all containers together; a pod in which only some containers have a limit is limited all the same. Init
/// containers run before the others, sidecars in parallel with them.
fn pod_limit(pod: &Pod) -> Option<Quantity> {
    let mut together: Option<Quantity> = None;
    for container in regular_containers(pod) {
        together = sum(together, limit_of(container.resources()));
    }
    let (mut sidecars, mut max_at_start) = (None, None);
    for container in init_containers(pod) {
        let own = limit_of(container.resources());
        if container.kind == model::ContainerKind::Sidecar {
            together = sum(together, own);
            sidecars = sum(sidecars, own);
            max_at_start = larger(max_at_start, sidecars.clone());
        } else {
            max_at_start = larger(max_at_start, sum(sidecars.clone(), own));
        }
    }
    larger(together, max_at_start)
}

fn larger(a: Option<Quantity>, b: Option<Quantity>) -> Option<Quantity> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if amount(&b) > amount(&a) { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// A sum is written with the suffix of its first part.
fn sum(a: Option<Quantity>, b: Option<&Quantity>) -> Option<Quantity> {
    match (a, b) {
        (Some(a), Some(b)) => {
            let total = i128::from(amount(&a)) + i128::from(amount(b));
            Some(Quantity(if a.0.ends_with('i') { binary_text(total) } else { decimal_text(total) }))
        }
        (a, b) => a.or_else(|| b.cloned()),
    }
}

fn limit_of(resources: Option<&ResourceRequirements>) -> Option<&Quantity> {
    resources?.limits.as_ref()?.get(STORAGE).filter(|limit| is_positive(limit))
}

fn is_over(used: u64, limit: &Quantity) -> bool {
    u64::try_from(amount(limit)).is_ok_and(|limit| used > limit)
}

/// Validation has checked the text; a text that cannot be parsed sets no limit.
fn amount(quantity: &Quantity) -> i64 {
    Amount::of(quantity).map_or(0, Amount::units)
}
