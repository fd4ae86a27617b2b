//! `portworxVolume`, now of the driver `pxd.portworx.com`. Annotations of the PersistentVolume name the Secret for its calls.

use model::k8s::{
    CSIPersistentVolumeSource, ObjectMeta, PersistentVolumeSpec, PortworxVolumeSource, SecretReference,
    Volume,
};

use super::{InTreeType, READ_ONLY_MANY, READ_WRITE_ONCE, TranslatedVolume, attributes};

const DRIVER: &str = "pxd.portworx.com";
const SECRET_NAME: &str = "openstorage.io/auth-secret-name";
const SECRET_NAMESPACE: &str = "openstorage.io/auth-secret-namespace";

pub(super) struct PortworxVolume;

impl InTreeType for PortworxVolume {
    fn persistent(
        &self,
        metadata: &ObjectMeta,
        spec: &mut PersistentVolumeSpec,
    ) -> Option<Result<CSIPersistentVolumeSource, String>> {
        let source = spec.portworx_volume.take()?;
        let secret = secret_of(metadata);
        Some(Ok(CSIPersistentVolumeSource {
            node_stage_secret_ref: secret.clone(),
            node_publish_secret_ref: secret.clone(),
            node_expand_secret_ref: secret,
            ..translate(source)
        }))
    }

    fn inline(&self, volume: &Volume, _: &str) -> Option<Result<TranslatedVolume, String>> {
        let source = volume.portworx_volume.clone()?;
        let access_mode = if source.read_only == Some(true) { READ_ONLY_MANY } else { READ_WRITE_ONCE };
        let name = format!("{DRIVER}-{}", source.volume_id);
        Some(Ok(TranslatedVolume::new(name, access_mode, translate(source))))
    }
}

fn translate(source: PortworxVolumeSource) -> CSIPersistentVolumeSource {
    CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: source.volume_id,
        fs_type: source.fs_type,
        volume_attributes: attributes([]),
        ..CSIPersistentVolumeSource::default()
    }
}

/// The Secret, if both annotations exist.
fn secret_of(metadata: &ObjectMeta) -> Option<SecretReference> {
    let annotations = metadata.annotations.as_ref()?;
    let (name, namespace) = (annotations.get(SECRET_NAME)?, annotations.get(SECRET_NAMESPACE)?);
    Some(SecretReference { name: Some(name.clone()), namespace: Some(namespace.clone()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{inline, inline_spec, persistent};
    use super::*;

    /// The cases of `TestTranslatePortworxInTreePVToCSI` of Kubernetes, without the secrets of the controller.
    #[test]
    fn portworx_volume_has_the_secret_that_its_annotations_name() {
        let without = json!({
            "driver": DRIVER, "volumeHandle": "ID1111", "fsType": "type", "volumeAttributes": {},
        });
        let secret = json!({"name": "test-secret", "namespace": "test-namespace"});
        let mut with = without.clone();
        for field in ["nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"] {
            with[field] = secret.clone();
        }
        let name_only = json!({SECRET_NAME: "test-secret"});
        let both = json!({SECRET_NAME: "test-secret", SECRET_NAMESPACE: "test-namespace"});
        for (annotations, csi) in [(json!({}), &without), (name_only, &without), (both, &with)] {
            let volume = json!({
                "metadata": {"name": "pxd.portworx.com", "annotations": annotations},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "claimRef": {"name": "test-pvc", "namespace": "default"},
                    "portworxVolume": {"volumeID": "ID1111", "fsType": "type", "readOnly": false},
                },
            });
            let expected = json!({
                "accessModes": ["ReadWriteOnce"],
                "claimRef": {"name": "test-pvc", "namespace": "default"},
                "csi": csi,
            });
            assert_eq!(persistent(volume), Ok(expected));
        }
    }

    /// As in `TestTranslatePortworxInTreeInlineVolumeToCSI` of Kubernetes, and read-only.
    #[test]
    fn portworx_volume_of_a_pod_that_only_reads_may_be_read_by_many() {
        for (read_only, access_mode) in [(false, "ReadWriteOnce"), (true, "ReadOnlyMany")] {
            let source = json!({"volumeID": "ID", "fsType": "type", "readOnly": read_only});
            let csi = json!({
                "driver": DRIVER, "volumeHandle": "ID", "fsType": "type", "volumeAttributes": {},
            });
            let expected = ("pxd.portworx.com-ID".to_owned(), inline_spec(access_mode, csi));
            assert_eq!(inline(json!({"portworxVolume": source})), Ok(expected));
        }
    }
}
