//! Requests and limits converted to the numbers of a cgroup.

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

/// `2MB` for two mebibytes, as the kernel names the files of its hugetlb controller.
#[must_use]
pub fn kernel_page_size(bytes: i64) -> String {
    let mut size = bytes;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        if size < 1024 || size % 1024 != 0 {
            return format!("{size}{unit}");
        }
        size /= 1024;
    }
    format!("{size}PB")
}
