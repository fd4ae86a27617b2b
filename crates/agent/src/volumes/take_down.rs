//! Taking the volumes of a pod down, whatever is there: the disk and the mount table are asked, not memory. So this serves
//! a pod that just ended, one that a killed kubelet left half made, and one that nobody knows any more.

use model::PodUid;
use ports::Host;

use super::chain;
use super::device::{self, Devices};
use crate::settings::Paths;

/// The marks of volumes that are ready go before the volumes themselves.
const DIRECTORIES: [&str; 4] = ["volume-subpaths", "volumeDevices", "plugins", "volumes"];

pub(super) async fn take_down(
    host: &dyn Host,
    paths: &Paths,
    devices: &Devices,
    uid: &PodUid,
) -> Result<(), String> {
    let dir = paths.pod(uid);
    let used = device::used_by(host, &dir).await;
    host.unmount_tree(&dir).await.map_err(|error| chain(&error))?;
    // Before the pod's own directories go, which say what it used.
    device::release(host, paths, devices, &used).await.map_err(|error| chain(&error))?;
    for name in DIRECTORIES {
        host.remove_tree(&dir.join(name)).await.map_err(|error| chain(&error))?;
    }
    Ok(())
}
