//! Implements the `Cluster` port with the Kubernetes API.
//!
//! Owns kubeconfig files, connections and their certificates, rate limits, and JSON encoding.
//!
//! `kubeconfig` parses the server and credentials (`access`), `server` creates handles, each of which is a
//! [`ports::Cluster`]. A call goes through `objects` (its path and body), `client` (rate limit, deadline, headers, errors),
//! `pool` and `connection`, `dial`, `proxy` and `tls` (opening connections); its response comes back through `body` and
//! `decode`, or `watch`. `certificates` generates and parses keys and certificates.
//!
//! Architecture invariants:
//! - nothing is decided or retried here: every response or error is returned to the caller. Only a request that the server
//!   has certainly not processed is sent again, over another connection;
//! - no HTTP type leaves this crate;
//! - each handle has its own rate limit, so that one kind of traffic never delays another;
//! - the clock and random numbers are arguments.
#![forbid(unsafe_code)]

pub mod access;
mod body;
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
mod pod_keys;
mod pool;
mod proxy;
mod rng;
mod server;
mod status;
mod tls;
mod watch;

pub use access::Access;
pub use budget::Budget;
pub use certificates::{X509, end_of_certificate};
pub use error::{AccessError, KubeconfigError};
pub use identity::{Bootstrap, NodeIdentity};
pub use proxy::ProxyEnv;
pub use server::{ApiHandle, ApiServer, HandleSettings, Settings};
pub use tls::ClientIdentity;
