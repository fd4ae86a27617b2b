//! Whether a volume is attached to this node: what the Node's status and the VolumeAttachment say (docs/behaviour/volumes.md).
//!
//! Owns: the name of a VolumeAttachment and what its status means. Never: reading either object.

use std::collections::BTreeMap;
use std::time::Duration;

use model::digest::sha256_hex;
use model::k8s::{Node, VolumeAttachment};
use model::text::cut;

/// The longest error of an attacher that is repeated.
const MAX_MESSAGE: usize = 2048;
/// The code of gRPC for an exhausted resource: the node has no place for another volume.
const RESOURCE_EXHAUSTED: i32 = 8;

/// The first delay between two reads of a VolumeAttachment, by how much it grows, and its maximum.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const DELAY_FACTOR: f64 = 1.05;
const MAX_DELAY: Duration = Duration::from_secs(7);
const JITTER: f64 = 0.1;

/// What a VolumeAttachment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachState {
    /// With the metadata that the driver needs on the node.
    Attached(BTreeMap<String, String>),
    NotYet,
    /// It cannot be attached now, for this reason.
    Refused(String),
}

/// The name of the VolumeAttachment of this volume on this node.
#[must_use]
pub fn attachment_name(volume_handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256_hex(format!("{volume_handle}{driver}{node}").as_bytes()))
}

#[must_use]
pub fn compute_attach_state(attachment: &VolumeAttachment) -> AttachState {
    if attachment.metadata.deletion_timestamp.is_some() {
        return AttachState::Refused("volume attachment is being deleted".to_owned());
    }
    let Some(status) = &attachment.status else { return AttachState::NotYet };
    if status.attached {
        return AttachState::Attached(status.attachment_metadata.clone().unwrap_or_default());
    }
    match &status.attach_error {
        Some(error) => {
            let message = error.message.as_deref().unwrap_or_default();
            AttachState::Refused(cut(message, MAX_MESSAGE).into_owned())
        }
        None => AttachState::NotYet,
    }
}

/// The driver refused the volume because the node has too many.
#[must_use]
pub fn is_resource_exhausted(attachment: &VolumeAttachment) -> bool {
    let error = attachment.status.as_ref().and_then(|status| status.attach_error.as_ref());
    error.and_then(|error| error.error_code) == Some(RESOURCE_EXHAUSTED)
}

/// The attach/detach controller reports the volume in the status of the Node.
#[must_use]
pub fn is_in_node_status(node: &Node, unique_name: &str) -> bool {
    device_in_node_status(node, unique_name).is_some()
}

/// The device to which the attach/detach controller attached the volume; `None` if it did not, yet.
#[must_use]
pub fn device_in_node_status(node: &Node, unique_name: &str) -> Option<String> {
    let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_deref());
    let volume = attached.unwrap_or_default().iter().find(|volume| volume.name == unique_name);
    volume.map(|volume| volume.device_path.clone())
}

/// The delay before the VolumeAttachment is read again after so many reads. `random` is from 0 to 1.
#[must_use]
pub fn attachment_delay(reads: u32, random: f64) -> Duration {
    let grown =
        FIRST_DELAY.as_secs_f64() * DELAY_FACTOR.powi(i32::try_from(reads).unwrap_or(i32::MAX).min(1000));
    Duration::from_secs_f64(grown.min(MAX_DELAY.as_secs_f64())).mul_f64(1.0 + JITTER * random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attachment(metadata: serde_json::Value, status: serde_json::Value) -> VolumeAttachment {
        serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
            "status": status,
        }))
        .unwrap()
    }

    /// `csi_attacher.go` (getAttachmentName): the values are those of `printf %s… | sha256sum`.
    #[test]
    fn attachment_name_is_the_digest_of_volume_driver_and_node() {
        assert_eq!(
            attachment_name("test-vol", "test-driver", "fake-node"),
            "csi-bb2ecb6fe4b219f45e444384520b46fcfa127f5beddfa974e35ce131403dd9e9"
        );
        assert_ne!(attachment_name("a", "b", "c"), attachment_name("a", "c", "b"));
    }

    /// `csi_attacher_test.go` (TestAttacherWaitForAttach and its table of statuses).
    #[test]
    fn attachment_state_prefers_deletion_over_success_and_success_over_errors() {
        let plain = json!({"name": "csi-1"});
        let deleted = json!({"name": "csi-1", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let attached = json!({"attached": true, "attachmentMetadata": {"devicePath": "/dev/sdb"}});
        let failed = json!({"attached": false, "attachError": {"message": "missing spec"}});
        let metadata = BTreeMap::from([("devicePath".to_owned(), "/dev/sdb".to_owned())]);
        for (metadata_of, status, expected) in [
            (&plain, attached.clone(), AttachState::Attached(metadata)),
            (
                &plain,
                json!({"attached": true, "attachError": {"message": "old"}}),
                AttachState::Attached(BTreeMap::new()),
            ),
            (&plain, failed.clone(), AttachState::Refused("missing spec".to_owned())),
            (&plain, json!({"attached": false}), AttachState::NotYet),
            (&plain, json!(null), AttachState::NotYet),
            (&deleted, attached, AttachState::Refused("volume attachment is being deleted".to_owned())),
            (&deleted, failed, AttachState::Refused("volume attachment is being deleted".to_owned())),
        ] {
            assert_eq!(
                compute_attach_state(&attachment(metadata_of.clone(), status.clone())),
                expected,
                "{status}"
            );
        }
        let long =
            attachment(plain, json!({"attached": false, "attachError": {"message": "x".repeat(9000)}}));
        let AttachState::Refused(text) = compute_attach_state(&long) else { panic!("not refused") };
        assert!(text.len() <= MAX_MESSAGE);
    }

    /// `csi_plugin_test.go` (TestIsResourceExhaustError).
    #[test]
    fn exhausted_node_is_recognized_by_the_error_code() {
        let with = |status: serde_json::Value| is_resource_exhausted(&attachment(json!({}), status));
        assert!(with(json!({"attached": false, "attachError": {"errorCode": 8}})));
        assert!(!with(json!({"attached": false, "attachError": {"errorCode": 13}})));
        assert!(!with(json!({"attached": false, "attachError": {"message": "no code"}})));
        assert!(!with(json!({"attached": false})));
    }

    #[test]
    fn volume_is_attached_once_the_node_status_has_its_name() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {},
            "status": {"volumesAttached": [{"name": "kubernetes.io/csi/d^v", "devicePath": ""}],
                "volumesInUse": ["kubernetes.io/csi/d^w"]},
        }))
        .unwrap();
        assert!(is_in_node_status(&node, "kubernetes.io/csi/d^v"));
        assert!(!is_in_node_status(&node, "kubernetes.io/csi/d^w"));
        assert!(!is_in_node_status(&Node::default(), "kubernetes.io/csi/d^v"));
    }

    /// `csi_attacher.go` (waitForVolumeAttachDetachStatusWithLister).
    #[test]
    fn delay_between_reads_grows_from_half_a_second_to_seven_seconds() {
        assert_eq!(attachment_delay(0, 0.0), Duration::from_millis(500));
        assert_eq!(attachment_delay(1, 0.0), Duration::from_millis(525));
        assert_eq!(attachment_delay(0, 1.0), Duration::from_millis(550));
        assert_eq!(attachment_delay(u32::MAX, 0.0), Duration::from_secs(7));
    }
}
