//! The devices that plugins have reported: which plugin may register, and what remains of a disconnected one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base_core::names::is_qualified_name;
use model::MonoTime;
use model::devices::{DeviceHealth, PluginDevice};
use model::path_component_problem;

use crate::quantities::DeviceAmounts;
use crate::quantities::is_extended_resource;

/// The supported version of the device plugin API.
const VERSION: &str = "v1beta1";
/// How long a resource is kept after its plugin disconnected.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// The prefix of quota names.
const REQUESTS: &str = "requests.";

/// Why a plugin is not registered; the text is returned to the plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    #[error("requested API version {0:?} is not supported by kubelet. Supported version is [\"{VERSION}\"]")]
    Version(String),
    #[error("the ResourceName {0:?} is invalid")]
    Resource(String),
    #[error("the endpoint {0:?} is invalid: it must be the name of a socket in the kubelet's directory")]
    Endpoint(String),
    #[error("manager version, {VERSION}, is not among plugin supported versions {0}")]
    Versions(String),
    #[error("invalid name of device plugin socket: the ResourceName {0:?} is invalid")]
    Name(String),
}

/// # Errors
/// The API version is not supported, or the resource name or the socket name is invalid.
pub fn check_registration(version: &str, resource: &str, endpoint: &str) -> Result<(), RegistrationError> {
    if version != VERSION {
        return Err(RegistrationError::Version(version.to_owned()));
    }
    if !is_resource_name(resource) {
        return Err(RegistrationError::Resource(resource.to_owned()));
    }
    if path_component_problem(endpoint).is_some() {
        return Err(RegistrationError::Endpoint(endpoint.to_owned()));
    }
    Ok(())
}

/// Whether a device plugin in the registration directory may register.
///
/// # Errors
/// It does not support the version of the API, or the resource name is invalid.
pub fn check_plugin(resource: &str, versions: &[String]) -> Result<(), RegistrationError> {
    if !versions.iter().any(|version| version == VERSION) {
        return Err(RegistrationError::Versions(format!("[{}]", versions.join(" "))));
    }
    if !is_resource_name(resource) {
        return Err(RegistrationError::Name(resource.to_owned()));
    }
    Ok(())
}

/// The name of an extended resource that can have a quota.
fn is_resource_name(name: &str) -> bool {
    is_extended_resource(name)
        && !name.starts_with(REQUESTS)
        && is_qualified_name(&format!("{REQUESTS}{name}"))
}

/// One connection to a plugin; reports of an older one for the same resource are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection(u64);

/// The resources of plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    connections: u64,
    resources: BTreeMap<String, Resource>,
    /// Resources whose plugins have been disconnected for too long.
    dropped: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Resource {
    presence: Presence,
    devices: BTreeMap<String, Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Here(Connection),
    Gone { since: MonoTime },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    health: DeviceHealth,
    numa_nodes: Vec<i64>,
}

impl Known {
    fn of(device: PluginDevice) -> (String, Self) {
        let health = if device.is_healthy { DeviceHealth::Healthy } else { DeviceHealth::Unhealthy };
        (device.id, Self { health, numa_nodes: device.numa_nodes })
    }

    fn is_healthy(&self) -> bool {
        self.health == DeviceHealth::Healthy
    }
}

impl Registry {
    /// Resources that an earlier kubelet knew: their plugins have yet to register again.
    #[must_use]
    pub fn remembering(resources: impl IntoIterator<Item = String>, now: MonoTime) -> Self {
        let gone =
            |name| (name, Resource { presence: Presence::Gone { since: now }, devices: BTreeMap::new() });
        Self { resources: resources.into_iter().map(gone).collect(), ..Self::default() }
    }

    /// A plugin has registered; it replaces the one before it.
    pub fn connected(&mut self, resource: &str) -> Connection {
        self.connections += 1;
        let connection = Connection(self.connections);
        self.dropped.remove(resource);
        let known = self.resources.remove(resource).map(|resource| resource.devices);
        let presence = Presence::Here(connection);
        self.resources.insert(resource.to_owned(), Resource { presence, devices: known.unwrap_or_default() });
        connection
    }

    /// Replaces the plugin's devices by this list. Returns whether that is a change.
    pub fn listed(&mut self, resource: &str, by: Connection, devices: Vec<PluginDevice>) -> bool {
        let Some(resource) = self.of(resource, by) else { return false };
        let devices = devices.into_iter().map(Known::of).collect();
        let is_changed = resource.devices != devices;
        resource.devices = devices;
        is_changed
    }

