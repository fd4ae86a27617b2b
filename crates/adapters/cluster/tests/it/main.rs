//! The `Cluster` port over a real TLS server in this process, with responses configured by each test.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod authority;
mod calls;
mod connections;
mod lists;
mod logins;
mod proxies;
mod server;
mod watches;
