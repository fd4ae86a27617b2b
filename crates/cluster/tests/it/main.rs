//! The Cluster port over a real TLS server in this process, which answers as each test tells it to.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod authority;
mod calls;
mod connections;
mod logins;
mod proxies;
mod server;
mod watches;
