//! `dra_health_state`: the health of devices in a file, so that a pod shows it after a restart of the kubelet, until its driver reports
//! again. The format is the Go kubelet's.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use model::devices::DeviceHealth;
use model::dra::DeviceKey;
use model::text::cut_owned;
use model::{MonoTime, Now};
use serde::{Deserialize, Serialize};

use super::health::{DEFAULT_TIMEOUT, HealthTable, Known, MAX_MESSAGE_BYTES, MAX_TIMEOUT};

/// The name of the file in the root directory.
pub const HEALTH_STATE_FILE: &str = "dra_health_state";

#[derive(Serialize, Deserialize)]
struct Driver {
    #[serde(rename = "Devices", default)]
    devices: Option<BTreeMap<String, Device>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Device {
    pool_name: String,
    device_name: String,
    health: String,
    last_updated: Timestamp,
    /// In nanoseconds; 0 for the default. Go kubelets before 1.36 do not write it, nor the message.
    #[serde(default)]
    health_check_timeout: i64,
    #[serde(default)]
    message: String,
}

/// The file for the table.
///
/// # Errors
/// Never in practice: every part of it is JSON.
pub fn write_health_state(table: &HealthTable) -> Result<String, serde_json::Error> {
    let device = |(key, known): (&DeviceKey, &Known)| {
        let device = Device {
            pool_name: key.pool.clone(),
            device_name: key.name.clone(),
            health: known.health.as_str().to_owned(),
            last_updated: known.updated,
            health_check_timeout: i64::try_from(known.timeout.as_nanos()).unwrap_or(i64::MAX),
            message: known.message.clone(),
        };
        (format!("{}/{}", key.pool, key.name), device)
    };
    let all = table.all().into_iter();
    let drivers = all.map(|(driver, devices)| {
        (driver, Driver { devices: Some(devices.into_iter().map(device).collect()) })
    });
    serde_json::to_string(&drivers.collect::<BTreeMap<_, _>>())
}

/// What an earlier kubelet, of either kind, has written, without what is too old by now.
///
/// # Errors
/// The file is damaged.
pub fn parse_health_state(text: &str, now: Now) -> Result<HealthTable, serde_json::Error> {
    // Null is what the Go kubelet writes for a map that was never filled.
    let drivers: Option<BTreeMap<String, Driver>> = serde_json::from_str(text)?;
    let mut table = HealthTable::default();
    for (name, driver) in drivers.into_iter().flatten() {
        for device in driver.devices.into_iter().flatten().map(|(_, device)| device) {
            let known = known(&device, now);
            if known.expires > now.mono {
                let key = DeviceKey { pool: device.pool_name, name: device.device_name };
                table.restore(&name, key, known);
            }
        }
    }
    Ok(table)
}

fn known(device: &Device, now: Now) -> Known {
    let timeout = u64::try_from(device.health_check_timeout).ok().filter(|nanos| *nanos > 0);
    let timeout = timeout.map_or(DEFAULT_TIMEOUT, Duration::from_nanos).min(MAX_TIMEOUT);
    let age = now.wall_since(device.last_updated);
    Known {
        health: match device.health.as_str() {
            "Healthy" => DeviceHealth::Healthy,
            "Unhealthy" => DeviceHealth::Unhealthy,
            _ => DeviceHealth::Unknown,
        },
        message: cut_owned(device.message.clone(), MAX_MESSAGE_BYTES),
        timeout,
        updated: device.last_updated,
        received: MonoTime::ZERO,
        expires: now.mono + timeout.saturating_sub(age),
    }
}

#[cfg(test)]
mod tests {
    use model::dra::{ClaimDevice, DeviceReport};

    use super::super::health::HealthStream;
    use super::*;

