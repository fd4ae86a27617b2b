//! The handler of drivers of dynamic resources in the registration directory. A driver may have several instances, for rolling updates.

use std::path::Path;

use async_trait::async_trait;
use base_agent::plugin_handler::{PluginHandler, RegisteredPlugin};
use resources_core::claims::driver::choose_version;

use crate::claims::Claims;

pub use resources_core::claims::driver::KIND;

#[async_trait]
impl PluginHandler for Claims {
    fn validate(&self, plugin: &RegisteredPlugin) -> Result<(), String> {
        choose_version(plugin).map(drop).map_err(|error| error.to_string())
    }

    async fn register(&self, plugin: &RegisteredPlugin) -> Result<(), String> {
        let version = choose_version(plugin).map_err(|error| error.to_string())?;
        let instance = self.drivers().add(&plugin.name, &plugin.endpoint, version)?;
        self.watch_health(&plugin.name, instance);
        Ok(())
    }

    async fn deregister(&self, name: &str, endpoint: &Path) {
        self.drivers().remove(name, endpoint);
    }
}
