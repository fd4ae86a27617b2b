//! `dra_manager_state`: prepared claims in a file, so that a restart of the kubelet loses no unprepare.
//!
//! The format is the Go kubelet's: JSON in a JSON string, with its CRC-32. Whether a claim is prepared is not in it.

use std::collections::{BTreeMap, BTreeSet};

use model::PodUid;
use model::dra::{ClaimDevice, ClaimId};
use serde::{Deserialize, Serialize};

use super::table::{ClaimTable, DriverState, Entry};

/// The name of the file in the root directory.
pub const DRA_STATE_FILE: &str = "dra_manager_state";

const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

/// Why the state of an earlier kubelet cannot be used. The kubelet does not start: a claim that is prepared would never be unprepared.
#[derive(Debug, thiserror::Error)]
pub enum DraStateError {
    #[error("it is no JSON of this kind: {0}")]
    Json(#[from] serde_json::Error),
    #[error("checkpoint is corrupted")]
    Corrupt,
    #[error("unexpected kind {kind:?} or apiVersion {api_version:?}")]
    Version { kind: String, api_version: String },
}

impl DraStateError {
    /// The message with which the kubelet ends.
    #[must_use]
    pub fn advice(&self, path: &str) -> String {
        format!(
            "create ResourceClaim cache: could not read DRA state file {path:?}: {self}; drain this node and remove the DRA state file \
             before restarting the kubelet"
        )
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: String,
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct Data {
    #[serde(default)]
    kind: String,
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(rename = "ClaimInfoStateList", default)]
    claims: Option<Vec<Claim>>,
}

#[derive(Serialize, Deserialize)]
struct Claim {
    #[serde(rename = "ClaimUID", default)]
    uid: String,
    #[serde(rename = "ClaimName", default)]
    name: String,
    #[serde(rename = "Namespace", default)]
    namespace: String,
    #[serde(rename = "PodUIDs", default)]
    pods: Option<BTreeMap<String, Empty>>,
    #[serde(rename = "DriverState", default)]
    drivers: Option<BTreeMap<String, Driver>>,
}

/// `{}`, the value of a set in Go.
#[derive(Serialize, Deserialize)]
struct Empty {}

#[derive(Serialize, Deserialize)]
struct Driver {
    #[serde(rename = "Devices", default)]
    devices: Option<Vec<Device>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Device {
    pool_name: String,
    device_name: String,
    #[serde(rename = "ShareID")]
    share_id: Option<String>,
    request_names: Option<Vec<String>>,
    #[serde(rename = "CDIDeviceIDs")]
    cdi_devices: Option<Vec<String>>,
}

/// A list that was never filled is `null`.
fn list<T>(from: Vec<T>) -> Option<Vec<T>> {
    Some(from).filter(|list| !list.is_empty())
}

/// The file for the table.
///
/// # Errors
/// Never in practice: every part of it is JSON.
pub fn write_dra_state(table: &ClaimTable) -> Result<String, serde_json::Error> {
    let claims = table.claims().map(|(id, entry)| Claim {
        uid: id.uid,
        name: id.name,
        namespace: id.namespace,
        pods: Some(entry.pods.iter().map(|pod| (pod.as_str().to_owned(), Empty {})).collect()),
        drivers: Some(entry.drivers.iter().map(|(name, state)| (name.clone(), driver(state))).collect()),
    });
    // An empty list is not null here.
    let claims = Some(claims.collect());
    let data = Data { kind: KIND.to_owned(), api_version: API_VERSION.to_owned(), claims };
    let data = serde_json::to_string(&data)?;
    serde_json::to_string(&File { checksum: crc32(data.as_bytes()), data })
}

fn driver(state: &DriverState) -> Driver {
    let device = |device: &ClaimDevice| Device {
        pool_name: device.pool.clone(),
        device_name: device.name.clone(),
        share_id: device.share_id.clone(),
        request_names: list(device.requests.clone()),
        cdi_devices: list(device.cdi_devices.clone()),
    };
    Driver { devices: list(state.devices.iter().map(device).collect()) }
}

/// The table that an earlier kubelet, of either kind, has written.
///
/// # Errors
/// The file is damaged, or of another version.
pub fn parse_dra_state(text: &str) -> Result<ClaimTable, DraStateError> {
    let File { data, checksum } = serde_json::from_str(text)?;
    if crc32(data.as_bytes()) != checksum {
        return Err(DraStateError::Corrupt);
    }
    let Data { kind, api_version, claims } = serde_json::from_str(&data)?;
    if kind != KIND || api_version != API_VERSION {
        return Err(DraStateError::Version { kind, api_version });
    }
    let mut table = ClaimTable::default();
    for claim in claims.into_iter().flatten() {
        let drivers = claim.drivers.into_iter().flatten().map(|(name, driver)| {
            let devices = driver.devices.into_iter().flatten().map(claim_device).collect();
            (name, DriverState { devices, is_prepared: false })
        });
        let mut pods: BTreeSet<PodUid> =
            claim.pods.into_iter().flatten().map(|(uid, _)| PodUid::new(uid)).collect();
        if pods.is_empty() {
            // No pod has this UID, so that the claim is unprepared as that of a pod that is gone.
            pods.insert(PodUid::new(""));
        }
        let id = ClaimId { namespace: claim.namespace, name: claim.name, uid: claim.uid };
        let entry = Entry::restored(id.uid.clone(), pods, drivers.collect());
        table.restore(&id, entry);
    }
    Ok(table)
}

fn claim_device(from: Device) -> ClaimDevice {
    ClaimDevice {
        pool: from.pool_name,
        name: from.device_name,
        share_id: from.share_id,
        requests: from.request_names.unwrap_or_default(),
        cdi_devices: from.cdi_devices.unwrap_or_default(),
    }
}

/// The file with the checksum that its data has: an attacker who can write the file can compute it, so it must not be what protects us.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn with_right_checksum(text: &str) -> Option<String> {
    let file: File = serde_json::from_str(text).ok()?;
    serde_json::to_string(&File { checksum: crc32(file.data.as_bytes()), ..file }).ok()
}

/// CRC-32 with the IEEE polynomial, bit by bit: the files are small.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::table::AllocatedClaim;

