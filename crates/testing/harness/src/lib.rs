//! Real things on private paths, for tests on a real machine: a containerd, a kubelet process, cgroups, disks, and what stands between
//! a kubelet and its neighbours to delay, refuse or record what they say.
//!
//! Whatever it starts or mounts, it ends and unmounts when it is dropped.
#![forbid(unsafe_code)]

pub mod api;
mod cgroup_path;
pub mod containerd;
mod free_port;
pub mod hung_fuse;
pub mod name_server;
pub mod node;
pub mod outcome;
pub mod private_cgroup;
pub mod recorded_cri;
pub mod runtime_calls;
pub mod runtime_proxy;
pub mod slow_link;
#[expect(clippy::expect_used, clippy::print_stderr, reason = "a test fails with the reason")]
pub mod small_disk;

pub use containerd::Containerd;
pub use free_port::free_port;
pub use hung_fuse::HungFuse;
pub use name_server::NameServer;
pub use private_cgroup::PrivateCgroup;
pub use recorded_cri::{CriRecorder, RecordedCri};
pub use runtime_proxy::{CallFault, CallRule, RuntimeProxy};
pub use slow_link::SlowLink;
pub use small_disk::SmallDisk;
