//! When a call that the API server refused, or did not answer, is made again (docs/behaviour/api-server.md).
//!
//! Owns: how the server's `Retry-After` and a client's own back-off combine. Never: the growth of a back-off, which is that of each
//! kind of call.

use std::time::Duration;

#[cfg(test)]
mod tests;

/// The longest `Retry-After` that is honoured: a server, or a proxy before it, cannot silence a node for longer.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(180);

/// The delay before the next attempt: the client's own back-off, or what the server requested in `Retry-After` if that is longer, and
/// up to as long again. `random` is from 0 to 1: what a server asks of many nodes at the same time, they do at different times.
#[must_use]
pub fn compute_retry_delay(own: Duration, requested: Option<Duration>, random: f64) -> Duration {
    let least = own.max(requested.unwrap_or_default().min(MAX_RETRY_AFTER));
    least.mul_f64(1.0 + random.clamp(0.0, 1.0))
}
