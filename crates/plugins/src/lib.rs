//! The Plugins port over gRPC on unix sockets.
//!
//! Owns: the socket at which device plugins register, the connections to plugins, the deadline of every call, and the
//! translation between `model` types and the wire.
//!
//! Architecture invariants:
//! - protobuf types stay inside: what leaves this crate is `model` and `ports`;
//! - nothing is retried and nothing is decided here: who may register is for the registrar to say;
//! - whatever a plugin sends, however broken, is an error or a plain value, never a panic, and has a bound.
#![forbid(unsafe_code)]

mod call;
mod convert;
mod device;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod one_call;
mod registration;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use grpc_api::device_plugin as wire;
use model::devices::AllocateResponse;
use ports::plugins::{DevicePlugin, PluginResult, Plugins, Registrar};
use prost::Message;

use crate::device::Client;

/// Plugins of this machine. Holds nothing: connections belong to what [`Plugins::connect`] gives.
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

    async fn connect(&self, socket: &Path) -> PluginResult<Arc<dyn DevicePlugin>> {
        Ok(Arc::new(Client::connect(socket).await?))
    }

    fn pack(&self, response: &AllocateResponse) -> Vec<u8> {
        convert::packed(response).encode_to_vec()
    }

    fn unpack(&self, bytes: &[u8]) -> Option<AllocateResponse> {
        wire::ContainerAllocateResponse::decode(bytes).ok().map(convert::allocate_response)
    }
}
