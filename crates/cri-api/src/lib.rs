//! The CRI v1 protocol, generated from our own definitions.
//!
//! Owns: `proto/runtime/v1/api.proto` and the Rust messages, clients and servers made from it.
//!
//! Architecture invariants:
//! - nothing here is written by hand but the `.proto` file and this page (`cargo run -p xtask -- codegen`);
//! - only `cri` and `testing` may import this crate: protobuf types stop at the adapter.
#![forbid(unsafe_code)]

/// Messages, `runtime_service_client`, `image_service_client` and their server counterparts.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    missing_debug_implementations,
    unreachable_pub,
    unused_lifetimes,
    unused_qualifications,
    deprecated,
    reason = "generated code: its style is the generator's"
)]
#[rustfmt::skip]
pub mod v1 {
    include!("generated/runtime.v1.rs");
}
