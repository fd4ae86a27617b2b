//! Connections: their limits, TLS handshakes, and request metrics.

pub(crate) mod connections;
pub(crate) mod counted;
pub(crate) mod unix;
