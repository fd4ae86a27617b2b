//! `vsphereVolume`, now of the driver `csi.vsphere.vmware.com`, which accepts the path of a virtual disk as a handle.

use std::collections::BTreeMap;

use model::k8s::{
    CSIPersistentVolumeSource, ObjectMeta, PersistentVolumeSpec, Volume, VsphereVirtualDiskVolumeSource,
};

use super::topology::TopologyLabels;
use super::{InTreeType, READ_WRITE_ONCE, TranslatedVolume};

const DRIVER: &str = "csi.vsphere.vmware.com";

pub(super) struct VsphereVolume;

impl InTreeType for VsphereVolume {
    fn persistent(
        &self,
        _: &ObjectMeta,
        spec: &mut PersistentVolumeSpec,
    ) -> Option<Result<CSIPersistentVolumeSource, String>> {
        spec.vsphere_volume.take().map(|source| Ok(translate(source)))
    }

    fn inline(&self, volume: &Volume, _: &str) -> Option<Result<TranslatedVolume, String>> {
        let source = volume.vsphere_volume.clone()?;
        let name = format!("{DRIVER}-{}", source.volume_path);
        Some(Ok(TranslatedVolume::new(name, READ_WRITE_ONCE, translate(source))))
    }

    fn topology(&self) -> Option<TopologyLabels> {
        Some(TopologyLabels {
            zone: "topology.csi.vmware.com/zone",
            region: Some("topology.csi.vmware.com/region"),
        })
    }
}

fn translate(source: VsphereVirtualDiskVolumeSource) -> CSIPersistentVolumeSource {
    let policy = source.storage_policy_name.filter(|policy| !policy.is_empty());
    let attributes: BTreeMap<String, String> =
        policy.map(|policy| ("storagepolicyname".to_owned(), policy)).into_iter().collect();
    CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: source.volume_path,
        fs_type: source.fs_type,
        volume_attributes: Some(attributes),
        ..CSIPersistentVolumeSource::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{inline, inline_spec, persistent};
    use super::*;

    /// As in `TestTranslateVSphereInTreePVToCSI` of Kubernetes.
    #[test]
    fn vsphere_volume_of_a_persistent_volume_keeps_its_storage_policy() {
        let path =
            "[vsanDatastore] 6785a85e-268e-6352-a2e8-02008b7afadd/kubernetes-dynamic-pvc-68734c9f.vmdk";
        let policy = "vSAN Default Storage Policy";
        let source = json!({"volumePath": path, "fsType": "ext4", "storagePolicyName": policy});
        let volume = json!({"spec": {"vsphereVolume": source, "accessModes": ["ReadWriteOnce"]}});
        let csi = json!({
            "driver": DRIVER, "volumeHandle": path, "fsType": "ext4",
            "volumeAttributes": {"storagepolicyname": policy},
        });
        assert_eq!(persistent(volume), Ok(json!({"csi": csi, "accessModes": ["ReadWriteOnce"]})));
    }

    /// As in `TestTranslatevSphereInTreeInlineVolumeToCSI` of Kubernetes. With a policy, the Go kubelet panics.
    #[test]
    fn vsphere_volume_of_a_pod_has_the_name_of_its_path() {
        let path = "[vsanDatastore] volume/inlinevolume.vmdk";
        for (policy, attributes) in [("", json!({})), ("gold", json!({"storagepolicyname": "gold"}))] {
            let source = json!({"volumePath": path, "fsType": "ext4", "storagePolicyName": policy});
            let csi = json!({
                "driver": DRIVER, "volumeHandle": path, "fsType": "ext4", "volumeAttributes": attributes,
            });
            let name = "csi.vsphere.vmware.com-[vsanDatastore] volume/inlinevolume.vmdk";
            let expected = (name.to_owned(), inline_spec("ReadWriteOnce", csi));
            assert_eq!(inline(json!({"vsphereVolume": source})), Ok(expected));
        }
    }
}
