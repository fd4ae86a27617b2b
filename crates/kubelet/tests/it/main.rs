//! The built binary on a real containerd, seen from outside: manifests go in, and what the runtime, the files and the
//! HTTP endpoints show is judged. Every test has a containerd, a kubelet and a directory of its own.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails, and says why"
)]

mod node;

mod faults;
mod images;
mod killed;
mod lifecycle;
mod logs;
mod probes;
mod process;
mod reasons;
mod resources;
mod restarts;
mod runtimes;
mod security;
mod service;
mod volumes;
