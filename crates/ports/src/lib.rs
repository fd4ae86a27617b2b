//! The ports of the kubelet: traits through which the agent reaches the outside world, and through which the server
//! reaches the agent.
//!
//! Owns: the traits [`Runtime`], [`Cluster`], [`Certificates`], [`ClientIdentity`], [`Files`], [`Mounts`], [`Processes`],
//! [`Machine`], [`Cgroups`], [`Net`], [`Plugins`], [`Shutdown`] (outward), [`NodeApi`] and [`NodeInventory`] (inward), their error types,
//! [`Clock`], [`Resolver`] and [`TraceContext`].
//!
//! Architecture invariants:
//! - a port decides nothing: retry, back-off and policy live with its callers;
//! - every error reports what was tried and whether a retry can help;
//! - ports speak `model` types only; no protobuf, no HTTP, no file handle crosses them ([`host::OpenFile`] is a port of
//!   its own).
#![forbid(unsafe_code)]

pub mod certificates;
pub mod cgroups;
pub mod clock;
pub mod cluster;
pub mod host;
pub mod net;
pub mod node_api;
pub mod node_inventory;
pub mod plugins;
pub mod request_metrics;
pub mod resolver;
pub mod runtime;
pub mod shutdown;
pub mod trace;

pub use certificates::{CertificateError, Certificates, ClientIdentity};
pub use cgroups::Cgroups;
pub use clock::Clock;
pub use cluster::{Cluster, ClusterError};
pub use host::{Files, Host, HostError, Machine, Mounts, Processes};
pub use net::{Net, NetError};
pub use node_api::{NodeApi, OwnProcess};
pub use node_inventory::NodeInventory;
pub use plugins::{DevicePlugin, PluginError, Plugins};
pub use resolver::Resolver;
pub use runtime::{Runtime, RuntimeError};
pub use shutdown::{Shutdown, ShutdownError};
pub use trace::TraceContext;
