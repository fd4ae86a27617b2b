//! `gcePersistentDisk`, now of the driver `pd.csi.storage.gke.io`, which knows a disk by its project and by its zone or region.

use std::collections::BTreeSet;

use model::k8s::{
    CSIPersistentVolumeSource, GCEPersistentDiskVolumeSource, ObjectMeta, PersistentVolumeSpec, Volume,
};

use super::topology::{SEPARATOR, TopologyLabels};
use super::{InTreeType, READ_ONLY_MANY, READ_WRITE_MANY, READ_WRITE_ONCE, TranslatedVolume, attributes};

const DRIVER: &str = "pd.csi.storage.gke.io";
/// For a project or zone that is not known here; the driver finds it out.
const UNSPECIFIED: &str = "UNSPECIFIED";
/// Labels with the zones of a volume; the first that has a value counts.
const ZONE_LABELS: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];

pub(super) struct GcePersistentDisk;

impl InTreeType for GcePersistentDisk {
    fn persistent(
        &self,
        metadata: &ObjectMeta,
        spec: &mut PersistentVolumeSpec,
    ) -> Option<Result<CSIPersistentVolumeSource, String>> {
        let source = spec.gce_persistent_disk.take()?;
        spec.access_modes =
            spec.access_modes.take().map(|modes| vec![offered_access_mode(&modes).to_owned()]);
        let place = place_of(metadata).map_err(|error| format!("failed to get region from zones: {error}"));
        Some(place.map(|place| translate(&source, &place)))
    }

    fn inline(&self, volume: &Volume, _: &str) -> Option<Result<TranslatedVolume, String>> {
        let source = volume.gce_persistent_disk.as_ref()?;
        let access_mode = if source.read_only == Some(true) { READ_ONLY_MANY } else { READ_WRITE_ONCE };
        let translated = translate(source, &zone(UNSPECIFIED));
        Some(Ok(TranslatedVolume::new(format!("{DRIVER}-{}", source.pd_name), access_mode, translated)))
    }

    fn topology(&self) -> Option<TopologyLabels> {
        Some(TopologyLabels { zone: "topology.gke.io/zone", region: None })
    }
}

fn translate(source: &GCEPersistentDiskVolumeSource, place: &str) -> CSIPersistentVolumeSource {
    let partition = source.partition.filter(|partition| *partition != 0);
    let partition = partition.map(|partition| partition.to_string()).unwrap_or_default();
    CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: format!("projects/{UNSPECIFIED}/{place}/disks/{}", source.pd_name),
        read_only: source.read_only,
        fs_type: source.fs_type.clone(),
        volume_attributes: attributes([("partition", &partition)]),
        ..CSIPersistentVolumeSource::default()
    }
}

fn zone(name: &str) -> String {
    format!("zones/{name}")
}

/// The zone or region of a disk, from the labels of its PersistentVolume.
fn place_of(metadata: &ObjectMeta) -> Result<String, String> {
    let labels = metadata.labels.as_ref();
    let value = |label: &str| labels.and_then(|labels| labels.get(label)).filter(|value| !value.is_empty());
    let Some(zones) = ZONE_LABELS.into_iter().find_map(value) else { return Ok(zone(UNSPECIFIED)) };
    match zones.contains(SEPARATOR) {
        false => Ok(zone(zones)),
        true => region_of(zones.split(SEPARATOR)).map(|region| format!("regions/{region}")),
    }
}

/// The region that all of these zones, such as `us-east1-a`, are in.
fn region_of<'a>(zones: impl Iterator<Item = &'a str>) -> Result<&'a str, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        match zone.rsplit_once('-') {
            Some((region, _)) if region.matches('-').count() == 1 => regions.insert(region),
            Some(_) | None => {
                return Err(format!(
                    "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
                ));
            }
        };
    }
    match regions.first() {
        Some(region) if regions.len() == 1 => Ok(region),
        Some(_) | None => {
            let regions: Vec<String> = regions.iter().map(|region| format!("{region}:{{}}")).collect();
            Err(format!("multiple or no regions gotten from zones, got: map[{}]", regions.join(" ")))
        }
    }
}

