//! The client of a device plugin.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use grpc_api::device_plugin as wire;
use grpc_api::device_plugin::device_plugin_client::DevicePluginClient;
use model::devices::{AllocateResponse, PluginDevice, PluginOptions};
use ports::plugins::{DeviceLists, DevicePlugin, PluginError, PluginResult};
use tonic::transport::Channel;

use crate::call::{self, answer};
use crate::convert;

const OPTIONS_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of calls that a container waits for.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    calls: DevicePluginClient<Channel>,
}

impl Client {
    pub(crate) async fn connect(socket: &Path) -> PluginResult<Self> {
        let channel = call::connect(socket).await?;
        let calls = DevicePluginClient::new(channel).max_decoding_message_size(call::MAX_RECEIVE_BYTES);
        Ok(Self { calls })
    }
}

#[async_trait]
impl DevicePlugin for Client {
    async fn options(&self) -> PluginResult<PluginOptions> {
        let mut calls = self.calls.clone();
        let call = calls.get_device_plugin_options(wire::Empty {});
        answer("GetDevicePluginOptions", OPTIONS_TIMEOUT, call).await.map(convert::options)
    }

    async fn devices(&self) -> PluginResult<DeviceLists> {
        let mut calls = self.calls.clone();
        // No deadline: a plugin may be slow to report its first device. The connection breaks if the plugin exits.
        let lists = calls.list_and_watch(wire::Empty {}).await.map_err(|status| call::failed(&status))?;
        let next = |mut lists: tonic::Streaming<wire::ListAndWatchResponse>| async move {
            let list = match lists.message().await {
                Ok(list) => Ok(list?.devices.into_iter().map(convert::device).collect::<Vec<PluginDevice>>()),
                Err(status) => Err(call::failed(&status)),
            };
            Some((list, lists))
        };
        Ok(stream::unfold(lists.into_inner(), next).boxed())
    }

    async fn preferred(
        &self,
        available: &[String],
        needed: &[String],
        wanted: usize,
    ) -> PluginResult<Vec<String>> {
        let mut calls = self.calls.clone();
        let request = wire::ContainerPreferredAllocationRequest {
            available_device_ids: available.to_vec(),
            must_include_device_ids: needed.to_vec(),
            allocation_size: i32::try_from(wanted).unwrap_or(i32::MAX),
        };
        let request = wire::PreferredAllocationRequest { container_requests: vec![request] };
        let call = calls.get_preferred_allocation(request);
        let response = answer("GetPreferredAllocation", ALLOCATE_TIMEOUT, call).await?;
        Ok(response
            .container_responses
            .into_iter()
            .next()
            .map(|response| response.device_ids)
            .unwrap_or_default())
    }

    async fn allocate(&self, devices: &[String]) -> PluginResult<AllocateResponse> {
        let mut calls = self.calls.clone();
        let request = wire::ContainerAllocateRequest { device_ids: devices.to_vec() };
        let call = calls.allocate(wire::AllocateRequest { container_requests: vec![request] });
        let response = answer("Allocate", ALLOCATE_TIMEOUT, call).await?;
        let none = || PluginError::Malformed("no containers return in allocation response".to_owned());
        response.container_responses.into_iter().next().map(convert::allocate_response).ok_or_else(none)
    }

    async fn pre_start(&self, devices: &[String]) -> PluginResult<()> {
        let mut calls = self.calls.clone();
        let call = calls.pre_start_container(wire::PreStartContainerRequest { device_ids: devices.to_vec() });
        answer("PreStartContainer", ALLOCATE_TIMEOUT, call).await.map(|_| ())
    }
}
