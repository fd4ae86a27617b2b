//! `cinder` of OpenStack, now of the driver `cinder.csi.openstack.org`. The driver does not use the volume's secret.

use model::k8s::{CSIPersistentVolumeSource, ObjectMeta, PersistentVolumeSpec, Volume};

use super::topology::TopologyLabels;
use super::{InTreeType, READ_WRITE_ONCE, TranslatedVolume, attributes};

const DRIVER: &str = "cinder.csi.openstack.org";

pub(super) struct Cinder;

impl InTreeType for Cinder {
    fn persistent(
        &self,
        _: &ObjectMeta,
        spec: &mut PersistentVolumeSpec,
    ) -> Option<Result<CSIPersistentVolumeSource, String>> {
        let source = spec.cinder.take()?;
        Some(Ok(translate(source.volume_id, source.fs_type, source.read_only)))
    }

    fn inline(&self, volume: &Volume, _: &str) -> Option<Result<TranslatedVolume, String>> {
        let source = volume.cinder.clone()?;
        let name = format!("{DRIVER}-{}", source.volume_id);
        let source = translate(source.volume_id, source.fs_type, source.read_only);
        Some(Ok(TranslatedVolume::new(name, READ_WRITE_ONCE, source)))
    }

    fn topology(&self) -> Option<TopologyLabels> {
        Some(TopologyLabels { zone: "topology.cinder.csi.openstack.org/zone", region: None })
    }
}

fn translate(id: String, fs_type: Option<String>, read_only: Option<bool>) -> CSIPersistentVolumeSource {
    CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: id,
        read_only,
        fs_type,
        volume_attributes: attributes([]),
        ..CSIPersistentVolumeSource::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{inline, inline_spec, persistent};
    use super::*;

    #[test]
    fn cinder_volumes_are_of_the_cinder_driver() {
        let source =
            json!({"volumeID": "vol1", "fsType": "ext3", "readOnly": true, "secretRef": {"name": "s"}});
        let csi = json!({
            "driver": DRIVER, "volumeHandle": "vol1", "fsType": "ext3", "readOnly": true, "volumeAttributes": {},
        });
        assert_eq!(persistent(json!({"spec": {"cinder": source}})), Ok(json!({"csi": csi})));
        let expected = ("cinder.csi.openstack.org-vol1".to_owned(), inline_spec("ReadWriteOnce", csi));
        assert_eq!(inline(json!({"cinder": source})), Ok(expected));
    }
}
