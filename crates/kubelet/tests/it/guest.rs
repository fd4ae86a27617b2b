//! Tests that need a whole machine: systemd as the first process, cgroup v2, AppArmor, a kernel log. These tests are ignored on
//! other machines; `scripts/vm --core` runs every one of them in its Debian guest, in CI too, and fails if one did not run.
//! `cargo test -p xtask` checks that no test outside of this module is ignored.

mod apparmor;
mod cgroups;
mod hugepages;
mod memory;
mod nfs;
mod pressure;
mod quota;
mod shutdown;
mod systemd;
mod topology;
mod transcripts;
