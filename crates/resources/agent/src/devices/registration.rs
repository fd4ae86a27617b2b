//! The handler of device plugins in the registration directory: the same as those that register at the kubelet's own socket.

use std::path::Path;

use async_trait::async_trait;
use base_agent::plugin_handler::{PluginHandler, RegisteredPlugin};
use resources_core::devices::registry::check_plugin;

use crate::devices::Devices;

pub const KIND: &str = "DevicePlugin";

#[derive(Debug)]
pub struct DevicePluginHandler {
    pub devices: Devices,
}

#[async_trait]
impl PluginHandler for DevicePluginHandler {
    fn validate(&self, plugin: &RegisteredPlugin) -> Result<(), String> {
        check_plugin(&plugin.name, &plugin.versions).map_err(|error| error.to_string())
    }

    async fn register(&self, plugin: &RegisteredPlugin) -> Result<(), String> {
        self.devices.connect(&plugin.name, &plugin.endpoint).await
    }

    async fn deregister(&self, name: &str, _endpoint: &Path) {
        self.devices.disconnect(name);
    }
}