    /// The plugin has disconnected: the health of its devices is unknown, and they are not allocated. Returns whether it was
    /// the current one.
    pub fn vanished(&mut self, resource: &str, by: Connection, now: MonoTime) -> bool {
        let Some(resource) = self.of(resource, by) else { return false };
        resource.presence = Presence::Gone { since: now };
        for device in resource.devices.values_mut() {
            device.health = DeviceHealth::Unknown;
        }
        true
    }

    fn of(&mut self, resource: &str, by: Connection) -> Option<&mut Resource> {
        self.resources.get_mut(resource).filter(|resource| resource.presence == Presence::Here(by))
    }

    /// Drops the devices of plugins that have been disconnected for too long. Returns whether there were any.
    pub fn drop_expired(&mut self, now: MonoTime) -> bool {
        let is_over = |resource: &Resource| resource.ends_at().is_some_and(|at| at <= now);
        let over = self.resources.iter().filter(|(_, resource)| is_over(resource));
        let over: Vec<String> = over.map(|(name, _)| name.clone()).collect();
        for name in &over {
            self.resources.remove(name);
        }
        self.dropped.extend(over.iter().cloned());
        !over.is_empty()
    }

    /// When the next resource is dropped if its plugin does not register again.
    #[must_use]
    pub fn wake_at(&self) -> Option<MonoTime> {
        self.resources.values().filter_map(Resource::ends_at).min()
    }

    /// The amounts for the Node; a dropped resource has 0.
    #[must_use]
    pub fn amounts(&self) -> BTreeMap<String, DeviceAmounts> {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let amounts = |resource: &Resource| DeviceAmounts {
            capacity: count(resource.devices.len()),
            allocatable: count(resource.devices.values().filter(|device| device.is_healthy()).count()),
        };
        let known = self.resources.iter().map(|(name, resource)| (name.clone(), amounts(resource)));
        self.dropped.iter().map(|name| (name.clone(), DeviceAmounts::default())).chain(known).collect()
    }

    /// A plugin serves that resource, or did until recently.
    #[must_use]
    pub fn knows(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.keys().map(String::as_str)
    }

    /// All devices, healthy or not.
    pub fn devices(&self, resource: &str) -> impl Iterator<Item = &str> {
        let devices = self.resources.get(resource).into_iter().flat_map(|resource| &resource.devices);
        devices.map(|(id, _)| id.as_str())
    }

    /// Healthy devices, allocated or not.
    pub fn healthy(&self, resource: &str) -> impl Iterator<Item = &str> {
        let devices = self.resources.get(resource).into_iter().flat_map(|resource| &resource.devices);
        devices.filter(|(_, device)| device.is_healthy()).map(|(id, _)| id.as_str())
    }

    /// As the plugin reported it; unknown while no plugin is connected that reports it.
    #[must_use]
    pub fn health(&self, resource: &str, device: &str) -> DeviceHealth {
        let device = self.resources.get(resource).and_then(|resource| resource.devices.get(device));
        device.map_or(DeviceHealth::Unknown, |device| device.health)
    }

    /// The NUMA nodes of a device.
    #[must_use]
    pub fn numa_nodes(&self, resource: &str, device: &str) -> &[i64] {
        let device = self.resources.get(resource).and_then(|resource| resource.devices.get(device));
        device.map(|device| device.numa_nodes.as_slice()).unwrap_or_default()
    }
}

