//! Volumes of in-tree types whose code has moved to CSI drivers: each is translated to a volume of its driver, one file for each type
//! (docs/behaviour/volumes.md).
//!
//! As in the Go kubelet since 1.36, all of these types have moved, and nothing turns that off. Not translated is what only
//! controllers use: secrets of the controller, and storage classes.
//! Never: reading an object; deciding anything about the volume after its translation, which is the same as for any other driver.

mod aws_elastic_block_store;
mod azure_disk;
mod azure_file;
mod cinder;
mod gce_persistent_disk;
mod portworx_volume;
mod topology;
mod vsphere_volume;

use std::collections::BTreeMap;

use model::k8s::{CSIPersistentVolumeSource, ObjectMeta, PersistentVolume, PersistentVolumeSpec, Volume};

use topology::{TopologyLabels, translate as translate_topology};

const READ_WRITE_ONCE: &str = "ReadWriteOnce";
const READ_ONLY_MANY: &str = "ReadOnlyMany";
const READ_WRITE_MANY: &str = "ReadWriteMany";

/// A volume of a type belongs to at most one of these; the API refuses several sources in one volume.
static TYPES: [&dyn InTreeType; 7] = [
    &aws_elastic_block_store::AwsElasticBlockStore,
    &gce_persistent_disk::GcePersistentDisk,
    &cinder::Cinder,
    &azure_disk::AzureDisk,
    &azure_file::AzureFile,
    &vsphere_volume::VsphereVolume,
    &portworx_volume::PortworxVolume,
];

/// A type of volume that a CSI driver has taken over.
trait InTreeType: Sync {
    /// Takes the source of a PersistentVolume out of its spec, and returns the driver's; `None` if it is of another type.
    fn persistent(
        &self,
        metadata: &ObjectMeta,
        spec: &mut PersistentVolumeSpec,
    ) -> Option<Result<CSIPersistentVolumeSource, String>>;

    /// What a volume of a pod's spec is for its driver; `None` if it is of another type.
    fn inline(&self, volume: &Volume, namespace: &str) -> Option<Result<TranslatedVolume, String>>;

    /// The labels by which the driver knows where nodes are; `None` if it uses those of Kubernetes, or none.
    fn topology(&self) -> Option<TopologyLabels> {
        None
    }
}

/// A volume of a pod's spec as if it had a PersistentVolume. Its driver stages it like one.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatedVolume {
    /// The same for all pods that use the volume. Not a name of the API: it may contain slashes.
    pub name: String,
    pub spec: PersistentVolumeSpec,
}

impl TranslatedVolume {
    fn new(name: String, access_mode: &str, source: CSIPersistentVolumeSource) -> Self {
        let spec = PersistentVolumeSpec {
            csi: Some(source),
            access_modes: Some(vec![access_mode.to_owned()]),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        };
        Self { name, spec }
    }
}

/// The spec of the PersistentVolume with the source of a CSI driver; `None` if its type has not moved to one.
///
/// # Errors
/// The driver cannot provide the volume. The text is complete.
#[must_use]
pub fn translate_persistent_volume(
    volume: &PersistentVolume,
) -> Option<Result<PersistentVolumeSpec, String>> {
    let mut spec = volume.spec.clone()?;
    let (in_tree, source) =
        TYPES.iter().find_map(|in_tree| Some((in_tree, in_tree.persistent(&volume.metadata, &mut spec)?)))?;
    if let Some(driver) = in_tree.topology() {
        translate_topology(volume.metadata.labels.as_ref(), &mut spec, driver);
    }
    let translated = source.map(|source| PersistentVolumeSpec { csi: Some(source), ..spec });
    Some(translated.map_err(failed))
}

/// What a volume of a pod's spec is for the CSI driver that its type has moved to; `None` if it has not moved.
///
/// # Errors
/// The driver cannot provide the volume. The text is complete.
#[must_use]
pub fn translate_inline(volume: &Volume, namespace: &str) -> Option<Result<TranslatedVolume, String>> {
    let translated = TYPES.iter().find_map(|in_tree| in_tree.inline(volume, namespace))?;
    Some(translated.map_err(failed))
}

/// The volume is of a type that has moved.
#[must_use]
pub const fn has_moved(volume: &Volume) -> bool {
    volume.aws_elastic_block_store.is_some()
        || volume.gce_persistent_disk.is_some()
        || volume.cinder.is_some()
        || volume.azure_disk.is_some()
        || volume.azure_file.is_some()
        || volume.vsphere_volume.is_some()
        || volume.portworx_volume.is_some()
}

