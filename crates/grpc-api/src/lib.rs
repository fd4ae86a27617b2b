//! gRPC protocols next to the CRI, generated from our own definitions.
//!
//! Owns: the definitions in `proto` and the Rust messages, clients and servers made from them: PodResources, which the
//! kubelet serves; those that it and device plugins speak; and the part of OTLP in which it tells
//! of its spans.
//!
//! Architecture invariants:
//! - nothing here is written by hand but the `.proto` files and this page (`cargo run -p xtask -- codegen`);
//! - what comes from these protocols stops at whoever serves or speaks them.
#![forbid(unsafe_code)]

macro_rules! generated {
    ($(#[$doc:meta])* $name:ident, $file:literal) => {
        $(#[$doc])*
        #[allow(
            clippy::all,
            clippy::pedantic,
            clippy::nursery,
            clippy::restriction,
            missing_debug_implementations,
            unreachable_pub,
            unused_lifetimes,
            unused_qualifications,
            reason = "generated code: its style is the generator's"
        )]
        #[rustfmt::skip]
        pub mod $name {
            include!(concat!("generated/", $file));
        }
    };
}

generated! {
    /// PodResources v1.
    pod_resources, "v1.rs"
}
generated! {
    /// PodResources v1alpha1: listing only.
    pod_resources_alpha, "v1alpha1.rs"
}
generated! {
    /// Device plugins: their registration, and what they are asked.
    device_plugin, "v1beta1.rs"
}
generated! {
    /// OTLP traces.
    otlp, "opentelemetry.proto.collector.trace.v1.rs"
}