impl Resource {
    fn ends_at(&self) -> Option<MonoTime> {
        match self.presence {
            Presence::Here(_) => None,
            Presence::Gone { since } => Some(since + KEPT_FOR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "example.com/gpu";

    /// `a b!`: two devices, the second of which is unhealthy.
    fn devices(line: &str) -> Vec<PluginDevice> {
        let device = |word: &str| PluginDevice {
            id: word.trim_end_matches('!').to_owned(),
            is_healthy: !word.ends_with('!'),
            numa_nodes: Vec::new(),
        };
        line.split_whitespace().map(device).collect()
    }

    fn at(seconds: u64) -> MonoTime {
        MonoTime::from_start(Duration::from_secs(seconds))
    }

    #[track_caller]
    fn check(registry: &Registry, expected: &str) {
        let amounts = registry.amounts().into_iter();
        let shown = amounts.map(|(name, a)| format!("{name} {}/{}", a.allocatable, a.capacity));
        assert_eq!(shown.collect::<Vec<_>>().join(", "), expected);
    }

    #[test]
    fn plugin_of_the_registration_directory_needs_the_version_and_a_resource_name() {
        let check = |resource: &str, versions: &[&str]| {
            let versions: Vec<String> = versions.iter().map(|version| (*version).to_owned()).collect();
            check_plugin(resource, &versions).map_err(|error| error.to_string())
        };
        assert_eq!(check(GPU, &["v1beta1"]), Ok(()));
        assert_eq!(check(GPU, &["v1beta2", "v1beta1"]), Ok(()));
        let old = "manager version, v1beta1, is not among plugin supported versions [v1alpha1 v1]";
        assert_eq!(check(GPU, &["v1alpha1", "v1"]), Err(old.to_owned()));
        assert!(check(GPU, &[]).is_err());
        let name = "invalid name of device plugin socket: the ResourceName \"gpu\" is invalid";
        assert_eq!(check("gpu", &["v1beta1"]), Err(name.to_owned()));
    }

    #[test]
    fn invalid_registration_is_rejected_with_a_reason() {
        let register = |version: &str, resource: &str, endpoint: &str| {
            check_registration(version, resource, endpoint).map_err(|error| error.to_string())
        };
        assert_eq!(register("v1beta1", GPU, "gpu.sock"), Ok(()));
        let old = "requested API version \"v1alpha1\" is not supported by kubelet. Supported version is [\"v1beta1\"]";
        assert_eq!(register("v1alpha1", GPU, "gpu.sock"), Err(old.to_owned()));
        for name in [
            "gpu",
            "",
            "kubernetes.io/gpu",
            "x.kubernetes.io/gpu",
            "requests.example.com/gpu",
            "example.com/",
            "exa mple/gpu",
        ] {
            assert_eq!(
                register("v1beta1", name, "gpu.sock"),
                Err(format!("the ResourceName {name:?} is invalid"))
            );
        }
        for endpoint in ["", "..", "a/b.sock", "/run/other.sock", "a\0.sock"] {
            let why = register("v1beta1", GPU, endpoint).unwrap_err();
            assert!(why.starts_with(&format!("the endpoint {endpoint:?} is invalid")), "{why}");
        }
    }

    #[test]
    fn capacity_counts_all_devices_and_allocatable_the_healthy_ones() {
        let mut registry = Registry::default();
        let plugin = registry.connected(GPU);
        check(&registry, "example.com/gpu 0/0");
        assert!(registry.listed(GPU, plugin, devices("a b c!")));
        check(&registry, "example.com/gpu 2/3");
        assert!(!registry.listed(GPU, plugin, devices("c! b a")), "no change");
        assert!(registry.listed(GPU, plugin, devices("a b! c!")));
        check(&registry, "example.com/gpu 1/3");
        assert_eq!(registry.healthy(GPU).collect::<Vec<_>>(), ["a"]);
        assert!(registry.listed(GPU, plugin, devices("a")));
        check(&registry, "example.com/gpu 1/1");
    }

    #[test]
    fn resource_of_a_disconnected_plugin_drops_to_zero_after_five_minutes() {
        let mut registry = Registry::default();
        let plugin = registry.connected(GPU);
        registry.listed(GPU, plugin, devices("a b"));
        assert!(registry.vanished(GPU, plugin, at(100)));
        check(&registry, "example.com/gpu 0/2");
        assert_eq!(registry.wake_at(), Some(at(400)));
        assert!(!registry.drop_expired(at(399)));
        assert!(registry.drop_expired(at(400)) && !registry.knows(GPU));
        check(&registry, "example.com/gpu 0/0");
        assert_eq!(registry.wake_at(), None);
        let plugin = registry.connected(GPU);
        registry.listed(GPU, plugin, devices("a"));
        check(&registry, "example.com/gpu 1/1");
    }

    #[test]
    fn reports_of_a_replaced_plugin_connection_are_ignored() {
        let mut registry = Registry::default();
        let old = registry.connected(GPU);
        registry.listed(GPU, old, devices("a b"));
        let new = registry.connected(GPU);
        check(&registry, "example.com/gpu 2/2");
        assert!(!registry.vanished(GPU, old, at(1)) && !registry.listed(GPU, old, devices("a!")));
        registry.listed(GPU, new, devices("a"));
        check(&registry, "example.com/gpu 1/1");
        assert_eq!(registry.wake_at(), None);
    }

    #[test]
    fn restored_resource_is_empty_until_its_plugin_registers() {
        let mut registry = Registry::remembering([GPU.to_owned()], at(5));
        assert!(registry.knows(GPU));
        check(&registry, "example.com/gpu 0/0");
        assert_eq!(registry.wake_at(), Some(at(305)));
        let plugin = registry.connected(GPU);
        assert!(registry.listed(GPU, plugin, devices("a")) && registry.wake_at().is_none());
    }
}