fn failed(error: String) -> String {
    format!("failed to translate in-tree pv to CSI: {error}")
}

/// Attributes of a volume.
fn attributes<const N: usize>(values: [(&str, &str); N]) -> Option<BTreeMap<String, String>> {
    Some(values.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    /// What is left of a PersistentVolume's spec after its translation.
    pub(super) fn persistent(volume: Value) -> Result<Value, String> {
        let volume = serde_json::from_value(volume).expect("a PersistentVolume");
        let spec = translate_persistent_volume(&volume).expect("a type that has moved")?;
        Ok(serde_json::to_value(spec).expect("JSON"))
    }

    /// The name and spec of a volume of a pod in the namespace `test`.
    pub(super) fn inline(source: Value) -> Result<(String, Value), String> {
        let volume = volume(source);
        assert!(has_moved(&volume));
        let translated = translate_inline(&volume, "test").expect("a type that has moved")?;
        Ok((translated.name, serde_json::to_value(translated.spec).expect("JSON")))
    }

    fn volume(mut source: Value) -> Volume {
        source["name"] = "name".into();
        serde_json::from_value(source).expect("a volume")
    }

    /// The spec that a volume of a pod has: used as a filesystem.
    pub(super) fn inline_spec(access_mode: &str, csi: Value) -> Value {
        json!({"accessModes": [access_mode], "csi": csi, "volumeMode": "Filesystem"})
    }

    /// The error of both kinds of volumes.
    pub(super) fn error(why: &str) -> String {
        format!("failed to translate in-tree pv to CSI: {why}")
    }

    #[test]
    fn volumes_of_other_types_are_not_translated() {
        for source in
            [json!({}), json!({"csi": {"driver": "d"}}), json!({"nfs": {"server": "s", "path": "/"}})]
        {
            let volume = volume(source);
            assert_eq!((translate_inline(&volume, "test"), has_moved(&volume)), (None, false), "{volume:?}");
        }
        for spec in
            [json!({}), json!({"csi": {"driver": "d", "volumeHandle": "h"}}), json!({"local": {"path": "/"}})]
        {
            let volume = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(translate_persistent_volume(&volume), None, "{spec}");
        }
        assert_eq!(translate_persistent_volume(&PersistentVolume::default()), None);
    }

    #[test]
    fn everything_but_the_source_of_a_persistent_volume_stays_as_it_is() {
        let spec = json!({
            "cinder": {"volumeID": "vol1"}, "accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"],
            "volumeMode": "Block", "capacity": {"storage": "1Gi"}, "claimRef": {"name": "c", "namespace": "n"},
        });
        let mut expected = spec.clone();
        expected.as_object_mut().unwrap().remove("cinder");
        expected["csi"] =
            json!({"driver": "cinder.csi.openstack.org", "volumeHandle": "vol1", "volumeAttributes": {}});
        assert_eq!(persistent(json!({"spec": spec})), Ok(expected));
    }

    /// As `TestTranslateInTreeInlineVolumeToCSINameUniqueness` of Kubernetes.
    #[test]
    fn different_volumes_of_a_type_have_different_names() {
        let sources: [fn(&str) -> Value; 7] = [
            |id| json!({"gcePersistentDisk": {"pdName": id}}),
            |id| json!({"awsElasticBlockStore": {"volumeID": id}}),
            |id| json!({"cinder": {"volumeID": id}}),
            |id| json!({"azureDisk": {"diskName": id, "diskURI": id}}),
            |id| json!({"azureFile": {"secretName": id, "shareName": id}}),
            |id| json!({"vsphereVolume": {"volumePath": format!(" [vsanDatastore] 6785a85e/{id}.vmdk"), "fsType": "ext4"}}),
            |id| json!({"portworxVolume": {"volumeID": id}}),
        ];
        let (mut names, mut drivers) = (BTreeSet::new(), BTreeSet::new());
        for source in sources {
            for id in ["33b1a1ab", "0ea6ae8c"] {
                let (name, spec) = inline(source(id)).unwrap();
                names.insert(name);
                drivers.insert(spec["csi"]["driver"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(names.len(), 14, "{names:?}");
        let expected = [
            "cinder.csi.openstack.org",
            "csi.vsphere.vmware.com",
            "disk.csi.azure.com",
            "ebs.csi.aws.com",
            "file.csi.azure.com",
            "pd.csi.storage.gke.io",
            "pxd.portworx.com",
        ];
        assert_eq!(drivers, expected.map(str::to_owned).into());
    }
}
