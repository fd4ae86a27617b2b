//! Device plugins in memory, for the kubelet's side of the protocol: registration, device lists, allocation or its failure, and
//! the end of a plugin. The wire protocol is tested with a real one ([`crate::DevicePlugin`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use model::devices::{AllocateResponse, PluginDevice, PluginOptions};
use parking_lot::Mutex;
use ports::plugins::{
    DeviceLists, DevicePlugin, DeviceRegistration, PluginError, PluginResult, Plugins, Registrar,
};
use tokio::sync::watch;

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
}

#[derive(Debug)]
struct FakePlugin {
    /// `None` once it has stopped.
    devices: watch::Sender<Option<Vec<PluginDevice>>>,
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
        let list = devices.iter().map(|id| PluginDevice {
            id: (*id).to_owned(),
            is_healthy: true,
            numa_nodes: Vec::new(),
        });
        let plugin = FakePlugin {
            devices: watch::Sender::new(Some(list.collect())),
            refusal: Mutex::default(),
            handed_out: Mutex::default(),
        };
        let registrar = {
            let mut state = self.state.lock();
            state.plugins.insert(socket_of(resource), Arc::new(plugin));
            state.registrar.clone().ok_or_else(|| "connection refused".to_owned())?
        };
        let (version, endpoint) = ("v1beta1".to_owned(), socket_of(resource));
        registrar.register(DeviceRegistration { version, endpoint, resource: resource.to_owned() }).await
    }

    /// Stops the plugin.
    pub fn stop_plugin(&self, resource: &str) {
        if let Some(plugin) = self.state.lock().plugins.remove(&socket_of(resource)) {
            plugin.devices.send_replace(None);
        }
    }

    /// From now on the plugin fails allocations with this error, or succeeds again.
    pub fn set_allocation_error(&self, resource: &str, why: Option<&str>) {
        if let Some(plugin) = self.state.lock().plugins.get(&socket_of(resource)) {
            *plugin.refusal.lock() = why.map(str::to_owned);
        }
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

    async fn connect(&self, socket: &Path) -> PluginResult<Arc<dyn DevicePlugin>> {
        let name = socket.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let plugin = self.state.lock().plugins.get(&name).cloned();
        let unreachable = || PluginError::Unreachable {
            socket: socket.to_path_buf(),
            message: "connection refused".to_owned(),
        };
        plugin.map(|plugin| plugin as Arc<dyn DevicePlugin>).ok_or_else(unreachable)
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
        Ok(PluginOptions::default())
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
        Ok(available.iter().take(wanted).cloned().collect())
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
