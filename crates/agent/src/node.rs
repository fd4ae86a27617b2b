//! The node: its registration and status, its lease and cgroups, eviction, shutdown and garbage collection.

pub mod cgroup_driver;
pub(crate) mod cgroups;
pub(crate) mod container_garbage_collection;
pub(crate) mod eviction;
pub(crate) mod facts;
pub(crate) mod firewall;
pub(crate) mod lease;
pub(crate) mod machine;
pub(crate) mod oom_watcher;
pub(crate) mod pod_cidr;
pub mod readiness;
pub(crate) mod shutdown;
pub(crate) mod status;
pub(crate) mod system_processes;
