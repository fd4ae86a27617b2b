//! Implements the `Plugins` port with gRPC over Unix sockets.
//!
//! Owns the registration socket of device plugins, calls to the registration sockets of other plugins, the connections to device
//! plugins, CSI drivers and drivers of dynamic resources, the deadline of every call, and the conversion between `model` types and protobuf messages.
//!
//! Architecture invariants:
//! - protobuf types stay inside: the public API has only `model` and `ports` types;
//! - nothing is retried and nothing is decided here: the registrar accepts or rejects a registration;
//! - any message of a plugin is bounded, and becomes an error or a plain value, never a panic.
#![forbid(unsafe_code)]

mod call;
mod convert;
mod csi;
mod csi_convert;
mod device;
mod dra;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grpc_unary_server;
mod plugin_registration;
mod registration;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use grpc_api::device_plugin as wire;
use model::devices::AllocateResponse;
use model::dra::DraVersion;
use ports::plugins::{
    CsiDriver, DevicePlugin, DraDriver, PluginRegistration, PluginResult, Plugins, Registrar,
};
use prost::Message;

use crate::device::Client;
use crate::plugin_registration::RegistrationSocket;

/// The plugins of this machine. Without state: [`Plugins::connect`] returns the owner of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnixPlugins;

#[async_trait]
impl Plugins for UnixPlugins {
    fn serve_registration(
        &self,
        dir: &Path,
        registrar: Arc<dyn Registrar>,
    ) -> PluginResult<BoxFuture<'static, ()>> {
        let listener = registration::listen(dir)?;
        Ok(registration::serve(listener, registrar).boxed())
    }

    fn registration(&self, socket: &Path) -> Arc<dyn PluginRegistration> {
        Arc::new(RegistrationSocket::new(socket))
    }

    async fn connect(&self, socket: &Path) -> PluginResult<Arc<dyn DevicePlugin>> {
        Ok(Arc::new(Client::connect(socket).await?))
    }

    fn csi_driver(&self, socket: &Path) -> Arc<dyn CsiDriver> {
        Arc::new(csi::Client::new(socket))
    }

    fn dra_driver(&self, socket: &Path, version: DraVersion) -> Arc<dyn DraDriver> {
        Arc::new(dra::Client::new(socket, version))
    }

    fn pack(&self, response: &AllocateResponse) -> Vec<u8> {
        convert::packed(response).encode_to_vec()
    }

    fn unpack(&self, bytes: &[u8]) -> Option<AllocateResponse> {
        wire::ContainerAllocateResponse::decode(bytes).ok().map(convert::allocate_response)
    }
}
