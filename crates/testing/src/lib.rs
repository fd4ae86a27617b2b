//! Fakes and fixtures for tests: a simulated runtime and API, a fake CRI server, a real containerd, a pod builder.
//!
//! Architecture invariants:
//! - no crate depends on this one outside of tests;
//! - the fakes follow the contract suite in `tests/it`, which runs over them and over a real containerd alike.
#![forbid(unsafe_code)]

pub mod certificates;
mod cgroup_path;
pub mod cgroups;
pub mod containerd;
pub mod csi_driver;
pub mod device_plugin;
pub mod fake;
pub mod fake_cluster;
pub mod fake_cri;
pub mod fake_csi;
pub mod fake_plugins;
mod fuzz_corpus;
pub mod growth;
pub mod health;
pub mod host;
pub mod hung_fuse;
pub mod name_server;
pub mod net;
mod numa;
pub mod plugin_registrar;
pub mod pods;
pub mod private_cgroup;
pub mod recorded_cri;
pub mod runtime_calls;
pub mod runtime_proxy;
pub mod shutdown;
mod skip;
pub mod slow_link;
pub mod soak;
pub mod stretch;

pub use certificates::{FakeCertificates, Verdict};
pub use cgroups::FakeCgroups;
pub use containerd::Containerd;
pub use csi_driver::{CsiDriverFault, TestCsiDriver};
pub use device_plugin::DevicePlugin;
pub use fake::{Exec, FakeRuntime, Fault, Method, Program};
pub use fake_cluster::{ClusterCall, ClusterFault, FakeCluster, Outage, Verb};
pub use fake_cri::FakeCri;
pub use fake_csi::{CsiFault, CsiMethod, FakeCsiDriver};
pub use fake_plugins::FakePlugins;
pub use fuzz_corpus::{FuzzTarget, run_fuzz_corpus};
pub use health::HealthServer;
pub use host::{FakeHost, HostFault, HostMethod};
pub use hung_fuse::HungFuse;
pub use name_server::NameServer;
pub use net::{FakeNet, Service};
pub use numa::two_numa_nodes;
pub use plugin_registrar::PluginRegistrar;
pub use pods::{PodBuilder, pod, pod_from_json};
pub use private_cgroup::PrivateCgroup;
pub use recorded_cri::{CriRecorder, RecordedCri};
pub use runtime_proxy::{CallFault, CallRule, RuntimeProxy};
pub use shutdown::FakeShutdown;
pub use skip::skip;
pub use slow_link::SlowLink;
pub use stretch::{reduced, stretched};
