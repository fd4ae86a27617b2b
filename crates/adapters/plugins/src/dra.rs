//! The client of a driver of dynamic resources, in both versions of the protocol.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use grpc_api::dra::dra_plugin_client::DraPluginClient as ClientV1;
use grpc_api::dra_beta::dra_plugin_client::DraPluginClient as ClientV1Beta1;
use grpc_api::dra_health::dra_resource_health_client::DraResourceHealthClient;
use grpc_api::{dra as v1, dra_beta as v1beta1, dra_health};
use model::devices::DeviceHealth;
use model::dra::{ClaimAnswers, ClaimDevice, ClaimId, DeviceReport, DraVersion};
use model::text::cut;
use model::time::wait_of;
use ports::plugins::{DRA_TIMEOUT, DraDriver, HealthReports, PluginError, PluginResult};
use tokio::sync::oneshot;
use tonic::{IntoRequest, Request, Response, Status};

use crate::call;

/// The limit of Go's gRPC clients, which drivers are written for.
const MAX_RECEIVE_BYTES: usize = 4 << 20;
/// Error messages contain output of programs, and get into events and logs.
const MAX_MESSAGE_BYTES: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    version: DraVersion,
}

impl Client {
    pub(crate) fn new(socket: &Path, version: DraVersion) -> Self {
        Self { socket: socket.to_path_buf(), version }
    }
}

/// A request whose deadline the driver knows.
fn with_deadline<Q>(request: Q) -> Request<Q> {
    let mut request = request.into_request();
    request.set_timeout(DRA_TIMEOUT);
    request
}

/// Waits for the response until the deadline.
async fn answered<A>(response: impl Future<Output = PluginResult<Response<A>>> + Send) -> PluginResult<A> {
    match tokio::time::timeout(DRA_TIMEOUT, response).await {
        Ok(response) => response.map(Response::into_inner),
        Err(_) => Err(PluginError::Failed {
            code: "DeadlineExceeded".to_owned(),
            message: "context deadline exceeded".to_owned(),
        }),
    }
}

fn failed(status: &Status) -> PluginError {
    let mut error = call::failed(status);
    if let PluginError::Failed { message, .. } = &mut error {
        *message = cut(message, MAX_MESSAGE_BYTES).into_owned();
    }
    error
}

fn outcome<T>(error: &str, value: T) -> Result<T, String> {
    if error.is_empty() { Ok(value) } else { Err(cut(error, MAX_MESSAGE_BYTES).into_owned()) }
}

macro_rules! claim {
    ($wire:ident, $claim:ident) => {
        $wire::Claim {
            namespace: $claim.namespace.clone(),
            uid: $claim.uid.clone(),
            name: $claim.name.clone(),
        }
    };
}

/// What differs between the versions is the share id only.
macro_rules! calls {
    ($prepare:ident, $unprepare:ident, $wire:ident, $client:ident, $share_id:expr) => {
        async fn $prepare(socket: &Path, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<Vec<ClaimDevice>>> {
            let request = $wire::NodePrepareResourcesRequest {
                claims: claims.iter().map(|claim| claim!($wire, claim)).collect(),
            };
            let response = answered(async {
                let channel = call::connect(socket).await?;
                let mut client = $client::new(channel).max_decoding_message_size(MAX_RECEIVE_BYTES);
                let request = with_deadline(request);
                client.node_prepare_resources(request).await.map_err(|status| failed(&status))
            });
            let device = |device: $wire::Device| ClaimDevice {
                share_id: $share_id(&device),
                pool: device.pool_name,
                name: device.device_name,
                requests: device.request_names,
                cdi_devices: device.cdi_device_ids,
            };
            let answers = response.await?.claims.into_iter().map(|(uid, answer)| {
                let devices = answer.devices.into_iter().map(device).collect();
                (uid, outcome(&answer.error, devices))
            });
            Ok(answers.collect())
        }

        async fn $unprepare(socket: &Path, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<()>> {
            let request = $wire::NodeUnprepareResourcesRequest {
                claims: claims.iter().map(|claim| claim!($wire, claim)).collect(),
            };
            let response = answered(async {
                let channel = call::connect(socket).await?;
                let mut client = $client::new(channel).max_decoding_message_size(MAX_RECEIVE_BYTES);
                let request = with_deadline(request);
                client.node_unprepare_resources(request).await.map_err(|status| failed(&status))
            });
            let answers = response.await?.claims.into_iter();
            Ok(answers.map(|(uid, answer)| (uid, outcome(&answer.error, ()))).collect())
        }
    };
}

calls!(prepare_v1, unprepare_v1, v1, ClientV1, |device: &v1::Device| device.share_id.clone());
calls!(prepare_v1beta1, unprepare_v1beta1, v1beta1, ClientV1Beta1, |_: &v1beta1::Device| None);

fn device_report(from: dra_health::DeviceHealth) -> DeviceReport {
    let health = match from.health() {
        dra_health::HealthStatus::Healthy => DeviceHealth::Healthy,
        dra_health::HealthStatus::Unhealthy => DeviceHealth::Unhealthy,
        dra_health::HealthStatus::Unknown => DeviceHealth::Unknown,
    };
    let seconds = from.health_check_timeout_seconds;
    let dra_health::DeviceIdentifier { pool_name, device_name } = from.device.unwrap_or_default();
    DeviceReport {
        pool: pool_name,
        device: device_name,
        health,
        message: from.message,
        timeout: (seconds > 0).then(|| wait_of(seconds)),
    }
}

#[async_trait]
impl DraDriver for Client {
    async fn prepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<Vec<ClaimDevice>>> {
        match self.version {
            DraVersion::V1 => prepare_v1(&self.socket, claims).await,
            DraVersion::V1Beta1 => prepare_v1beta1(&self.socket, claims).await,
        }
    }

    async fn unprepare(&self, claims: &[ClaimId]) -> PluginResult<ClaimAnswers<()>> {
        match self.version {
            DraVersion::V1 => unprepare_v1(&self.socket, claims).await,
            DraVersion::V1Beta1 => unprepare_v1beta1(&self.socket, claims).await,
        }
    }

    async fn connection(&self) -> PluginResult<BoxFuture<'static, ()>> {
        let (until_end, ended) = oneshot::channel();
        let channel = call::connect_with(&self.socket, Some(until_end)).await?;
        let end = async move {
            // Only its drop is of interest.
            let _ = ended.await;
            drop(channel);
        };
        Ok(end.boxed())
    }

    async fn health(&self) -> PluginResult<HealthReports> {
        let channel = call::connect(&self.socket).await?;
        let mut client = DraResourceHealthClient::new(channel).max_decoding_message_size(MAX_RECEIVE_BYTES);
        // No deadline: a driver reports when it has something to report. The connection breaks if the driver exits.
        let opened = client.node_watch_resources(dra_health::NodeWatchResourcesRequest {}).await;
        let reports = opened.map_err(|status| failed(&status))?.into_inner();
        let next = |mut reports: tonic::Streaming<dra_health::NodeWatchResourcesResponse>| async move {
            let report = match reports.message().await {
                Ok(report) => Ok(report?.devices.into_iter().map(device_report).collect()),
                Err(status) => Err(failed(&status)),
            };
            Some((report, reports))
        };
        Ok(stream::unfold(reports, next).boxed())
    }
}
