//! The handler of CSI drivers in the registration directory: a driver is asked what it is on this node, and from then on its volumes
//! are mounted.

use std::path::Path;

use api_agent::csi_allocatable::NodeInfoSource;
use async_trait::async_trait;
use base_agent::plugin_handler::{PluginHandler, RegisteredPlugin};
use model::csi::NodeInfo;
use model::path_component_problem;
use volumes_core::csi_versions::{check_csi_driver, compute_csi_version};

use super::{Csi, text};

/// The type of such plugins.
pub const KIND: &str = "CSIPlugin";

#[async_trait]
impl PluginHandler for Csi {
    fn validate(&self, plugin: &RegisteredPlugin) -> Result<(), String> {
        let RegisteredPlugin { name, endpoint, versions } = plugin;
        // The name is part of the paths of volumes.
        if let Some(problem) = path_component_problem(name) {
            return Err(text(&format!("driver name {name:?} cannot be used: {problem}")));
        }
        check_csi_driver(name, endpoint, versions, self.drivers.version(name).as_ref())
    }

    async fn register(&self, plugin: &RegisteredPlugin) -> Result<(), String> {
        let RegisteredPlugin { name, endpoint, versions } = plugin;
        let known = self.drivers.version(name);
        let version = compute_csi_version("RegisterPlugin", name, versions, known.as_ref())?;
        let driver = self.drivers.at(name, endpoint);
        let info = driver.calls.node_info().await.map_err(|error| error.to_string())?;
        self.drivers.register(name, endpoint, version, driver)?;
        if let Err(error) = self.install(name, &info).await {
            self.drivers.deregister(name, endpoint);
            return Err(error);
        }
        tracing::info!(driver = name, endpoint = %endpoint.display(), nodeID = info.node_id, "Registered CSI driver");
        Ok(())
    }

    async fn deregister(&self, name: &str, endpoint: &Path) {
        if self.drivers.deregister(name, endpoint) {
            self.uninstall(name).await;
            tracing::info!(driver = name, endpoint = %endpoint.display(), "CSI driver is not registered any more");
        }
    }
}

impl Csi {
    /// Writes to the API what the driver says about this node.
    async fn install(&self, name: &str, info: &NodeInfo) -> Result<(), String> {
        let Some(objects) = &self.objects else { return Ok(()) };
        let installed = objects.api.nodes.install(name, info).await;
        if installed.is_err() {
            self.uninstall(name).await;
        }
        installed
    }

    async fn uninstall(&self, name: &str) {
        let Some(objects) = &self.objects else { return };
        if let Err(err) = objects.api.nodes.uninstall(name).await {
            tracing::error!(driver = name, err, "Failed to remove CSI driver from the CSINode");
        }
    }

    /// The attacher found no place for a volume on this node: the driver is asked how many there are.
    pub(crate) async fn update_allocatable(&self, name: &str) {
        let Some(objects) = &self.objects else { return };
        let updated = match self.node_info(name).await {
            Ok(info) => objects.api.nodes.update_allocatable(name, info.max_volumes_per_node).await,
            Err(error) => Err(error),
        };
        if let Err(err) = updated {
            tracing::warn!(driver = name, err, "Failed to update the number of volumes in the CSINode");
        }
    }
}

#[async_trait]
impl NodeInfoSource for Csi {
    async fn node_info(&self, driver: &str) -> Result<NodeInfo, String> {
        let driver = self.drivers.get(driver)?;
        driver.calls.node_info().await.map_err(|error| error.to_string())
    }
}
