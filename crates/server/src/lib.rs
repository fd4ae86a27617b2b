//! The kubelet's HTTP endpoints: one file per endpoint over ports::NodeApi.
#![forbid(unsafe_code)]
