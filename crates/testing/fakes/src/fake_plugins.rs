//! Device plugins in memory, for the kubelet's side of the protocol: registration, device lists, allocation or its failure, and
//! the end of a plugin; and the sockets of CSI drivers in memory ([`FakeCsiDriver`]). The wire protocol is tested with real ones
//! ([`crate::DevicePlugin`], [`crate::PluginRegistrar`]).

mod registration;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use model::devices::{AllocateResponse, PluginDevice, PluginOptions};
use model::dra::DraVersion;
use parking_lot::Mutex;
use ports::plugins::{
    CsiDriver, DeviceLists, DevicePlugin, DeviceRegistration, DraDriver, PluginError, PluginRegistration,
    PluginResult, Plugins, Registrar,
};
use tokio::sync::watch;

use registration::FakeRegistration;
pub use registration::RegistrationFault;

use crate::fake_csi::FakeCsiClient;
use crate::fake_dra::FakeDraClient;
use crate::{FakeCsiDriver, FakeDraDriver};

/// The environment variable that names the devices of a container.
const VARIABLE: &str = "DEVICES";

/// A `Plugins` port without plugins at first. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct FakePlugins {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    registrar: Option<Arc<dyn Registrar>>,
    /// By the names of their sockets. One that has stopped listens no more.
    plugins: BTreeMap<String, Arc<FakePlugin>>,
    /// The devices that plugins prefer which start later, by resource.
    preferences: BTreeMap<String, Vec<String>>,
    /// By their registration sockets.
    offers: BTreeMap<PathBuf, Arc<Mutex<registration::Offer>>>,
    /// By their sockets.
    csi_drivers: BTreeMap<PathBuf, FakeCsiDriver>,
    dra_drivers: BTreeMap<PathBuf, FakeDraDriver>,
}

#[derive(Debug)]
struct FakePlugin {
    /// `None` once it has stopped.
    devices: watch::Sender<Option<Vec<PluginDevice>>>,
    /// The devices that it prefers, if it has any preference.
    preferred: Option<Vec<String>>,
    /// The error of its allocations.
    refusal: Mutex<Option<String>>,
    /// Its allocations, call by call.
    handed_out: Mutex<Vec<Vec<String>>>,
}

fn socket_of(resource: &str) -> String {
    format!("{}.sock", resource.replace('/', "_"))
}

impl FakePlugins {
    /// A plugin starts and registers with these devices, all of them healthy.
    ///
    /// # Errors
    /// The error of the kubelet.
    pub async fn register(&self, resource: &str, devices: &[&str]) -> Result<(), String> {
        let endpoint = self.serve(resource, devices);
        let registrar = self.state.lock().registrar.clone();
        let registrar = registrar.ok_or_else(|| "connection refused".to_owned())?;
        let version = "v1beta1".to_owned();
        registrar.register(DeviceRegistration { version, endpoint, resource: resource.to_owned() }).await
    }

    /// The next plugin of the resource prefers these devices.
    pub fn prefer(&self, resource: &str, devices: &[&str]) {
        let devices = devices.iter().map(|id| (*id).to_owned()).collect();
        self.state.lock().preferences.insert(resource.to_owned(), devices);
    }

    /// A plugin starts with these devices, all of them healthy, and does not register; `id@1` is on NUMA node 1. Returns the name of its socket.
    #[must_use]
    pub fn serve(&self, resource: &str, devices: &[&str]) -> String {
        let list = devices.iter().map(|text| {
            let (id, node) = text.split_once('@').unwrap_or((text, ""));
            PluginDevice {
                id: id.to_owned(),
                is_healthy: true,
                numa_nodes: node.parse().into_iter().collect(),
            }
        });
        let preferred = self.state.lock().preferences.remove(resource);
        let plugin = FakePlugin {
            devices: watch::Sender::new(Some(list.collect())),
            preferred,
            refusal: Mutex::default(),
            handed_out: Mutex::default(),
        };
        self.state.lock().plugins.insert(socket_of(resource), Arc::new(plugin));
        socket_of(resource)
    }

    /// Stops the plugin.
    pub fn stop_plugin(&self, resource: &str) {
        if let Some(plugin) = self.state.lock().plugins.remove(&socket_of(resource)) {
            plugin.devices.send_replace(None);
        }
    }

    /// The plugin reports these devices from now on; those with a `!` at the end are unhealthy.
    pub fn set_devices(&self, resource: &str, devices: &[&str]) {
        let list = devices.iter().map(|id| PluginDevice {
            id: id.trim_end_matches('!').to_owned(),
            is_healthy: !id.ends_with('!'),
            numa_nodes: Vec::new(),
        });
        if let Some(plugin) = self.state.lock().plugins.get(&socket_of(resource)) {
            plugin.devices.send_replace(Some(list.collect()));
        }
    }

