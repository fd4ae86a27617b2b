//! Paths of files in a pod's directory that containers use, other than volumes.

use std::path::{Path, PathBuf};

/// Holds a directory with termination logs for each container.
const CONTAINERS: &str = "containers";

#[must_use]
pub fn hosts_file_path(pod_dir: &Path) -> PathBuf {
    pod_dir.join("etc-hosts")
}

/// Files in the pod's directory that containers can write to, other than volumes. They count towards the pod's ephemeral
/// storage; otherwise a pod could fill the disk past every limit (CVE-2020-8557).
#[must_use]
pub fn files_of_containers(pod_dir: &Path) -> [PathBuf; 2] {
    [hosts_file_path(pod_dir), pod_dir.join(CONTAINERS)]
}

/// Where the container writes its termination message. The name is derived from the restart count, so that a restarted
/// kubelet finds the file.
#[must_use]
pub fn termination_log_path(pod_dir: &Path, container: &str, restart_count: u32) -> PathBuf {
    pod_dir.join(CONTAINERS).join(container).join(format!("{restart_count:08x}"))
}
