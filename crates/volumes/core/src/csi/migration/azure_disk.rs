//! `azureDisk`, now of the driver `disk.csi.azure.com`, which has managed disks only.

use std::collections::BTreeMap;

use model::k8s::{
    AzureDiskVolumeSource, CSIPersistentVolumeSource, ObjectMeta, PersistentVolumeSpec, Volume,
};

use super::{InTreeType, READ_WRITE_ONCE, TranslatedVolume};

const DRIVER: &str = "disk.csi.azure.com";
const MANAGED: &str = "Managed";

pub(super) struct AzureDisk;

impl InTreeType for AzureDisk {
    fn persistent(
        &self,
        _: &ObjectMeta,
        spec: &mut PersistentVolumeSpec,
    ) -> Option<Result<CSIPersistentVolumeSource, String>> {
        let source = spec.azure_disk.take()?;
        Some(translate(&source, source.caching_mode.as_deref()))
    }

    fn inline(&self, volume: &Volume, _: &str) -> Option<Result<TranslatedVolume, String>> {
        let source = volume.azure_disk.as_ref()?;
        let caching_mode = source.caching_mode.as_deref().filter(|mode| !mode.is_empty());
        let translated = translate(source, caching_mode);
        Some(translated.map(|csi| TranslatedVolume::new(source.disk_uri.clone(), READ_WRITE_ONCE, csi)))
    }
}

fn translate(
    source: &AzureDiskVolumeSource,
    caching_mode: Option<&str>,
) -> Result<CSIPersistentVolumeSource, String> {
    if let Some(kind) = source.kind.as_deref().filter(|kind| !kind.eq_ignore_ascii_case(MANAGED)) {
        return Err(format!("kind({kind}) is not supported in csi migration"));
    }
    let attributes =
        [("kind", Some(MANAGED)), ("cachingmode", caching_mode), ("fstype", source.fs_type.as_deref())];
    let attributes: BTreeMap<String, String> =
        attributes.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect();
    Ok(CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: source.disk_uri.clone(),
        read_only: source.read_only,
        fs_type: source.fs_type.clone(),
        volume_attributes: Some(attributes),
        ..CSIPersistentVolumeSource::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{error, inline, inline_spec, persistent};
    use super::*;

    /// The cases of `TestTranslateAzureDiskInTreePVToCSI` of Kubernetes.
    #[test]
    fn azure_disk_of_a_persistent_volume_is_of_the_azure_disk_driver() {
        let uri = "/subscriptions/12/resourceGroups/23/providers/Microsoft.Compute/disks/name";
        let mut source = json!({
            "cachingMode": "cachingmode", "diskName": "", "diskURI": uri, "fsType": "fstype", "readOnly": true,
        });
        let csi = json!({
            "driver": DRIVER, "volumeHandle": uri, "fsType": "fstype", "readOnly": true,
            "volumeAttributes": {"cachingmode": "cachingmode", "fstype": "fstype", "kind": "Managed"},
        });
        for kind in [json!(null), json!("Managed"), json!("managed")] {
            source["kind"] = kind;
            assert_eq!(persistent(json!({"spec": {"azureDisk": source}})), Ok(json!({"csi": csi})));
        }
        source["kind"] = "Dedicated".into();
        let expected = error("kind(Dedicated) is not supported in csi migration");
        assert_eq!(persistent(json!({"spec": {"azureDisk": source}})), Err(expected));
    }

    /// The cases of `TestTranslateAzureDiskInTreeInlineVolumeToCSI` of Kubernetes.
    #[test]
    fn azure_disk_of_a_pod_has_the_name_of_its_uri() {
        let source = json!({"diskName": "diskname", "diskURI": "datadiskuri", "cachingMode": ""});
        let csi = json!({
            "driver": DRIVER, "volumeHandle": "datadiskuri", "volumeAttributes": {"kind": "Managed"},
        });
        let expected = ("datadiskuri".to_owned(), inline_spec("ReadWriteOnce", csi));
        assert_eq!(inline(json!({"azureDisk": source})), Ok(expected));
        let dedicated = json!({"diskName": "diskname", "diskURI": "datadiskuri", "kind": "Dedicated"});
        let expected = error("kind(Dedicated) is not supported in csi migration");
        assert_eq!(inline(json!({"azureDisk": dedicated})), Err(expected));
    }
}
