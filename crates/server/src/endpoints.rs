//! The endpoints, one file each: each calls [`ports::NodeApi`] and encodes the result.

pub(crate) mod checkpoint;
pub(crate) mod configz;
pub(crate) mod container_logs;
pub(crate) mod debug_flags;
pub(crate) mod debug_pods;
pub(crate) mod debugging;
pub(crate) mod flagz;
pub(crate) mod healthz;
pub(crate) mod logs;
pub(crate) mod manifests;
pub(crate) mod metrics;
pub(crate) mod pods;
pub(crate) mod pprof;
pub(crate) mod router;
pub(crate) mod running_pods;
pub(crate) mod stats_summary;
pub(crate) mod statusz;
pub(crate) mod zpages;
