//! `vol_data.json`: what the kubelet records next to a volume of a CSI driver before it calls the driver, so that it can also take it
//! away after a restart, without the API. The Go kubelet writes and reads the same files; see the decision
//! docs/decisions/0070-csi-volumes.md for the format.

use std::collections::BTreeMap;

use super::Lifecycle;
use crate::go_json::go_json;

/// The largest file that is read; the API accepts no longer handle.
pub const MAX_BYTES: usize = 1 << 20;

const HANDLE: &str = "volumeHandle";
const DRIVER: &str = "driverName";
const SPEC_NAME: &str = "specVolID";
const NODE: &str = "nodeName";
const ATTACHMENT: &str = "attachmentID";
const LIFECYCLE: &str = "volumeLifecycleMode";
const SELINUX: &str = "seLinuxMountContext";

/// Next to a volume that is staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedData {
    pub driver: String,
    pub handle: String,
    pub selinux_context: Option<String>,
}

/// Next to a volume that is published to a pod, or mapped to one as a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedData {
    pub driver: String,
    pub handle: String,
    /// The name of the PersistentVolume, or of the volume in the pod's spec.
    pub spec_name: String,
    pub node: String,
    pub attachment: String,
    /// `None` for devices.
    pub lifecycle: Option<Lifecycle>,
    pub selinux_context: Option<String>,
}

impl StagedData {
    /// The content of the file.
    #[must_use]
    pub fn to_file(&self) -> String {
        let selinux = self.selinux_context.as_deref().map(|context| (SELINUX, context));
        write([(DRIVER, &*self.driver), (HANDLE, &*self.handle)].into_iter().chain(selinux))
    }

    /// # Errors
    /// The content is not that of such a file.
    pub fn parse(content: &[u8]) -> Result<Self, String> {
        let mut values = read(content)?;
        Ok(Self {
            driver: required(&mut values, DRIVER)?,
            handle: required(&mut values, HANDLE)?,
            selinux_context: values.remove(SELINUX),
        })
    }
}

impl PublishedData {
    /// The content of the file.
    #[must_use]
    pub fn to_file(&self) -> String {
        let fixed = [
            (ATTACHMENT, &*self.attachment),
            (DRIVER, &*self.driver),
            (NODE, &*self.node),
            (SPEC_NAME, &*self.spec_name),
            (HANDLE, &*self.handle),
        ];
        let lifecycle = self.lifecycle.map(|lifecycle| (LIFECYCLE, lifecycle.name()));
        let selinux = self.selinux_context.as_deref().map(|context| (SELINUX, context));
        write(fixed.into_iter().chain(lifecycle).chain(selinux))
    }

    /// # Errors
    /// The content is not that of such a file.
    pub fn parse(content: &[u8]) -> Result<Self, String> {
        let mut values = read(content)?;
        let lifecycle = match values.get(LIFECYCLE).map(String::as_str) {
            Some("Ephemeral") => Some(Lifecycle::Ephemeral),
            Some(_) => Some(Lifecycle::Persistent),
            None => None,
        };
        Ok(Self {
            driver: required(&mut values, DRIVER)?,
            handle: required(&mut values, HANDLE)?,
            spec_name: values.remove(SPEC_NAME).unwrap_or_default(),
            node: values.remove(NODE).unwrap_or_default(),
            attachment: values.remove(ATTACHMENT).unwrap_or_default(),
            lifecycle,
            selinux_context: values.remove(SELINUX),
        })
    }
}

/// With a newline at the end.
fn write<'a>(values: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = go_json(&values.collect());
    text.push('\n');
    text
}

fn read(content: &[u8]) -> Result<BTreeMap<String, String>, String> {
    serde_json::from_slice(content).map_err(|error| format!("volume data cannot be parsed: {error}"))
}

fn required(values: &mut BTreeMap<String, String>, key: &str) -> Result<String, String> {
    let value = values.remove(key).filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("volume data has no {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by a Go kubelet for a PersistentVolume.
    const PUBLISHED: &str = r#"{"attachmentID":"csi-0a2d","driverName":"test-driver","nodeName":"node","specVolID":"test-pv","volumeHandle":"vol\u0026\u003c1\u003e","volumeLifecycleMode":"Persistent"}
"#;

    fn published() -> PublishedData {
        PublishedData {
            driver: "test-driver".to_owned(),
            handle: "vol&<1>".to_owned(),
            spec_name: "test-pv".to_owned(),
            node: "node".to_owned(),
            attachment: "csi-0a2d".to_owned(),
            lifecycle: Some(Lifecycle::Persistent),
            selinux_context: None,
        }
    }

    #[test]
    fn the_file_of_the_go_kubelet_is_written_byte_for_byte_and_read_back() {
        assert_eq!(published().to_file(), PUBLISHED);
        assert_eq!(PublishedData::parse(PUBLISHED.as_bytes()), Ok(published()));
        let staged = StagedData { driver: "d".to_owned(), handle: "h".to_owned(), selinux_context: None };
        let text = "{\"driverName\":\"d\",\"volumeHandle\":\"h\"}\n";
        assert_eq!(staged.to_file(), text);
        assert_eq!(StagedData::parse(text.as_bytes()), Ok(staged));
    }

    #[test]
    fn a_mount_with_an_selinux_context_records_it() {
        let context = Some("system_u:object_r:container_file_t:s0:c0,c1".to_owned());
        let data = PublishedData { selinux_context: context, ..published() };
        assert!(
            data.to_file().contains(r#""seLinuxMountContext":"system_u:object_r:container_file_t:s0:c0,c1""#)
        );
        assert_eq!(PublishedData::parse(data.to_file().as_bytes()), Ok(data));
    }

    #[test]
    fn a_file_without_driver_or_handle_is_an_error() {
        for (content, error) in [
            ("", "volume data cannot be parsed: EOF while parsing a value at line 1 column 0"),
            (r#"{"volumeHandle":"h"}"#, "volume data has no driverName"),
            (r#"{"driverName":"d","volumeHandle":""}"#, "volume data has no volumeHandle"),
        ] {
            assert_eq!(StagedData::parse(content.as_bytes()), Err(error.to_owned()));
            assert_eq!(
                PublishedData::parse(content.as_bytes()).map_err(|error| error.len()),
                Err(error.len())
            );
        }
    }
}
