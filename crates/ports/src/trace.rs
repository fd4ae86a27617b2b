//! The trace that a task belongs to, for the servers that it calls.

/// The header or metadata key of the trace in a call.
pub const TRACEPARENT: &str = "traceparent";

/// Returns the current span. Called before each call, so it must return quickly.
pub trait TraceContext: Send + Sync + std::fmt::Debug {
    /// The span as the W3C writes it; `None` outside of all spans.
    fn traceparent(&self) -> Option<String>;
}
