//! gRPC protocols other than the CRI, generated from the definitions in this repository.
//!
//! Owns the definitions in `proto` and the Rust messages, clients and servers generated from them: PodResources and the
//! Pods API, which the kubelet serves; the device plugin API, plugin registration, CSI and DRA; and the part of OTLP for exporting spans.
//!
//! Architecture invariants:
//! - only the `.proto` files and this module are written manually (`cargo run -p xtask -- codegen`);
//! - protobuf types do not leave the adapters that use them.
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
            reason = "generated code"
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
    /// Device plugin API: registration and calls to plugins.
    device_plugin, "v1beta1.rs"
}
generated! {
    /// Plugin registration: what a plugin in the registration directory is.
    plugin_registration, "pluginregistration.rs"
}
generated! {
    /// CSI 1.x: the services that a driver has on a node.
    csi, "csi.v1.rs"
}
generated! {
    /// Drivers of dynamic resources, v1.
    dra, "k8s.io.kubelet.pkg.apis.dra.v1.rs"
}
generated! {
    /// Drivers of dynamic resources, v1beta1: devices have no share id.
    dra_beta, "k8s.io.kubelet.pkg.apis.dra.v1beta1.rs"
}
generated! {
    /// Health of the devices of drivers of dynamic resources, v1alpha1.
    dra_health, "drahealth/v1alpha1.rs"
}
generated! {
    /// Pods API, v1alpha1.
    pods, "pods/v1alpha1.rs"
}
generated! {
    /// OTLP traces.
    otlp, "opentelemetry.proto.collector.trace.v1.rs"
}
