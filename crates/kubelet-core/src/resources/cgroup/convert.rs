//! Requests and limits converted to the numbers of a cgroup.

use std::collections::BTreeMap;

use model::Amount;
use model::k8s::{Container, PodSpec};

pub(crate) const MIN_SHARES: i64 = 2;
pub(crate) const MAX_SHARES: i64 = 262_144;
const MIN_QUOTA: i64 = 1000;

/// CPU shares (the unit of cgroup v1, also used by CRI) for so many thousandths of a core.
#[must_use]
pub fn cpu_shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// Thousandths of a core for CPU shares, rounded up.
#[must_use]
pub const fn milli_of_shares(shares: i64) -> i64 {
    (shares.saturating_mul(1000) + 1023) / 1024
}

/// CPU shares for a weight of cgroup v2: the reverse of [`super::numbers::cpu_weight`], rounded up.
#[must_use]
pub const fn shares_of_weight(weight: i64) -> i64 {
    let range = MAX_SHARES - MIN_SHARES;
    MIN_SHARES + ((weight - 1).saturating_mul(range) + 9998) / 9999
}

/// CPU time per period, both in microseconds. Never below what the kernel accepts.
#[must_use]
pub fn cpu_quota(milli: i64, period: i64) -> i64 {
    (milli.saturating_mul(period) / 1000).max(MIN_QUOTA)
}

/// What the containers need at the same time at most: either all regular ones and sidecars together, or one init
/// container and the sidecars before it. `None` if no container specifies any.
#[must_use]
pub fn effective_sum(spec: &PodSpec, amount: impl Fn(&Container) -> Option<Amount>) -> Option<Amount> {
    let (mut sidecars, mut init_peak) = (None, None);
    for container in spec.init_containers.iter().flatten() {
        let own = amount(container);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = plus(sidecars, own);
            init_peak = init_peak.max(sidecars);
        } else {
            init_peak = init_peak.max(plus(sidecars, own));
        }
    }
    let together = spec.containers.iter().map(amount).fold(sidecars, plus);
    together.max(init_peak)
}

/// As [`effective_sum`] for each resource of `amounts`, in one pass: a pod may name thousands of resources.
#[must_use]
pub fn effective_sums<'a>(
    spec: &'a PodSpec,
    amounts: impl Fn(&'a Container) -> BTreeMap<&'a str, Amount>,
) -> BTreeMap<&'a str, Amount> {
    let (mut sidecars, mut init_peak) = (BTreeMap::new(), BTreeMap::new());
    let add = |sums: &mut BTreeMap<&'a str, Amount>, name: &'a str, amount: Amount| {
        let sum = sums.entry(name).or_default();
        *sum = *sum + amount;
        *sum
    };
    for container in spec.init_containers.iter().flatten() {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        for (name, amount) in amounts(container) {
            let now = match is_sidecar {
                true => add(&mut sidecars, name, amount),
                false => amount + sidecars.get(name).copied().unwrap_or_default(),
            };
            init_peak.entry(name).and_modify(|most: &mut Amount| *most = (*most).max(now)).or_insert(now);
        }
    }
    let mut together = sidecars;
    for (name, amount) in spec.containers.iter().flat_map(amounts) {
        add(&mut together, name, amount);
    }
    for (name, peak) in init_peak {
        together.entry(name).and_modify(|most| *most = (*most).max(peak)).or_insert(peak);
    }
    together
}

fn plus(a: Option<Amount>, b: Option<Amount>) -> Option<Amount> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

/// `2MB` for two mebibytes, as the kernel names the files of its hugetlb controller.
pub(crate) fn kernel_page_size(bytes: i64) -> String {
    let mut size = bytes;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        if size < 1024 || size % 1024 != 0 {
            return format!("{size}{unit}");
        }
        size /= 1024;
    }
    format!("{size}PB")
}
