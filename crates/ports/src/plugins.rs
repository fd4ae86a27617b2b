//! Plugins of this node: programs that look after devices (later volumes, too) and speak with the kubelet over unix sockets.

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
    /// The plugin answered with an error, or broke off.
    #[error("rpc error: code = {code} desc = {message}")]
    Failed { code: String, message: String },
    #[error("{call}: no answer within {after:?}")]
    TimedOut { call: &'static str, after: Duration },
    #[error("connect to {}: {message}", socket.display())]
    Unreachable { socket: PathBuf, message: String },
    /// The plugin said what the protocol does not allow.
    #[error("{0}")]
    Malformed(String),
    #[error("listen on {}: {message}", socket.display())]
    Listen { socket: PathBuf, message: String },
}

pub type PluginResult<T> = Result<T, PluginError>;

/// What a device plugin says when it registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRegistration {
    /// Of the protocol that it speaks: `v1beta1`.
    pub version: String,
    /// The name of its socket, next to ours.
    pub endpoint: String,
    pub resource: String,
}

/// Somebody who takes registrations.
#[async_trait]
pub trait Registrar: Send + Sync + std::fmt::Debug {
    /// # Errors
    /// What the plugin is told: why it is not registered.
    async fn register(&self, registration: DeviceRegistration) -> Result<(), String>;
}

/// Every list of devices that a plugin sends, each of them complete.
pub type DeviceLists = BoxStream<'static, PluginResult<Vec<PluginDevice>>>;

/// One device plugin. Calls have deadlines.
#[async_trait]
pub trait DevicePlugin: Send + Sync + std::fmt::Debug {
    async fn options(&self) -> PluginResult<PluginOptions>;
    /// Ends when the plugin goes.
    async fn devices(&self) -> PluginResult<DeviceLists>;
    /// Which of the available devices the plugin would take, `wanted` of them with `needed` among them.
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
    /// Removes the sockets that are in the directory, which must be there, and listens at `kubelet.sock` in it. What comes
    /// back serves for as long as it is polled.
    fn serve_registration(
        &self,
        dir: &Path,
        registrar: Arc<dyn Registrar>,
    ) -> PluginResult<BoxFuture<'static, ()>>;
    /// Connects to a device plugin. It fails where nobody listens.
    async fn connect(&self, socket: &Path) -> PluginResult<Arc<dyn DevicePlugin>>;
    /// An allocate response as the bytes in which plugins send it, to keep it beyond this process.
    fn pack(&self, response: &AllocateResponse) -> Vec<u8>;
    /// `None`: the bytes are no allocate response.
    fn unpack(&self, bytes: &[u8]) -> Option<AllocateResponse>;
}
