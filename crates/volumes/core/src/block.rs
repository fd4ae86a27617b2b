//! Devices that containers see as devices: where pods share one, and the loop device that keeps it open, so that the kernel does not give
//! its name to another disk meanwhile.

use std::path::{Path, PathBuf};

/// Of a plugin, and of a pod: the directory of devices.
pub const DEVICES: &str = "volumeDevices";
/// The program that attaches a loop device.
pub const LOOP_PROGRAM: &str = "losetup";

/// A device that pods of this node share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMap {
    /// Has a bind mount for each pod, by its UID.
    pub dir: PathBuf,
}

impl BlockMap {
    /// The bind mount of the pod.
    #[must_use]
    pub fn of_pod(&self, uid: &str) -> PathBuf {
        self.dir.join(uid)
    }
}

/// By this link the containers of a pod get the device.
#[must_use]
pub fn pod_link(pod_dir: &Path, plugin_dir: &str, name: &str) -> PathBuf {
    pod_dir.join(DEVICES).join(plugin_dir).join(name)
}

/// Whether a loop device with that `backing_file` keeps the path open.
#[must_use]
pub fn keeps_open(backing_file: &str, path: &Path) -> bool {
    let file = backing_file.trim();
    Path::new(file.strip_suffix("(deleted)").unwrap_or(file).trim()) == path
}

#[must_use]
pub fn loop_args(path: &Path) -> Vec<String> {
    vec!["-f".to_owned(), path.display().to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `volume_path_handler_linux_test.go` (TestCleanBackingFilePath).
    #[test]
    fn loop_device_keeps_its_backing_file_open_also_if_that_is_deleted() {
        let path = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1d205234-06cd-4fe4-a7ea-0e8f3e2faf5f/dev/\
                    e196ebd3-2ab1-4185-bed4-b997ba38d1dc";
        for suffix in ["", "\r\t\n ", "(deleted)", " (deleted)\t", "\n"] {
            assert!(keeps_open(&format!("{path}{suffix}"), Path::new(path)), "{suffix:?}");
        }
        assert!(!keeps_open(&format!("{path}1\n"), Path::new(path)));
    }
}
