//! Ports for the programs under test.

use std::net::TcpListener;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port that no process listens on, never the same twice; `None` if all are taken. It is outside the kernel's ephemeral range:
/// otherwise, until its program binds it, any connection of another test could get it.
#[must_use]
pub fn free_port() -> Option<u16> {
    // Tests in another process start at a different port.
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(std::process::id().wrapping_mul(61)));
    let (first, last) = (12_000, first_ephemeral_port().max(22_000));
    (first..last).find_map(|_| {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(first + turn % (last - first)).ok()?;
        TcpListener::bind(("0.0.0.0", port)).is_ok().then_some(port)
    })
}

/// The kernel gives outgoing connections ports from this one on.
fn first_ephemeral_port() -> u32 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768)
}
