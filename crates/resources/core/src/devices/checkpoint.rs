//! `kubelet_internal_checkpoint`: the device allocations, so that a restart of the kubelet keeps them
//! (docs/behaviour/plugins.md).
//!
//! The format is the Go kubelet's, with its checksum over a debug print of the Go value, so that a node can switch
//! between the two kubelets.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::PodUid;
use model::devices::AllocateResponse;
use serde::{Deserialize, Serialize};

use super::{Given, PodDevices, Registry};
use crate::go_checksum::{GoField, GoValue, go_checksum};

/// The name of the file in the directory of device plugins.
pub const FILE: &str = "kubelet_internal_checkpoint";
/// The NUMA node of a device without one.
const NO_NODE: i64 = -1;

/// Why the allocations of an earlier kubelet are unknown.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("it is no JSON of this kind")]
    Json(#[from] serde_json::Error),
    #[error("checkpoint is corrupted: its checksum is {found}, not {recorded}")]
    Corrupt { recorded: u32, found: u32 },
}

/// What an earlier kubelet left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    pub pods: BTreeMap<PodUid, PodDevices>,
    /// Resources whose plugins were registered.
    pub resources: BTreeSet<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
    checksum: u32,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Option<Vec<Entry>>,
    registered_devices: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    /// By NUMA node.
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<i64, Vec<String>>,
    alloc_resp: String,
}

/// The text of the checkpoint. Devices without an allocate response are not in it.
#[must_use]
pub fn write_checkpoint<'a>(
    pods: impl Iterator<Item = (PodUid, &'a PodDevices)>,
    registry: &Registry,
    pack: impl Fn(&AllocateResponse) -> Vec<u8>,
) -> String {
    let mut entries = Vec::new();
    for (uid, devices) in pods {
        for (container, resources) in &devices.containers {
            for (resource, given) in resources {
                let Some(response) = &given.response else { continue };
                entries.push(Entry {
                    pod_uid: uid.to_string(),
                    container_name: container.clone(),
                    resource_name: resource.clone(),
                    device_ids: by_node(given),
                    alloc_resp: BASE64.encode(pack(response)),
                });
            }
        }
    }
    let healthy = |name: &str| registry.healthy(name).map(str::to_owned).collect();
    let data = Data {
        pod_device_entries: (!entries.is_empty()).then_some(entries),
        registered_devices: registry.resources().map(|name| (name.to_owned(), healthy(name))).collect(),
    };
    let checksum = checksum(&data);
    serde_json::to_string(&File { data, checksum }).unwrap_or_default()
}

fn by_node(given: &Given) -> BTreeMap<i64, Vec<String>> {
    let mut nodes: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for (id, near) in &given.devices {
        let near = if near.is_empty() { &[NO_NODE] } else { near.as_slice() };
        for node in near {
            nodes.entry(*node).or_default().push(id.clone());
        }
    }
    nodes
}

/// # Errors
/// The text was not written by a kubelet, or is incomplete.
pub fn parse_checkpoint(
    text: &str,
    unpack: impl Fn(&[u8]) -> Option<AllocateResponse>,
) -> Result<Remembered, CheckpointError> {
    let File { data, checksum: recorded } = serde_json::from_str(text)?;
    let found = checksum(&data);
    if found != recorded {
        return Err(CheckpointError::Corrupt { recorded, found });
    }
    let mut remembered =
        Remembered { resources: data.registered_devices.into_keys().collect(), ..Remembered::default() };
    for entry in data.pod_device_entries.into_iter().flatten() {
        let mut given = Given { response: unpack(&packed(&entry)), ..Given::default() };
        for (node, ids) in entry.device_ids {
            for id in ids {
                given.devices.entry(id).or_default().extend((node != NO_NODE).then_some(node));
            }
        }
        let pod = remembered.pods.entry(PodUid::new(entry.pod_uid)).or_default();
        pod.containers.entry(entry.container_name).or_default().insert(entry.resource_name, given);
    }
    Ok(remembered)
}

