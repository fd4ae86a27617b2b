//! The doors of the kubelet: traits through which the agent reaches the outside world, and through which the server
//! reaches the agent.
//!
//! Owns: the traits [`Runtime`], [`Host`], [`Net`] (outward) and [`NodeApi`] (inward), their error types, and
//! [`Clock`].
//!
//! Architecture invariants:
//! - a port decides nothing: retry, back-off and policy live behind it;
//! - every error says what was tried and knows whether a retry can help;
//! - ports speak `model` types only; no protobuf, no HTTP, no file handle crosses them.
#![forbid(unsafe_code)]

pub mod clock;
pub mod host;
pub mod net;
pub mod node_api;
pub mod runtime;

pub use clock::Clock;
pub use host::{Host, HostError};
pub use net::{Net, NetError};
pub use node_api::NodeApi;
pub use runtime::{Runtime, RuntimeError};
