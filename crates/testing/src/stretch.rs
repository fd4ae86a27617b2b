//! How long tests wait, and how much they do. Every limit in an end-to-end test is written for a loaded machine with two cores and
//! goes through [`stretched`], so that the same tests pass where everything takes several times as long: under emulation.

use std::sync::LazyLock;
use std::time::Duration;

/// How many times slower than a usual machine this one is, as a whole number. `scripts/vm` sets it in the guest.
pub const SLOWNESS_VARIABLE: &str = "KUBELET_TEST_SLOWNESS";

static SLOWNESS: LazyLock<u32> =
    LazyLock::new(|| std::env::var(SLOWNESS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(1));

/// The limit for this machine.
#[must_use]
pub fn stretched(limit: Duration) -> Duration {
    limit * *SLOWNESS
}

/// How many pods a test starts, or how many bytes it moves: fewer on a slower machine, so that it takes about as long.
#[must_use]
pub fn reduced(count: usize) -> usize {
    count / usize::try_from(*SLOWNESS).unwrap_or(1)
}
