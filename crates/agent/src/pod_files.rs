//! Where the files of a pod's containers are in its directory, other than volumes.

use std::path::{Path, PathBuf};

/// Holds a directory with termination logs for each container.
const CONTAINERS: &str = "containers";

pub(crate) fn hosts_file_path(pod_dir: &Path) -> PathBuf {
    pod_dir.join("etc-hosts")
}

/// What of the pod's directory is shown to containers as files that they can write, other than volumes. It counts as what the pod
/// takes of the disk, or a pod could fill the disk past every limit (CVE-2020-8557).
#[must_use]
pub(crate) fn files_of_containers(pod_dir: &Path) -> [PathBuf; 2] {
    [hosts_file_path(pod_dir), pod_dir.join(CONTAINERS)]
}

/// Where the container writes its last words. The name follows from the restart count, so that a later kubelet finds
/// it without having been told.
#[must_use]
pub(crate) fn termination_log_path(pod_dir: &Path, container: &str, restart_count: u32) -> PathBuf {
    pod_dir.join(CONTAINERS).join(container).join(format!("{restart_count:08x}"))
}
