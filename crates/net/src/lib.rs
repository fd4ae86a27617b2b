//! The Net port: HTTP, TCP and gRPC calls to pods and manifest servers.
#![forbid(unsafe_code)]
