//! Tests of the built API server process with independent clients: an unmodified kubectl, and the watcher of kube-rs. Every
//! test has its own server, directory and kubectl home.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot continue fails with a message"
)]

mod access;
mod answers;
mod apply;
mod collections;
mod formats;
mod hostile;
mod kubectl;
mod kubelet;
mod list_semantics;
mod load;
mod pods;
mod rbac;
mod recorded;
mod recorded_kubectl;
mod server;
mod signing;
mod single_node;
mod streams;
mod top;
mod verbs;
mod watch_requests;
mod watch_semantics;
mod watching;
