//! The Runtime port over CRI v1 gRPC: one file per verb.
#![forbid(unsafe_code)]
