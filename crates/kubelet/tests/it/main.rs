//! The built binary on a real containerd, seen from outside: manifests go in, and what the runtime, the files and the
//! HTTP endpoints show is judged. Every test has a containerd, a kubelet and a directory of its own.

mod node;

mod faults;
mod images;
mod lifecycle;
mod probes;
mod process;
mod reasons;