/// For fuzzers: the same checkpoint with the correct checksum.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn with_right_checksum(text: &str) -> Option<String> {
    let File { data, .. } = serde_json::from_str(text).ok()?;
    let checksum = checksum(&data);
    serde_json::to_string(&File { data, checksum }).ok()
}

/// Text that is not base64 is no allocate response, and the plugin is called again.
fn packed(entry: &Entry) -> Vec<u8> {
    BASE64.decode(&entry.alloc_resp).unwrap_or_default()
}

fn checksum(data: &Data) -> u32 {
    go_checksum("checkpoint.checkpointData", &go_value(data))
}

fn go_value(data: &Data) -> GoValue {
    let entries = data.pod_device_entries.as_ref();
    let entries = entries.map_or(GoValue::Nil, |entries| GoValue::slice(entries.iter().map(go_entry)));
    let registered = data.registered_devices.iter().map(|(name, ids)| (name, go_texts(ids)));
    GoValue::Struct(vec![
        GoField::new("PodDeviceEntries", "[]checkpoint.PodDevicesEntry", entries),
        GoField::new("RegisteredDevices", "map[string][]string", GoValue::map(registered)),
    ])
}

fn go_entry(entry: &Entry) -> GoValue {
    let text = |name, text: &String| GoField::new(name, "string", GoValue::plain(text));
    let ids = entry.device_ids.iter().map(|(node, ids)| (node, go_texts(ids)));
    GoValue::Struct(vec![
        text("PodUID", &entry.pod_uid),
        text("ContainerName", &entry.container_name),
        text("ResourceName", &entry.resource_name),
        GoField::new("DeviceIDs", "checkpoint.DevicesPerNUMA", GoValue::map(ids)),
        GoField::new("AllocResp", "[]uint8", GoValue::slice(packed(entry).into_iter().map(GoValue::plain))),
    ])
}

fn go_texts(texts: &[String]) -> GoValue {
    GoValue::slice(texts.iter().map(GoValue::plain))
}

#[cfg(test)]
mod tests {
    use model::MonoTime;
    use model::devices::PluginDevice;

    use super::*;

