//! The kubelet binary.
#![forbid(unsafe_code)]
fn main() {}
