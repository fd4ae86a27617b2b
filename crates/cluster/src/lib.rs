//! The Cluster port over the Kubernetes API.
//!
//! Owns: kubeconfig files, connections and their certificates, budgets of calls, JSON on the wire.
//!
//! From the outside in: `kubeconfig` says what to reach and as whom (`access`), `server` hands out handles, each of
//! which is a [`ports::Cluster`]. A call goes through `objects` (its path and body), `client` (budget, deadline,
//! headers, errors), `pool` and `connection` (which connection), `dial`, `proxy` and `tls` (how to get one);
//! its answer comes back through `decode` or `watch`. `certificates` makes and reads keys and certificates.
//!
//! Architecture invariants:
//! - nothing is decided or retried here: an answer or an error goes to the caller, who knows what to do with it. Only
//!   a request that the server has certainly not begun to work on is sent again, over another connection;
//! - no HTTP type leaves this room;
//! - each handle has its own budget, so that one kind of traffic never waits behind another;
//! - the time of day and chance come in.
#![forbid(unsafe_code)]

pub mod access;
mod budget;
mod certificates;
mod client;
mod connection;
mod credentials;
mod decode;
mod dial;
mod encode;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod identity;
pub mod kubeconfig;
mod objects;
mod plugin;
mod pool;
mod proxy;
mod rng;
mod server;
mod status;
mod tls;
mod watch;

pub use access::Access;
pub use budget::Budget;
pub use certificates::X509;
pub use error::{AccessError, KubeconfigError};
pub use identity::{Bootstrap, NodeIdentity};
pub use proxy::ProxyEnv;
pub use server::{ApiHandle, ApiServer, HandleSettings, Settings};
pub use tls::ClientIdentity;
