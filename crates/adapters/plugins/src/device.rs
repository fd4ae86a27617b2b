//! The client of a device plugin.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use grpc_api::device_plugin as wire;
use grpc_api::device_plugin::device_plugin_client::DevicePluginClient;
use http::uri::PathAndQuery;
use model::devices::{AllocateResponse, PluginDevice, PluginOptions};
use ports::plugins::{DeviceLists, DevicePlugin, PluginError, PluginResult};
use prost::Message as _;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::call::{self, answer};
use crate::convert;

/// The part of a malformed device that is logged.
const MAX_SHOWN: usize = 80;
const OPTIONS_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of calls that a container waits for.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    calls: DevicePluginClient<Channel>,
    channel: Channel,
}

/// The answer of ListAndWatch with devices that are not decoded: one that is malformed costs only that device.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct DeviceList {
    #[prost(bytes = "vec", repeated, tag = "1")]
    devices: Vec<Vec<u8>>,
}

/// `None`: it is left out, because no container can get it.
fn device(from: &Vec<u8>) -> Option<PluginDevice> {
    let why = match wire::Device::decode(from.as_slice()) {
        Ok(device) if device.id.is_empty() => "it has no ID".to_owned(),
        Ok(device) => return Some(convert::device(device)),
        Err(error) => error.to_string(),
    };
    let shown = from.get(..from.len().min(MAX_SHOWN)).unwrap_or_default().escape_ascii();
    tracing::warn!(device = %shown, err = why, "Ignoring a malformed device in the list of a device plugin");
    None
}

impl Client {
    pub(crate) async fn connect(socket: &Path) -> PluginResult<Self> {
        let channel = call::connect(socket).await?;
        let calls =
            DevicePluginClient::new(channel.clone()).max_decoding_message_size(call::MAX_RECEIVE_BYTES);
        Ok(Self { calls, channel })
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
        let mut calls = Grpc::new(self.channel.clone()).max_decoding_message_size(call::MAX_RECEIVE_BYTES);
        let path = PathAndQuery::from_static("/v1beta1.DevicePlugin/ListAndWatch");
        let codec = ProstCodec::<wire::Empty, DeviceList>::default();
        let opened = async {
            calls.ready().await.map_err(|error| Status::from_error(error.into()))?;
            calls.server_streaming(Request::new(wire::Empty {}), path, codec).await
        };
        // No deadline: a plugin may be slow to report its first device. The connection breaks if the plugin exits.
        let lists = opened.await.map_err(|status| call::failed(&status))?;
        let next = |mut lists: tonic::Streaming<DeviceList>| async move {
            let list = match lists.message().await {
                Ok(list) => Ok(list?.devices.iter().filter_map(device).collect::<Vec<PluginDevice>>()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_device_is_left_out_of_its_list_and_the_others_are_reported() {
        let good = |id: &str| {
            wire::Device { id: id.to_owned(), health: "Healthy".to_owned(), ..Default::default() }
                .encode_to_vec()
        };
        let list = DeviceList {
            devices: vec![
                good("a"),
                b"\x0a\x02\xff\xfe".to_vec(),
                Vec::new(),
                b"\x0a\x09x".to_vec(),
                good("b"),
            ],
        };
        let ids: Vec<String> = list.devices.iter().filter_map(device).map(|device| device.id).collect();
        assert_eq!(ids, ["a", "b"]);
    }
}