/// The driver refuses ReadWriteMany, and ReadWriteOnce together with ReadOnlyMany. The in-tree code ignored both, so such volumes
/// exist, and have always been used by one node.
fn offered_access_mode(modes: &[String]) -> &'static str {
    let has = |mode: &str| modes.iter().any(|known| known == mode);
    match has(READ_ONLY_MANY) && !has(READ_WRITE_ONCE) && !has(READ_WRITE_MANY) {
        true => READ_ONLY_MANY,
        false => READ_WRITE_ONCE,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{error, inline, inline_spec, persistent};
    use super::*;

    /// The cases of `TestTranslateInTreePVToCSIVolIDFmt` of Kubernetes, and volumes whose zone is not known.
    #[test]
    fn handle_of_a_persistent_disk_has_the_zone_or_region_of_its_labels() {
        let (beta, ga) = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
        for (labels, place) in [
            (json!({beta: "us-east1-a"}), "zones/us-east1-a"),
            (json!({ga: "us-east1-a"}), "zones/us-east1-a"),
            (json!({beta: "us-central1-a__us-central1-c"}), "regions/us-central1"),
            (json!({ga: "us-central1-a__us-central1-c"}), "regions/us-central1"),
            (json!({beta: "us-east1-a", ga: "us-east1-b"}), "zones/us-east1-a"),
            (json!({beta: "", ga: "us-east1-b"}), "zones/us-east1-b"),
            (json!({ga: ""}), "zones/UNSPECIFIED"),
            (json!({}), "zones/UNSPECIFIED"),
        ] {
            let volume =
                json!({"metadata": {"labels": labels}, "spec": {"gcePersistentDisk": {"pdName": "pd-name"}}});
            let handle = format!("projects/UNSPECIFIED/{place}/disks/pd-name");
            let csi =
                json!({"driver": DRIVER, "volumeHandle": handle, "volumeAttributes": {"partition": ""}});
            assert_eq!(persistent(volume).unwrap()["csi"], csi);
        }
    }

    #[test]
    fn persistent_disk_in_zones_of_no_single_region_is_an_error() {
        for (zones, why) in [
            (
                "us-central1-a__us-east1-a",
                "multiple or no regions gotten from zones, got: map[us-central1:{} us-east1:{}]",
            ),
            ("us-central1-a__b", "zone in unexpected format, expected: {locale}-{region}-{zone}, got: b"),
            ("a-b-c-d__a-b-c", "zone in unexpected format, expected: {locale}-{region}-{zone}, got: a-b-c-d"),
            ("a-b-c__", "zone in unexpected format, expected: {locale}-{region}-{zone}, got: "),
        ] {
            let labels = json!({"topology.kubernetes.io/zone": zones});
            let volume =
                json!({"metadata": {"labels": labels}, "spec": {"gcePersistentDisk": {"pdName": "pd"}}});
            assert_eq!(persistent(volume), Err(error(&format!("failed to get region from zones: {why}"))));
        }
    }

    /// The cases of `TestBackwardCompatibleAccessModes` of Kubernetes, and modes that no disk can have.
    #[test]
    fn persistent_disk_has_one_access_mode_that_its_driver_offers() {
        let (rox, rwo, rwx) = ("ReadOnlyMany", "ReadWriteOnce", "ReadWriteMany");
        for (modes, expected) in [
            (json!([rox]), rox),
            (json!([rwo]), rwo),
            (json!([rwx]), rwo),
            (json!([rox, rwo]), rwo),
            (json!([rwo, rwx]), rwo),
            (json!([rwx, rox]), rwo),
            (json!([rwx, rwo, rox]), rwo),
            (json!(["ReadWriteOncePod"]), rwo),
            (json!([]), rwo),
        ] {
            let spec = json!({"gcePersistentDisk": {"pdName": "pd"}, "accessModes": modes});
            let translated = persistent(json!({"spec": spec})).unwrap();
            assert_eq!(translated["accessModes"], json!([expected]), "{modes}");
        }
    }

    /// With the values of `TestInlineReadOnly` of Kubernetes.
    #[test]
    fn persistent_disk_of_a_pod_that_only_reads_may_be_read_by_many() {
        for (read_only, access_mode) in [(true, "ReadOnlyMany"), (false, "ReadWriteOnce")] {
            let source = json!({"pdName": "foo", "readOnly": read_only, "fsType": "ext4", "partition": 3});
            let csi = json!({
                "driver": DRIVER, "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/foo",
                "fsType": "ext4", "readOnly": read_only, "volumeAttributes": {"partition": "3"},
            });
            let expected = ("pd.csi.storage.gke.io-foo".to_owned(), inline_spec(access_mode, csi));
            assert_eq!(inline(json!({"gcePersistentDisk": source})), Ok(expected));
        }
    }
}
