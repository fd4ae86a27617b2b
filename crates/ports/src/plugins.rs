//! Plugins of this node: programs that manage devices and communicate with the kubelet over unix sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use model::csi::{
    ExpandRequest, NodeCapabilities, NodeInfo, PublishRequest, StageRequest, StatsRequest, VolumeStats,
};
use model::devices::{AllocateResponse, PluginDevice, PluginOptions};
use model::dra::{ClaimAnswers, ClaimDevice, ClaimId, DeviceReport, DraVersion};

/// Why a call of a plugin, or listening for plugins, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// The plugin answered with an error, or closed the connection.
    #[error("rpc error: code = {code} desc = {message}")]
    Failed { code: String, message: String },
    #[error("{call}: no answer within {after:?}")]
    TimedOut { call: &'static str, after: Duration },
    #[error(
        "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix {}: connect: \
         {message}\"",
        socket.display()
    )]
    Unreachable { socket: PathBuf, message: String },
    /// The plugin violated the protocol.
    #[error("{0}")]
    Malformed(String),
    #[error("listen on {}: {message}", socket.display())]
    Listen { socket: PathBuf, message: String },
}

impl PluginError {
    /// The plugin has certainly not done, and will not do, what it was asked for. Otherwise the call may still happen.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Failed { code, .. } => !matches!(
                &**code,
                "Canceled" | "DeadlineExceeded" | "Unavailable" | "ResourceExhausted" | "Aborted"
            ),
            Self::Unreachable { .. } | Self::TimedOut { .. } => false,
            Self::Malformed(_) | Self::Listen { .. } => true,
        }
    }
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

/// What a plugin in the registration directory says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginInfo {
    /// `CSIPlugin`, `DevicePlugin` or `DRAPlugin`.
    pub kind: String,
    /// The name of the driver, or the resource of the device plugin.
    pub name: String,
    /// The socket of the plugin's own calls; that of the registration if empty.
    pub endpoint: String,
    pub supported_versions: Vec<String>,
}

/// The registration socket of one plugin. Calls have deadlines, and each has a connection of its own.
#[async_trait]
pub trait PluginRegistration: Send + Sync + std::fmt::Debug {
    async fn info(&self) -> PluginResult<PluginInfo>;
    /// Reports to the plugin whether the kubelet uses it, and if not, why.
    async fn notify(&self, outcome: Result<(), String>) -> PluginResult<()>;
}

/// Deadline of each call of a CSI driver. Most drivers answer at once; some attach a device or check a filesystem first.
pub const CSI_TIMEOUT: Duration = Duration::from_secs(120);

/// The node's part of one CSI driver. Calls have deadlines, and each has a connection of its own, because a driver that starts again
/// replaces its socket. A call whose result is unknown may still happen: [`PluginError::is_final`].
#[async_trait]
pub trait CsiDriver: Send + Sync + std::fmt::Debug {
    async fn node_info(&self) -> PluginResult<NodeInfo>;
    async fn capabilities(&self) -> PluginResult<NodeCapabilities>;
    async fn stage(&self, request: &StageRequest) -> PluginResult<()>;
    async fn unstage(&self, volume_id: &str, staging_target_path: &Path) -> PluginResult<()>;
    async fn publish(&self, request: &PublishRequest) -> PluginResult<()>;
    async fn unpublish(&self, volume_id: &str, target_path: &Path) -> PluginResult<()>;
    /// The new capacity in bytes; 0 if the driver does not say.
    async fn expand(&self, request: &ExpandRequest) -> PluginResult<i64>;
    async fn stats(&self, request: &StatsRequest) -> PluginResult<VolumeStats>;
}

/// Deadline of each call of a driver of dynamic resources.
pub const DRA_TIMEOUT: Duration = Duration::from_secs(45);

/// The health of all devices of a driver, each time it reports it.
pub type HealthReports = BoxStream<'static, PluginResult<Vec<DeviceReport>>>;

/// One instance of a driver of dynamic resources. Calls have deadlines, and each has a connection of its own, because a driver that
/// starts again replaces its socket. A call whose result is unknown may still happen.
#[async_trait]
pub trait DraDriver: Send + Sync + std::fmt::Debug {
    async fn prepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<Vec<ClaimDevice>>>;
    async fn unprepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<()>>;
    /// Opens a connection without calls. The returned future resolves when it has ended.
    async fn connection(&self) -> PluginResult<BoxFuture<'static, ()>>;
    /// Ends when the driver stops, or does not report the health of its devices.
    async fn health(&self) -> PluginResult<HealthReports>;
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
    /// A registration socket. Nothing is connected until the first call.
    fn registration(&self, socket: &Path) -> Arc<dyn PluginRegistration>;
    /// Connects to a device plugin. Fails if no process listens.
    async fn connect(&self, socket: &Path) -> PluginResult<Arc<dyn DevicePlugin>>;
    /// The CSI driver that listens on that socket. Opens no connection yet.
    fn csi_driver(&self, socket: &Path) -> Arc<dyn CsiDriver>;
    /// The driver of dynamic resources that listens on that socket. Opens no connection yet.
    fn dra_driver(&self, socket: &Path, version: DraVersion) -> Arc<dyn DraDriver>;
    /// An allocate response in its wire format, for the checkpoint.
    fn pack(&self, response: &AllocateResponse) -> Vec<u8>;
    /// `None` if the bytes are not an allocate response.
    fn unpack(&self, bytes: &[u8]) -> Option<AllocateResponse>;
}