    /// Two that Go kubelets have written, as people have shown them in public.
    const EMPTY: &str = r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}"#;
    const HELD: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"9a15d2b5-c152-46b9-96e0-d57032629e1f","ContainerName":"app","ResourceName":"nvidia.com/gpu","DeviceIDs":{"1":["GPU-9b341c59-f96b-ba85-c137-78c3652fea65","GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]},"AllocResp":"CmsKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSUUdQVS1jMWU5ZjI0OS1iMzdiLTgxYzItYThkOS1iYTVjYTAyOTQ4NDEsR1BVLTliMzQxYzU5LWY5NmItYmE4NS1jMTM3LTc4YzM2NTJmZWE2NRokCg4vZGV2L252aWRpYWN0bBIOL2Rldi9udmlkaWFjdGwaAnJ3GiYKDy9kZXYvbnZpZGlhLXV2bRIPL2Rldi9udmlkaWEtdXZtGgJydxoyChUvZGV2L252aWRpYS11dm0tdG9vbHMSFS9kZXYvbnZpZGlhLXV2bS10b29scxoCcncaLgoTL2Rldi9udmlkaWEtbW9kZXNldBITL2Rldi9udmlkaWEtbW9kZXNldBoCcncaIAoML2Rldi9udmlkaWExEgwvZGV2L252aWRpYTEaAnJ3GiAKDC9kZXYvbnZpZGlhMhIML2Rldi9udmlkaWEyGgJydw=="}],"RegisteredDevices":{"nvidia.com/gpu":["GPU-77a702db-e37f-3a74-d46d-c5713f66058c","GPU-9b341c59-f96b-ba85-c137-78c3652fea65","GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]}},"Checksum":2530956716}"#;

    /// An allocate response is one annotation here, so that its bytes can be seen.
    fn pack(response: &AllocateResponse) -> Vec<u8> {
        response.annotations["packed"].clone().into_bytes()
    }

    fn owned(pods: &BTreeMap<PodUid, PodDevices>) -> impl Iterator<Item = (PodUid, &PodDevices)> {
        pods.iter().map(|(uid, devices)| (uid.clone(), devices))
    }

    fn unpack(bytes: &[u8]) -> Option<AllocateResponse> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let annotations = [("packed".to_owned(), text)].into();
        Some(AllocateResponse { annotations, ..AllocateResponse::default() })
    }

    #[test]
    fn checkpoint_of_the_go_kubelet_is_read_and_written_byte_for_byte() {
        for text in [EMPTY, HELD] {
            let remembered = parse_checkpoint(text, unpack).unwrap();
            let file: File = serde_json::from_str(text).unwrap();
            let mut registry = Registry::default();
            for (resource, ids) in file.data.registered_devices {
                let plugin = registry.connected(&resource);
                let device = |id| PluginDevice { id, is_healthy: true, numa_nodes: Vec::new() };
                registry.listed(&resource, plugin, ids.into_iter().map(device).collect());
            }
            assert_eq!(write_checkpoint(owned(&remembered.pods), &registry, pack), text);
        }
        let pods = parse_checkpoint(HELD, unpack).unwrap().pods;
        let given =
            pods[&PodUid::new("9a15d2b5-c152-46b9-96e0-d57032629e1f")].get("app", "nvidia.com/gpu").unwrap();
        assert_eq!(given.devices["GPU-9b341c59-f96b-ba85-c137-78c3652fea65"], [1]);
        assert!(
            pack(given.response.as_ref().unwrap()).starts_with(b"\x0a\x6b\x0a\x16NVIDIA_VISIBLE_DEVICES")
        );
    }

    #[test]
    fn checkpoint_keeps_devices_with_several_numa_nodes_or_none() {
        let devices = [("a".to_owned(), vec![0, 1]), ("b".to_owned(), Vec::new())].into();
        let given = Given { devices, response: unpack(b"x") };
        let mut devices = PodDevices::default();
        devices.containers.insert("main".to_owned(), [("example.com/x".to_owned(), given)].into());
        let pods = BTreeMap::from([(PodUid::new("u"), devices)]);
        let registry = Registry::remembering(["example.com/x".to_owned()], MonoTime::default());
        let text = write_checkpoint(owned(&pods), &registry, pack);
        assert!(text.contains(r#""DeviceIDs":{"-1":["b"],"0":["a"],"1":["a"]}"#), "{text}");
        let remembered = parse_checkpoint(&text, unpack).unwrap();
        assert_eq!(remembered.pods, pods);
        assert_eq!(remembered.resources, ["example.com/x".to_owned()].into());
    }

    #[test]
    fn checkpoint_omits_devices_without_an_allocate_response() {
        let given = Given { devices: [("a".to_owned(), Vec::new())].into(), response: None };
        let mut devices = PodDevices::default();
        devices.containers.insert("main".to_owned(), [("example.com/x".to_owned(), given)].into());
        let pods = BTreeMap::from([(PodUid::new("u"), devices)]);
        let text = write_checkpoint(owned(&pods), &Registry::default(), pack);
        assert!(text.contains(r#""PodDeviceEntries":null"#), "{text}");
    }

    #[test]
    fn checkpoint_with_a_wrong_checksum_is_rejected() {
        let error_of = |text: &str| parse_checkpoint(text, unpack).map_err(|error| error.to_string());
        assert_eq!(
            error_of(&EMPTY.replace("GPU-0650", "GPU-0651")).unwrap_err(),
            "checkpoint is corrupted: its checksum is 1995831185, not 3952659280"
        );
        assert_eq!(error_of(&EMPTY[..40]).unwrap_err(), "it is no JSON of this kind");
    }
}
