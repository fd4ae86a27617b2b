//! The health of devices of drivers, as the drivers report it (`DRAResourceHealth`), until it is too old; and what of it the status of a
//! container shows.
//!
//! Owns [`HealthTable`] with its limits. The file of it is in `health_file`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use model::containers::regular_containers;
use model::devices::DeviceHealth;
use model::dra::{ClaimDevice, DeviceKey, DeviceReport};
use model::k8s::{ContainerResourceClaim, Pod, PodStatus, ResourceHealth, ResourceStatus};
use model::text::cut_owned;
use model::{ContainerRef, MonoTime, Now};

use super::claim_entries;
use super::table::{ClaimTable, base};
use crate::devices::ContainerHealth;

/// How long a report counts if the driver does not say.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time for which a report counts.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// As the Go kubelet.
pub(super) const MAX_MESSAGE_BYTES: usize = 1024;
/// The longest names that the API accepts in a ResourceSlice. No claim has a device with a longer one.
const MAX_POOL_BYTES: usize = 253;
const MAX_DEVICE_BYTES: usize = 63;
/// Devices of one driver whose health is kept.
pub const MAX_DEVICES: usize = 4096;

/// The devices of each driver that show another health than before.
pub type HealthChanges = BTreeMap<String, BTreeSet<DeviceKey>>;

/// One stream of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HealthStream(pub u64);

impl HealthStream {
    /// The reports that an earlier kubelet received.
    pub const RESTORED: Self = Self(0);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) health: DeviceHealth,
    pub(super) message: String,
    pub(super) timeout: Duration,
    /// When the report arrived, for the file.
    pub(super) updated: Timestamp,
    /// The same on the clock that is never set; zero if an earlier kubelet received it.
    pub(super) received: MonoTime,
    /// Until when it counts.
    pub(super) expires: MonoTime,
}

impl Known {
    /// Whether a reader sees a difference.
    fn shows_as(&self, other: &Self) -> bool {
        (self.health, &self.message, self.timeout) == (other.health, &other.message, other.timeout)
    }
}

/// What is known of the devices of all drivers. A device that is not in it has the health Unknown. Each instance of a driver has a stream
/// of its own, and the newest report of a device counts, so that the end of an instance takes nothing from the one that replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthTable {
    drivers: BTreeMap<String, BTreeMap<HealthStream, BTreeMap<DeviceKey, Known>>>,
}

impl HealthTable {
    pub(super) fn restore(&mut self, driver: &str, key: DeviceKey, known: Known) {
        let streams = self.drivers.entry(driver.to_owned()).or_default();
        let devices = streams.entry(HealthStream::RESTORED).or_default();
        if devices.len() < MAX_DEVICES && is_possible(&key) {
            devices.insert(key, known);
        }
    }

    fn newest(&self, driver: &str, key: &DeviceKey) -> Option<&Known> {
        let streams = self.drivers.get(driver)?.values();
        streams.filter_map(|devices| devices.get(key)).max_by_key(|known| known.received)
    }

    /// Each device with its newest report, by driver.
    pub(super) fn all(&self) -> BTreeMap<&str, BTreeMap<&DeviceKey, &Known>> {
        let mut all = BTreeMap::<&str, BTreeMap<&DeviceKey, &Known>>::new();
        for (driver, streams) in &self.drivers {
            for (key, known) in streams.values().flatten() {
                let newest = all.entry(driver).or_default().entry(key).or_insert(known);
                if newest.received <= known.received {
                    *newest = known;
                }
            }
        }
        all
    }

    /// The health of a device and the driver's message about it.
    #[must_use]
    pub fn health(&self, driver: &str, device: &ClaimDevice) -> (DeviceHealth, &str) {
        let known = self.newest(driver, &device.key());
        known.map_or((DeviceHealth::Unknown, ""), |known| (known.health, known.message.as_str()))
    }

    /// Records the complete report of a driver. Devices that are not in it keep their health until it is too old. Returns the devices that
    /// show another health, and how many of the report were ignored: those with an impossible name, and more than [`MAX_DEVICES`].
    pub fn report(
        &mut self,
        driver: &str,
        stream: HealthStream,
        devices: Vec<DeviceReport>,
        now: Now,
    ) -> (BTreeSet<DeviceKey>, usize) {
        let (mut changed, mut ignored) = (BTreeSet::new(), 0);
        for report in devices {
            let (key, known) = known(report, now);
            let before = self.newest(driver, &key).cloned();
            let known_devices = self.devices_mut(driver, stream);
            if !is_possible(&key) || known_devices.len() >= MAX_DEVICES && !known_devices.contains_key(&key) {
                ignored += 1;
                continue;
            }
            if !before.is_some_and(|before| before.shows_as(&known)) {
                changed.insert(key.clone());
            }
            known_devices.insert(key, known);
        }
        (changed, ignored)
    }

    fn devices_mut(&mut self, driver: &str, stream: HealthStream) -> &mut BTreeMap<DeviceKey, Known> {
        self.drivers.entry(driver.to_owned()).or_default().entry(stream).or_default()
    }

    /// The stream has ended: what it reported, and what an earlier kubelet had from the driver, counts no more.
    pub fn end(&mut self, driver: &str, stream: HealthStream) -> BTreeSet<DeviceKey> {
        self.remove(driver, |of, _| of == stream || of == HealthStream::RESTORED)
    }

