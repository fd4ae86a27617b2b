//! The trace that work belongs to, for whoever is called from it.

/// Where the header or the metadata of a call carries the trace.
pub const TRACEPARENT: &str = "traceparent";

/// Knows the span that is being worked in. Asked before each call, so it must be quick.
pub trait TraceContext: Send + Sync + std::fmt::Debug {
    /// The span as the W3C writes it; `None` outside of all spans.
    fn traceparent(&self) -> Option<String>;
}