    /// As the structs of the Go kubelet and its JSON encoder give it. It was not recorded from a Go kubelet.
    const STATE: &str = r#"{"gpu.example.com":{"Devices":{"node-1/gpu-0":{"PoolName":"node-1","DeviceName":"gpu-0","Health":"Healthy","LastUpdated":"2026-03-01T12:00:00.123456789Z","HealthCheckTimeout":30000000000,"Message":""},"node-1/gpu-1":{"PoolName":"node-1","DeviceName":"gpu-1","Health":"Unhealthy","LastUpdated":"2026-03-01T12:00:00.123456789Z","HealthCheckTimeout":60000000000,"Message":"ECC errors"}}}}"#;

    fn at(seconds: i64) -> Now {
        let wall: Timestamp = "2026-03-01T12:00:00.123456789Z".parse().expect("a time");
        let mono = MonoTime::from_start(Duration::from_secs(1000)) + model::time::wait_of(seconds);
        Now { wall: wall + jiff::SignedDuration::from_secs(seconds), mono }
    }

    fn shown(table: &HealthTable, device: &str) -> String {
        let device =
            ClaimDevice { pool: "node-1".to_owned(), name: device.to_owned(), ..ClaimDevice::default() };
        let (health, message) = table.health("gpu.example.com", &device);
        format!("{} {message}", health.as_str()).trim_end().to_owned()
    }

    #[test]
    fn health_state_of_the_go_kubelets_format_is_read_and_written_byte_for_byte() {
        let table = parse_health_state(STATE, at(0)).expect("a state");
        assert_eq!(
            (shown(&table, "gpu-0"), shown(&table, "gpu-1")),
            ("Healthy".into(), "Unhealthy ECC errors".into())
        );
        assert_eq!(write_health_state(&table).expect("a text"), STATE);
        let reports = |name: &str, health, message: &str| DeviceReport {
            pool: "node-1".to_owned(),
            device: name.to_owned(),
            health,
            message: message.to_owned(),
            timeout: Some(Duration::from_secs(if name == "gpu-0" { 30 } else { 60 })),
        };
        let devices = vec![
            reports("gpu-1", DeviceHealth::Unhealthy, "ECC errors"),
            reports("gpu-0", DeviceHealth::Healthy, ""),
        ];
        let mut reported = HealthTable::default();
        reported.report("gpu.example.com", HealthStream(1), devices, at(0));
        assert_eq!(write_health_state(&reported).expect("a text"), STATE);
        assert_eq!(write_health_state(&HealthTable::default()).expect("a text"), "{}");
    }

    #[test]
    fn restored_health_is_unknown_once_its_timeout_has_passed() {
        let later = parse_health_state(STATE, at(40)).expect("a state");
        assert_eq!(
            (shown(&later, "gpu-0"), shown(&later, "gpu-1")),
            ("Unknown".into(), "Unhealthy ECC errors".into())
        );
        assert_eq!(later.next_expiry().map(|at| at.since_start().as_secs()), Some(1060));
        // A clock that was set back does not make it older.
        let early = parse_health_state(STATE, Now { wall: Timestamp::UNIX_EPOCH, ..at(0) }).expect("a state");
        assert_eq!(shown(&early, "gpu-0"), "Healthy");
    }

    #[test]
    fn damaged_health_state_is_an_error_and_older_ones_are_read() {
        for damaged in ["", "{", "[]", r#"{"d":{"Devices":{"a/b":{"PoolName":"a"}}}}"#] {
            assert!(parse_health_state(damaged, at(0)).is_err(), "{damaged}");
        }
        for empty in ["null", "{}", r#"{"d":{"Devices":null}}"#] {
            assert_eq!(parse_health_state(empty, at(0)).expect("a state"), HealthTable::default());
        }
        let old = r#"{"gpu.example.com":{"Devices":{"node-1/gpu-0":{"PoolName":"node-1","DeviceName":"gpu-0","Health":"Unhealthy","LastUpdated":"2026-03-01T14:00:00+02:00"}}}}"#;
        assert_eq!(shown(&parse_health_state(old, at(0)).expect("a state"), "gpu-0"), "Unhealthy");
    }
}