    /// Removes what is too old by now.
    pub fn expire(&mut self, now: MonoTime) -> HealthChanges {
        let drivers: Vec<String> = self.drivers.keys().cloned().collect();
        let expired = drivers.into_iter().map(|driver| {
            let changed = self.remove(&driver, |_, known| known.expires < now);
            (driver, changed)
        });
        expired.filter(|(_, changed)| !changed.is_empty()).collect()
    }

    /// Returns the devices that show another health afterwards.
    fn remove(
        &mut self,
        driver: &str,
        is_over: impl Fn(HealthStream, &Known) -> bool,
    ) -> BTreeSet<DeviceKey> {
        let Some(streams) = self.drivers.get(driver) else { return BTreeSet::new() };
        let is_over = &is_over;
        let over = streams.iter().flat_map(|(stream, devices)| {
            let of_stream = devices.iter().filter(move |(_, known)| is_over(*stream, known));
            of_stream.map(|(key, _)| key.clone())
        });
        let over: BTreeSet<DeviceKey> = over.collect();
        let before: Vec<_> = over.into_iter().map(|key| (self.newest(driver, &key).cloned(), key)).collect();
        if let Some(streams) = self.drivers.get_mut(driver) {
            for (stream, devices) in streams.iter_mut() {
                devices.retain(|_, known| !is_over(*stream, known));
            }
            streams.retain(|_, devices| !devices.is_empty());
            if streams.is_empty() {
                self.drivers.remove(driver);
            }
        }
        let is_changed = |(before, key): &(Option<Known>, DeviceKey)| match (before, self.newest(driver, key))
        {
            (Some(before), Some(after)) => !before.shows_as(after),
            (before, after) => before.is_some() || after.is_some(),
        };
        before.into_iter().filter(is_changed).map(|(_, key)| key).collect()
    }

    /// When the next device has to be expired.
    #[must_use]
    pub fn next_expiry(&self) -> Option<MonoTime> {
        let all = self.drivers.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        all.map(|known| known.expires + Duration::from_millis(1)).min()
    }
}

/// Whether the API accepts a device of this name in a ResourceSlice. Only a pool has slashes, so that both together are unique, too.
fn is_possible(key: &DeviceKey) -> bool {
    key.pool.len() <= MAX_POOL_BYTES && key.name.len() <= MAX_DEVICE_BYTES && !key.name.contains('/')
}

fn known(report: DeviceReport, now: Now) -> (DeviceKey, Known) {
    let timeout = report.timeout.unwrap_or(DEFAULT_TIMEOUT).min(MAX_TIMEOUT);
    let known = Known {
        health: report.health,
        message: cut_owned(report.message, MAX_MESSAGE_BYTES),
        timeout,
        updated: now.wall,
        received: now.mono,
        expires: now.mono + timeout,
    };
    (DeviceKey { pool: report.pool, name: report.device }, known)
}

/// `allocatedResourcesStatus` of the pod's regular containers for what they use by `resources.claims`, sorted by name and id. A claim that
/// has no name or is not prepared here is left out.
#[must_use]
pub fn compute_claim_health(
    claims: &ClaimTable,
    health: &HealthTable,
    pod: &Pod,
    status: Option<&PodStatus>,
    with_messages: bool,
) -> ContainerHealth {
    let names: BTreeMap<&str, String> =
        claim_entries(pod, status).flatten().map(|(entry, claim)| (entry, claim.name)).collect();
    if names.is_empty() {
        return ContainerHealth::new();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let of_reference = |wanted: &ContainerResourceClaim| {
        let request = wanted.request.as_deref().filter(|request| !request.is_empty());
        let devices = claims.devices(namespace, names.get(wanted.name.as_str())?, request.map(base))?;
        let name = request.map_or_else(
            || format!("claim:{}", wanted.name),
            |request| format!("claim:{}/{request}", wanted.name),
        );
        let mut shown = BTreeMap::new();
        for (driver, device) in devices {
            let one = shown_health(health, driver, device, with_messages);
            shown.entry(one.resource_id.clone()).or_insert(one);
        }
        (!shown.is_empty()).then(|| (name, shown.into_values().collect::<Vec<_>>()))
    };
    let of_container = |container: ContainerRef<'_>| {
        let wanted = container.resources().and_then(|resources| resources.claims.as_deref());
        let by_name: BTreeMap<_, _> = wanted.unwrap_or_default().iter().filter_map(of_reference).collect();
        let status = |(name, resources)| ResourceStatus { name, resources: Some(resources) };
        (container.name().to_owned(), by_name.into_iter().map(status).collect::<Vec<_>>())
    };
    regular_containers(pod).map(of_container).filter(|(_, statuses)| !statuses.is_empty()).collect()
}

fn shown_health(
    health: &HealthTable,
    driver: &str,
    device: &ClaimDevice,
    with_message: bool,
) -> ResourceHealth {
    let (state, message) = health.health(driver, device);
    let name = || format!("{driver}/{}/{}", device.pool, device.name);
    ResourceHealth {
        resource_id: device.cdi_devices.first().cloned().unwrap_or_else(name),
        health: Some(state.as_str().to_owned()),
        message: Some(message.to_owned()).filter(|message| with_message && !message.is_empty()),
    }
}

#[cfg(test)]
mod tests;
