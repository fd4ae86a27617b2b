//! The kubelet binary.
fn main() {}
