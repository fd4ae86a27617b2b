//! Plugins of this node: programs that manage devices and communicate with the kubelet over unix sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use model::devices::{AllocateResponse, PluginDevice, PluginOptions};

/// Why a call of a plugin, or listening for plugins, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The plugin answered with an error, or closed the connection.
    #[error("rpc error: code = {code} desc = {message}")]
    Failed { code: String, message: String },
    #[error("{call}: no answer within {after:?}")]
    TimedOut { call: &'static str, after: Duration },
    #[error("connect to {}: {message}", socket.display())]
    Unreachable { socket: PathBuf, message: String },
    /// The plugin violated the protocol.
    #[error("{0}")]
    Malformed(String),
    #[error("listen on {}: {message}", socket.display())]
    Listen { socket: PathBuf, message: String },
}

pub type PluginResult<T> = Result<T, PluginError>;

/// The registration request of a device plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRegistration {
    /// The version of the protocol: `v1beta1`.
    pub version: String,
    /// The name of its socket, in the directory of `kubelet.sock`.
    pub endpoint: String,
    pub resource: String,
}

/// Accepts registrations.
#[async_trait]
pub trait Registrar: Send + Sync + std::fmt::Debug {
    /// # Errors
    /// The answer to the plugin: why it is not registered.
    async fn register(&self, registration: DeviceRegistration) -> Result<(), String>;
}

/// Every list of devices that a plugin sends, each of them complete.
pub type DeviceLists = BoxStream<'static, PluginResult<Vec<PluginDevice>>>;

/// One device plugin. Calls have deadlines.
#[async_trait]
pub trait DevicePlugin: Send + Sync + std::fmt::Debug {
    async fn options(&self) -> PluginResult<PluginOptions>;
    /// Ends when the plugin stops.
    async fn devices(&self) -> PluginResult<DeviceLists>;
    /// Which of the available devices the plugin prefers, `wanted` of them with `needed` among them.
    async fn preferred(
        &self,
        available: &[String],
        needed: &[String],
        wanted: usize,
    ) -> PluginResult<Vec<String>>;
    async fn allocate(&self, devices: &[String]) -> PluginResult<AllocateResponse>;
    async fn pre_start(&self, devices: &[String]) -> PluginResult<()>;
}

#[async_trait]
pub trait Plugins: Send + Sync + std::fmt::Debug {
    /// Removes the sockets in the directory, which must exist, and listens on `kubelet.sock` in it. The returned future serves
    /// as long as it is polled.
    fn serve_registration(
        &self,
        dir: &Path,
        registrar: Arc<dyn Registrar>,
    ) -> PluginResult<BoxFuture<'static, ()>>;
    /// Connects to a device plugin. Fails if no process listens.
    async fn connect(&self, socket: &Path) -> PluginResult<Arc<dyn DevicePlugin>>;
    /// An allocate response in its wire format, for the checkpoint.
    fn pack(&self, response: &AllocateResponse) -> Vec<u8>;
    /// `None` if the bytes are not an allocate response.
    fn unpack(&self, bytes: &[u8]) -> Option<AllocateResponse>;
}