    /// From now on the plugin fails allocations with this error, or succeeds again.
    pub fn set_allocation_error(&self, resource: &str, why: Option<&str>) {
        if let Some(plugin) = self.state.lock().plugins.get(&socket_of(resource)) {
            *plugin.refusal.lock() = why.map(str::to_owned);
        }
    }

    /// The driver listens on that socket, instead of any other.
    pub fn add_csi_driver(&self, socket: impl AsRef<Path>, driver: &FakeCsiDriver) {
        self.state.lock().csi_drivers.insert(socket.as_ref().to_owned(), driver.clone());
    }

    pub(crate) fn csi_driver_at(&self, socket: &Path) -> Option<FakeCsiDriver> {
        self.state.lock().csi_drivers.get(socket).cloned()
    }

    /// The driver of dynamic resources listens on that socket, instead of any other.
    pub fn add_dra_driver(&self, socket: impl AsRef<Path>, driver: &FakeDraDriver) {
        self.state.lock().dra_drivers.insert(socket.as_ref().to_owned(), driver.clone());
    }

    pub(crate) fn dra_driver_at(&self, socket: &Path) -> Option<FakeDraDriver> {
        self.state.lock().dra_drivers.get(socket).cloned()
    }

    /// The allocations of the plugin, call by call.
    #[must_use]
    pub fn allocations(&self, resource: &str) -> Vec<Vec<String>> {
        let state = self.state.lock();
        state
            .plugins
            .get(&socket_of(resource))
            .map(|plugin| plugin.handed_out.lock().clone())
            .unwrap_or_default()
    }
}

#[async_trait]
impl Plugins for FakePlugins {
    fn serve_registration(
        &self,
        _dir: &Path,
        registrar: Arc<dyn Registrar>,
    ) -> PluginResult<BoxFuture<'static, ()>> {
        self.state.lock().registrar = Some(registrar);
        Ok(std::future::pending().boxed())
    }

    fn registration(&self, socket: &Path) -> Arc<dyn PluginRegistration> {
        Arc::new(FakeRegistration { socket: socket.to_path_buf(), offer: self.offer_at(socket) })
    }

    async fn connect(&self, socket: &Path) -> PluginResult<Arc<dyn DevicePlugin>> {
        let name = socket.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let plugin = self.state.lock().plugins.get(&name).cloned();
        let unreachable = || PluginError::Unreachable {
            socket: socket.to_path_buf(),
            message: "connection refused".to_owned(),
        };
        plugin.map(|plugin| plugin as Arc<dyn DevicePlugin>).ok_or_else(unreachable)
    }

    fn csi_driver(&self, socket: &Path) -> Arc<dyn CsiDriver> {
        Arc::new(FakeCsiClient { plugins: self.clone(), socket: socket.to_owned() })
    }

    fn dra_driver(&self, socket: &Path, _version: DraVersion) -> Arc<dyn DraDriver> {
        Arc::new(FakeDraClient { plugins: self.clone(), socket: socket.to_owned() })
    }

    fn pack(&self, response: &AllocateResponse) -> Vec<u8> {
        response.env.get(VARIABLE).cloned().unwrap_or_default().into_bytes()
    }

    fn unpack(&self, bytes: &[u8]) -> Option<AllocateResponse> {
        Some(response_of(String::from_utf8(bytes.to_vec()).ok()?))
    }
}

fn response_of(devices: String) -> AllocateResponse {
    AllocateResponse { env: [(VARIABLE.to_owned(), devices)].into(), ..AllocateResponse::default() }
}

#[async_trait]
impl DevicePlugin for FakePlugin {
    async fn options(&self) -> PluginResult<PluginOptions> {
        Ok(PluginOptions { has_preferences: self.preferred.is_some(), ..PluginOptions::default() })
    }

    async fn devices(&self) -> PluginResult<DeviceLists> {
        let changes = self.devices.subscribe();
        let lists = stream::unfold((changes, true), |(mut changes, is_first)| async move {
            if !is_first {
                changes.changed().await.ok()?;
            }
            let devices = changes.borrow_and_update().clone()?;
            Some((Ok(devices), (changes, false)))
        });
        Ok(lists.boxed())
    }

    async fn preferred(
        &self,
        available: &[String],
        _needed: &[String],
        wanted: usize,
    ) -> PluginResult<Vec<String>> {
        let preferred = self.preferred.iter().flatten().filter(|id| available.contains(id));
        Ok(preferred.take(wanted).cloned().collect())
    }

    async fn allocate(&self, devices: &[String]) -> PluginResult<AllocateResponse> {
        if let Some(message) = self.refusal.lock().clone() {
            return Err(PluginError::Failed { code: "Unknown".to_owned(), message });
        }
        self.handed_out.lock().push(devices.to_vec());
        Ok(response_of(devices.join(",")))
    }

    async fn pre_start(&self, _devices: &[String]) -> PluginResult<()> {
        Ok(())
    }
}