    /// A value of the unit tests of Kubernetes (`checkpointer_state_test.go`), from before `ShareID`.
    const RECORDED: &str = r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}","Checksum":1656016162}"#;

    #[test]
    fn recorded_state_is_read_and_its_claim_is_not_prepared() {
        let table = parse_dra_state(RECORDED).expect("a state");
        let (id, entry) = table.claims().next().expect("a claim");
        assert_eq!((&*id.namespace, &*id.name), ("default", "example"));
        assert!(table.is_used_by(&PodUid::new("139cdb46-f989-4f17-9561-ca10cfb509a6")));
        assert!(entry.drivers.values().all(|driver| !driver.is_prepared));
        let devices = table.devices("default", "example", Some("test request")).expect("devices");
        assert_eq!(devices[0].1.cdi_devices, ["example.com/example=cdi-example"]);
        // Only the share id is new.
        let written = write_dra_state(&table).expect("a text");
        let expected = RECORDED.replace(r#"\"RequestNames\""#, r#"\"ShareID\":null,\"RequestNames\""#);
        assert_eq!(written.split("\",\"Checksum").next(), expected.split("\",\"Checksum").next());
        assert_eq!(parse_dra_state(&written).expect("a state"), table);
    }

    /// A value of the same tests, with lists that were never filled.
    const RECORDED_TWO: &str = r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example-1\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}},{\"ClaimUID\":\"4cf8db2d-06c0-7d70-1a51-e59b25b2c16c\",\"ClaimName\":\"example-2\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-2\",\"RequestNames\":null,\"CDIDeviceIDs\":null}]}}}]}","Checksum":1582256999}"#;

    /// What Go kubelets 1.36.3 left on two nodes without claims (`crates/kubelet/tests/it/change_over/go_kubelet.json` and
    /// `crates/kubelet/tests/it/cluster/change_over/go_kubelet.json`).
    const RECORDED_EMPTY: &str = r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[]}","Checksum":2361995144}"#;

    #[test]
    fn recorded_state_without_claims_is_read_and_written_byte_by_byte() {
        assert_eq!(parse_dra_state(RECORDED_EMPTY).expect("a state"), ClaimTable::default());
        assert_eq!(write_dra_state(&ClaimTable::default()).expect("a text"), RECORDED_EMPTY);
        let null = r#"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":null}"#;
        let null = format!(r#"{{"Data":"{null}","Checksum":4010664294}}"#);
        assert_eq!(parse_dra_state(&null).expect("a state"), ClaimTable::default());
    }

    #[test]
    fn claims_without_devices_and_devices_without_names_have_null_lists() {
        let two = parse_dra_state(RECORDED_TWO).expect("a state");
        let written = write_dra_state(&two).expect("a text");
        // Only the share ids are new, and with them the checksum.
        let old = written.replace(r#"\"ShareID\":null,"#, "");
        assert_eq!(old.split("\",\"Checksum").next(), RECORDED_TWO.split("\",\"Checksum").next());
        assert_eq!(parse_dra_state(&written).expect("a state"), two);
        let mut table = ClaimTable::default();
        let id = ClaimId { namespace: "n".to_owned(), name: "c".to_owned(), uid: "u".to_owned() };
        let claim = AllocatedClaim { id, drivers: BTreeSet::from(["d.org".to_owned()]) };
        table.begin_prepare(&PodUid::new("p"), &[claim]).expect("no older claim");
        let text = write_dra_state(&table).expect("a text");
        assert!(text.contains(r#"\"DriverState\":{\"d.org\":{\"Devices\":null}}"#), "{text}");
    }

    #[test]
    fn damaged_state_is_an_error_and_not_an_empty_table() {
        let damaged = RECORDED.replace("worker-1", "worker-2");
        assert!(matches!(parse_dra_state(&damaged), Err(DraStateError::Corrupt)));
        assert!(matches!(parse_dra_state(""), Err(DraStateError::Json(_))));
        let advice = DraStateError::Corrupt.advice("/var/lib/kubelet/dra_manager_state");
        assert!(advice.starts_with("create ResourceClaim cache: "), "{advice}");
    }
}
