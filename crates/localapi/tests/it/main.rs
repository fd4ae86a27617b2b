//! The built API server in a process of its own, judged by clients that nobody here wrote: an unmodified kubectl and the
//! watcher of kube-rs. Every test has a server, a directory and a kubectl home of its own.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails, and says why"
)]

mod access;
mod kubectl;
mod kubelet;
mod recorded;
mod server;
mod signing;
mod streams;
mod verbs;
mod watching;
