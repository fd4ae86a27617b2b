//! The CRI v1 protocol, generated from our own definitions.
#![forbid(unsafe_code)]
