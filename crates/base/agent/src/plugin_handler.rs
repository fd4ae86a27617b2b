//! What is done with the plugins of one type once their sockets are found.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
pub use model::plugins::RegisteredPlugin;

/// The handlers by the type of plugin: `CSIPlugin`, `DevicePlugin` or `DRAPlugin`.
pub type PluginHandlers = BTreeMap<&'static str, Arc<dyn PluginHandler>>;

/// Registers plugins of one type. The registration never has two calls about one name under way. Calls of the plugin have
/// deadlines, so each of these methods ends.
///
/// A handler of CSI drivers validates with `volumes_core::csi_versions`.
#[async_trait]
pub trait PluginHandler: Send + Sync + Debug {
    /// # Errors
    /// The plugin cannot be registered; the text is complete, and is reported to the plugin.
    fn validate(&self, plugin: &RegisteredPlugin) -> Result<(), String>;

    /// Replaces the plugin that is registered under the name, if there is one.
    ///
    /// # Errors
    /// The plugin is not registered, and what was registered before still is. The text is complete, and is reported to the plugin.
    async fn register(&self, plugin: &RegisteredPlugin) -> Result<(), String>;

    /// The plugin is gone: `endpoint` is that of the plugin that was registered last under the name.
    async fn deregister(&self, name: &str, endpoint: &Path);
}
