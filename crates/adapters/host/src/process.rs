//! Settings of this process and its node, made once at start.

use std::io;
use std::path::Path;

use rustix::process::{Resource, Rlimit};

pub use model::cgroup::CgroupVersion;

pub use crate::lock_file::{Contention, LockFile};
pub use crate::mounts::ensure_shared_mount;
pub use crate::own_process::{memory, threads};
pub use crate::program_memory::keep_program_in_memory;
pub use crate::systemd::{sd_notify, watchdog_interval};

/// The filesystem type number of a cgroup v2 hierarchy.
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// Makes all threads allocate from one arena. Each arena keeps free memory of its own, and threads that work on files only have
/// little need of several. To be called before the first thread starts.
pub fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    crate::free_memory::share_one_arena();
}

/// In a statically linked program: looks host names up in `/etc/hosts` and by DNS only, because other sources would need the C library of
/// this machine. Returns whether the C library took that. To be called before the first thread starts.
#[must_use]
pub fn use_built_in_name_lookups() -> bool {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        crate::static_names::use_built_in()
    }
    #[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
    true
}

/// Returns freed memory to the kernel, which the C library keeps where it lies between pieces that are still in use.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    crate::free_memory::release();
}

/// Sets how many files this process may have open, soft and hard.
///
/// # Errors
/// Raising the hard limit needs privilege.
pub fn set_nofile_limit(files: u64) -> io::Result<()> {
    let limit = Rlimit { current: Some(files), maximum: Some(files) };
    Ok(rustix::process::setrlimit(Resource::Nofile, limit)?)
}

/// How many files this process may open at most; `None` without a limit.
#[must_use]
pub fn max_open_files() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).maximum
}

/// Sets `oom_score_adj` of this process: -1000 (never killed) to 1000 (killed first).
///
/// # Errors
/// Lowering it needs privilege; then this is `PermissionDenied`, which is only logged.
pub fn set_own_oom_score_adj(score: i16) -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", score.to_string())
}

/// Whether the path is an executable file.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The effective user of this process.
#[must_use]
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Which cgroup hierarchy is mounted at `root` (`/sys/fs/cgroup`). A hybrid one counts as v1.
///
/// # Errors
/// Nothing is mounted there.
pub fn cgroup_version(root: &Path) -> io::Result<CgroupVersion> {
    // The kernel's type for this number differs between architectures.
    #[allow(clippy::useless_conversion, reason = "i64 here, narrower elsewhere")]
    let kind = i64::from(rustix::fs::statfs(root)?.f_type);
    Ok(if kind == CGROUP2_MAGIC { CgroupVersion::V2 } else { CgroupVersion::V1 })
}

/// Whether the kernel can limit the swap of a cgroup. `root` is where cgroups are mounted, `own` the content of
/// `/proc/self/cgroup`; on version 2 the root itself has no limits, and our own cgroup shows which limits its children have.
#[must_use]
pub fn limits_swap(root: &Path, own: &str, version: CgroupVersion) -> bool {
    let file = match version {
        CgroupVersion::V1 => root.join("memory/memory.memsw.limit_in_bytes"),
        CgroupVersion::V2 => {
            let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
            root.join(path).join("memory.swap.max")
        }
    };
    file.exists()
}

/// Whether any swap is enabled on this machine. False on a kernel without swap.
///
/// # Errors
/// `/proc/swaps` exists and cannot be read.
pub fn swap_on() -> io::Result<bool> {
    match std::fs::read_to_string("/proc/swaps") {
        Ok(table) => Ok(lists_swap(&table)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The first line is a heading.
fn lists_swap(table: &str) -> bool {
    table.lines().skip(1).any(|line| !line.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_limited_where_the_kernel_has_a_file_for_it() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        let is_limited = |version, own: &str| limits_swap(root.path(), own, version);
        assert!(!is_limited(CgroupVersion::V1, "") && !is_limited(CgroupVersion::V2, "0::/a/b\n"));
        make("a/b/memory.swap.max");
        assert!(is_limited(CgroupVersion::V2, "0::/a/b\n") && !is_limited(CgroupVersion::V2, "0::/\n"));
        assert!(!is_limited(CgroupVersion::V1, ""));
        make("memory/memory.memsw.limit_in_bytes");
        assert!(is_limited(CgroupVersion::V1, "4:memory:/a\n"));
    }

    #[test]
    fn a_table_with_only_its_heading_lists_no_swap() {
        let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert!(!lists_swap(heading));
        assert!(!lists_swap(""));
        assert!(lists_swap(&format!("{heading}/dev/sdb partition 1024 0 -2\n")));
        assert!(swap_on().is_ok());
    }

    #[test]
    fn a_directory_that_is_no_cgroup2_mount_counts_as_v1() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(cgroup_version(dir.path()).unwrap(), CgroupVersion::V1);
        let v2 = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            .into_iter()
            .find(|root| Path::new(root).join("cgroup.controllers").exists());
        if let Some(root) = v2 {
            assert_eq!(cgroup_version(Path::new(root)).unwrap(), CgroupVersion::V2);
        }
        assert!(cgroup_version(&dir.path().join("absent")).is_err());
    }

    #[test]
    fn the_limit_of_open_files_can_be_set() {
        let now = rustix::process::getrlimit(Resource::Nofile);
        let files = now.maximum.unwrap_or(4096);
        set_nofile_limit(files).unwrap();
        assert_eq!(rustix::process::getrlimit(Resource::Nofile).current, Some(files));
    }

    #[test]
    fn own_oom_score_adj_can_be_set_to_its_value() {
        let now = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        set_own_oom_score_adj(now.trim().parse().unwrap()).unwrap();
        assert!(set_own_oom_score_adj(2000).is_err());
    }
}
