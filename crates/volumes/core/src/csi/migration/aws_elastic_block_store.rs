//! `awsElasticBlockStore`, now of the driver `ebs.csi.aws.com`. A volume ID may be a URL with the zone, of which the driver wants only
//! the path.

use model::k8s::{
    AWSElasticBlockStoreVolumeSource, CSIPersistentVolumeSource, ObjectMeta, PersistentVolumeSpec, Volume,
};

use super::topology::TopologyLabels;
use super::{InTreeType, READ_WRITE_ONCE, TranslatedVolume, attributes};

const DRIVER: &str = "ebs.csi.aws.com";
const SCHEME: &str = "aws://";

pub(super) struct AwsElasticBlockStore;

impl InTreeType for AwsElasticBlockStore {
    fn persistent(
        &self,
        _: &ObjectMeta,
        spec: &mut PersistentVolumeSpec,
    ) -> Option<Result<CSIPersistentVolumeSource, String>> {
        spec.aws_elastic_block_store.take().map(|source| translate(&source))
    }

    fn inline(&self, volume: &Volume, _: &str) -> Option<Result<TranslatedVolume, String>> {
        let source = translate(volume.aws_elastic_block_store.as_ref()?);
        Some(source.map(|source| {
            let name = format!("{DRIVER}-{}", source.volume_handle);
            TranslatedVolume::new(name, READ_WRITE_ONCE, source)
        }))
    }

    fn topology(&self) -> Option<TopologyLabels> {
        Some(TopologyLabels { zone: "topology.ebs.csi.aws.com/zone", region: None })
    }
}

fn translate(source: &AWSElasticBlockStoreVolumeSource) -> Result<CSIPersistentVolumeSource, String> {
    let handle = volume_id(&source.volume_id)
        .map_err(|error| format!("failed to translate Kubernetes ID to EBS Volume ID {error}"))?;
    let partition = source.partition.unwrap_or_default().to_string();
    Ok(CSIPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        volume_handle: handle.to_owned(),
        read_only: source.read_only,
        fs_type: source.fs_type.clone(),
        volume_attributes: attributes([("partition", &partition)]),
        ..CSIPersistentVolumeSource::default()
    })
}

/// The volume ID of AWS: of `aws://<zone>/<id>` and `aws:///<id>` the path, which must be one, everything else as it is.
fn volume_id(id: &str) -> Result<&str, String> {
    let Some(url) = id.strip_prefix(SCHEME) else { return Ok(id) };
    // No ID of AWS has a character that a URL must escape.
    if url.contains(|c: char| c == '%' || c.is_control()) {
        return Err(format!("Invalid disk name ({id}): invalid character in URL"));
    }
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let path = url.split_once('/').map_or("", |(_zone, path)| path.trim_matches('/'));
    match path.starts_with("vol-") && !path.contains('/') {
        true => Ok(path),
        false => Err(format!("Invalid format for AWS volume ({id})")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{error, inline, inline_spec, persistent};
    use super::*;

    /// The cases of `TestKubernetesVolumeIDToEBSVolumeID` of Kubernetes, and more IDs that are invalid.
    #[test]
    fn volume_ids_of_aws_may_be_urls() {
        let id = "vol-02399794d890f9375";
        let of_zone = format!("aws://us-west-2a/{id}");
        for valid in
            [id, "aws:///vol-02399794d890f9375", &of_zone, &format!("{of_zone}/"), &format!("{of_zone}?x#y")]
        {
            assert_eq!(volume_id(valid), Ok(id), "{valid}");
        }
        assert_eq!(volume_id("02399794d890f9375"), Ok("02399794d890f9375"), "not a URL");
        for invalid in [
            "aws://us-west-2a/02399794d890f9375",
            "aws://",
            "aws://vol-1",
            "aws:///vol-1/../x",
            "aws://z?/vol-1",
        ] {
            assert_eq!(volume_id(invalid), Err(format!("Invalid format for AWS volume ({invalid})")));
        }
        let escaped = "aws:///vol-%2e";
        assert_eq!(
            volume_id(escaped),
            Err(format!("Invalid disk name ({escaped}): invalid character in URL"))
        );
    }

    /// The names are those of `TestTranslateInTreeInlineVolumeToCSI` of Kubernetes.
    #[test]
    fn elastic_block_store_volumes_are_of_the_ebs_driver() {
        let id = "vol-02399794d890f9375";
        for volume_id in [id, "aws:///vol-02399794d890f9375", "aws://us-west-2a/vol-02399794d890f9375"] {
            let csi = json!({"driver": DRIVER, "volumeHandle": id, "volumeAttributes": {"partition": "0"}});
            let source = json!({"awsElasticBlockStore": {"volumeID": volume_id}});
            let expected =
                ("ebs.csi.aws.com-vol-02399794d890f9375".to_owned(), inline_spec("ReadWriteOnce", csi));
            assert_eq!(inline(source), Ok(expected));
        }
        let source = json!({"volumeID": id, "fsType": "ext4", "partition": 2, "readOnly": true});
        let csi = json!({
            "driver": DRIVER, "volumeHandle": id, "fsType": "ext4", "readOnly": true,
            "volumeAttributes": {"partition": "2"},
        });
        assert_eq!(persistent(json!({"spec": {"awsElasticBlockStore": source}})), Ok(json!({"csi": csi})));
    }

    #[test]
    fn elastic_block_store_volume_with_an_invalid_id_is_an_error() {
        let source = json!({"awsElasticBlockStore": {"volumeID": "aws://us-west-2a/02399794d890f9375"}});
        let expected = error(
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://us-west-2a/02399794d890f9375)",
        );
        assert_eq!(inline(source.clone()), Err(expected.clone()));
        assert_eq!(persistent(json!({"spec": source})), Err(expected));
    }
}
