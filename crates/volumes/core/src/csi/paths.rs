//! Where CSI volumes are, below the kubelet's root directory, and by which names drivers and the API know them. All names are those
//! of the Go kubelet, so that either kubelet finds the volumes of the other.

use std::path::{Path, PathBuf};

use model::digest::sha256_hex;

/// Below the root directory: everything that is staged, by driver; devices are in directories of their own.
pub const STAGED: &str = "plugins/kubernetes.io/csi";
/// Below [`STAGED`]: devices.
pub const DEVICES: &str = "volumeDevices";
/// The directory of CSI volumes in a pod's directory `volumes`, `volumeDevices` or `plugins`.
pub const IN_POD: &str = "kubernetes.io~csi";
/// Within a volume's directory: where the driver publishes it.
pub const MOUNT: &str = "mount";
/// Within a staged volume's directory: where the driver stages it.
pub const GLOBAL_MOUNT: &str = "globalmount";
/// Next to either of them.
pub const VOLUME_DATA: &str = "vol_data.json";

/// The name of a volume in the node's `volumesInUse` and `volumesAttached`, which is the same for all PersistentVolumes with that
/// handle.
#[must_use]
pub fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// The handle of a volume in a pod's spec, which has none of its own.
#[must_use]
pub fn inline_handle(pod_uid: &str, volume: &str) -> String {
    format!("csi-{}", sha256_hex(format!("{pod_uid}{volume}").as_bytes()))
}

/// The directory of a staged filesystem, which contains [`GLOBAL_MOUNT`] and [`VOLUME_DATA`].
#[must_use]
pub fn staged_dir(root: &Path, driver: &str, handle: &str) -> PathBuf {
    root.join(STAGED).join(driver).join(sha256_hex(handle.as_bytes()))
}

/// Where a volume appears in its pod; containers see what is at [`MOUNT`] in it.
#[must_use]
pub fn volume_dir(pod_dir: &Path, name: &str) -> PathBuf {
    pod_dir.join("volumes").join(IN_POD).join(name)
}

/// The directories of a device, by the name of its PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePaths {
    /// Where the driver stages it.
    pub staging: PathBuf,
    /// Contains a file for each pod: where the driver publishes it.
    pub publish_dir: PathBuf,
    /// Contains `data` with [`VOLUME_DATA`], and `dev` with an entry for each pod.
    pub dir: PathBuf,
}

impl DevicePaths {
    #[must_use]
    pub fn of(root: &Path, name: &str) -> Self {
        let devices = root.join(STAGED).join(DEVICES);
        Self {
            staging: devices.join("staging").join(name),
            publish_dir: devices.join("publish").join(name),
            dir: devices.join(name),
        }
    }

    /// The directory of [`VOLUME_DATA`].
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_where_the_go_kubelet_has_them() {
        // `printf test-vol1 | sha256sum`
        let digest = "92a807f8042f0f3e63cbff91593d4716b5381fb1be5472ce62901eaeb8a4f0d3";
        assert_eq!(
            staged_dir(Path::new("/k"), "test-driver", "test-vol1"),
            Path::new("/k/plugins/kubernetes.io/csi/test-driver").join(digest)
        );
        assert_eq!(
            volume_dir(Path::new("/k/pods/u"), "test.spec.1").join(MOUNT),
            Path::new("/k/pods/u/volumes/kubernetes.io~csi/test.spec.1/mount")
        );
        let device = DevicePaths::of(Path::new("/k"), "pv");
        let devices = Path::new("/k/plugins/kubernetes.io/csi/volumeDevices");
        assert_eq!(device.staging, devices.join("staging/pv"));
        assert_eq!(device.publish_dir, devices.join("publish/pv"));
        assert_eq!(device.dir, devices.join("pv"));
        assert_eq!(device.data_dir(), devices.join("pv/data"));
    }

    #[test]
    fn a_volume_in_a_pods_spec_has_a_handle_made_of_the_pod_and_its_name() {
        // `printf podv | sha256sum`
        let digest = "42e46c3f37db963df7dacba164d55999d5ff81df8d9540077fc53871f1dda798";
        assert_eq!(inline_handle("pod", "v"), format!("csi-{digest}"));
    }

    #[test]
    fn the_api_knows_a_volume_by_its_driver_and_handle() {
        assert_eq!(unique_name("d.example.com", "vol-1"), "kubernetes.io/csi/d.example.com^vol-1");
    }
}
