//! Fakes for tests: a simulated runtime, API, host and network, a fake CRI server, device plugins and CSI drivers.
//!
//! Architecture invariants:
//! - no crate depends on this one outside of tests;
//! - the fakes follow the contract suite in `tests/it`, which runs over them and over a real containerd alike.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod cgroups;
pub mod csi_driver;
pub mod device_plugin;
pub mod dra_driver;
pub mod fake;
pub mod fake_cluster;
pub mod fake_cri;
pub mod fake_csi;
pub mod fake_dra;
pub mod fake_plugins;
pub mod health;
pub mod host;
pub mod net;
pub mod plugin_registrar;
pub mod shutdown;

pub use certificates::{FakeCertificates, PodVerdict, Verdict};
pub use cgroups::FakeCgroups;
pub use csi_driver::{CsiDriverFault, TestCsiDriver};
pub use device_plugin::DevicePlugin;
pub use dra_driver::TestDraDriver;
pub use fake::{Exec, FakeRuntime, Fault, Method, Program};
pub use fake_cluster::{ClusterCall, ClusterFault, FakeCluster, Outage, Verb};
pub use fake_cri::FakeCri;
pub use fake_csi::{CsiFault, CsiMethod, FakeCsiDriver};
pub use fake_dra::{DraFault, DraMethod, FakeDraDriver};
pub use fake_plugins::FakePlugins;
pub use health::HealthServer;
pub use host::{FakeHost, HostFault, HostMethod};
pub use net::{FakeNet, Service};
pub use plugin_registrar::PluginRegistrar;
pub use shutdown::FakeShutdown;
