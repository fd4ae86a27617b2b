//! A machine without plugins: nobody ever registers.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use model::devices::DeviceGrant;
use ports::plugins::{DevicePlugin, PluginError, PluginResult, Plugins, Registrar};

/// The door behind which there is nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPlugins;

#[async_trait]
impl Plugins for NoPlugins {
    fn serve_registration(
        &self,
        _dir: &Path,
        _registrar: Arc<dyn Registrar>,
    ) -> PluginResult<BoxFuture<'static, ()>> {
        Ok(std::future::pending().boxed())
    }

    async fn connect(&self, socket: &Path) -> PluginResult<Arc<dyn DevicePlugin>> {
        let message = "there are no plugins".to_owned();
        Err(PluginError::Unreachable { socket: socket.to_path_buf(), message })
    }

    fn pack(&self, _grant: &DeviceGrant) -> Vec<u8> {
        Vec::new()
    }

    fn unpack(&self, _bytes: &[u8]) -> Option<DeviceGrant> {
        None
    }
}
