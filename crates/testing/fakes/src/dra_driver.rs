//! A driver of dynamic resources as vendors write them: a gRPC server with a socket of its own, a registration socket in the kubelet's
//! directory, and CDI files in a directory that the runtime reads.
//!
//! Runs in a thread with its own runtime, so that synchronous tests can use it; ends when dropped.

use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use grpc_api::dra::dra_plugin_server::{DraPlugin as ServiceV1, DraPluginServer as ServerV1};
use grpc_api::dra_beta::dra_plugin_server::{DraPlugin as ServiceV1Beta1, DraPluginServer as ServerV1Beta1};
use grpc_api::dra_health as health;
use grpc_api::dra_health::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use grpc_api::{dra as v1, dra_beta as v1beta1};
use model::devices::DeviceHealth;
use model::dra::{ClaimAnswers, ClaimDevice, ClaimId, DeviceReport, DraVersion};
use ports::plugins::{DraDriver, PluginInfo};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::{FakeDraDriver, PluginRegistrar};

/// A running instance of a driver.
#[derive(Debug)]
pub struct TestDraDriver {
    /// Deregisters first when dropped.
    registrar: Option<PluginRegistrar>,
    driver: FakeDraDriver,
    socket: PathBuf,
    runtime: Option<Runtime>,
}

#[derive(Clone, Debug)]
struct Service(FakeDraDriver);

type HealthStream = BoxStream<'static, Result<health::NodeWatchResourcesResponse, Status>>;

impl TestDraDriver {
    /// An instance of the driver `name` listens below the kubelet's root directory, with this version of the protocol only. Nothing
    /// is registered yet.
    ///
    /// # Panics
    /// The socket cannot be opened.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn serve(socket: &Path, driver: &FakeDraDriver, version: DraVersion) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        if let Some(dir) = socket.parent() {
            std::fs::create_dir_all(dir).expect("a directory");
        }
        let _ = std::fs::remove_file(socket);
        {
            let _inside = runtime.enter();
            let incoming = UnixListenerStream::new(UnixListener::bind(socket).expect("a socket"));
            let service = Service(driver.clone());
            match version {
                DraVersion::V1 => {
                    let health = DraResourceHealthServer::new(service.clone());
                    let server = Server::builder().add_service(ServerV1::new(service)).add_service(health);
                    runtime.spawn(server.serve_with_incoming(incoming));
                }
                DraVersion::V1Beta1 => {
                    let health = DraResourceHealthServer::new(service.clone());
                    let server =
                        Server::builder().add_service(ServerV1Beta1::new(service)).add_service(health);
                    runtime.spawn(server.serve_with_incoming(incoming));
                }
            }
        }
        Self { registrar: None, driver: driver.clone(), socket: socket.to_owned(), runtime: Some(runtime) }
    }

    /// Offers it for registration at a socket in the registration directory.
    pub fn register(&mut self, registration_socket: &Path, name: &str, services: &[&str]) {
        let info = PluginInfo {
            kind: "DRAPlugin".to_owned(),
            name: name.to_owned(),
            endpoint: self.socket.display().to_string(),
            supported_versions: services.iter().map(|service| (*service).to_owned()).collect(),
        };
        self.registrar = Some(PluginRegistrar::serve(registration_socket, info));
    }

    /// What the kubelet has said about its registrations.
    #[must_use]
    pub fn notified(&self) -> Vec<Result<(), String>> {
        self.registrar.as_ref().map(PluginRegistrar::notified).unwrap_or_default()
    }

    #[must_use]
    pub const fn driver(&self) -> &FakeDraDriver {
        &self.driver
    }

    /// Ends as if it was killed: the sockets stay, and nothing listens.
    pub fn crash(mut self) {
        if let Some(registrar) = self.registrar.take() {
            registrar.crash();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for TestDraDriver {
    fn drop(&mut self) {
        self.registrar = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
            let _ = std::fs::remove_file(&self.socket);
        }
    }
}

fn device_health(report: DeviceReport) -> health::DeviceHealth {
    let status = match report.health {
        DeviceHealth::Healthy => health::HealthStatus::Healthy,
        DeviceHealth::Unhealthy => health::HealthStatus::Unhealthy,
        DeviceHealth::Unknown => health::HealthStatus::Unknown,
    };
    let seconds = report.timeout.map(|timeout| i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX));
    let device = health::DeviceIdentifier { pool_name: report.pool, device_name: report.device };
    health::DeviceHealth {
        device: Some(device),
        health: status.into(),
        last_updated_time: 0,
        health_check_timeout_seconds: seconds.unwrap_or_default(),
        message: report.message,
    }
}

#[tonic::async_trait]
impl DraResourceHealth for Service {
    async fn node_watch_resources(
        &self,
        _: Request<health::NodeWatchResourcesRequest>,
    ) -> Result<Response<HealthStream>, Status> {
        let reports = self.0.health().await.map_err(|error| Status::unimplemented(error.to_string()))?;
        let reports = reports.map(|report| {
            let devices = report.map_err(|error| Status::internal(error.to_string()))?;
            let devices = devices.into_iter().map(device_health).collect();
            Ok(health::NodeWatchResourcesResponse { devices })
        });
        Ok(Response::new(reports.boxed()))
    }
}

macro_rules! claims {
    ($request:ident) => {{
        let claims = $request.into_inner().claims.into_iter();
        let claims =
            claims.map(|claim| ClaimId { namespace: claim.namespace, name: claim.name, uid: claim.uid });
        claims.collect::<Vec<ClaimId>>()
    }};
}

/// The two versions differ in the share id only.
macro_rules! service {
    ($wire:ident, $service:ident, $device:expr) => {
        #[tonic::async_trait]
        impl $service for Service {
            async fn node_prepare_resources(
                &self,
                request: Request<$wire::NodePrepareResourcesRequest>,
            ) -> Result<Response<$wire::NodePrepareResourcesResponse>, Status> {
                let claims = claims!(request);
                let answers: ClaimAnswers<Vec<ClaimDevice>> =
                    self.0.prepare(&claims).await.map_err(|error| Status::internal(error.to_string()))?;
                let answers = answers.into_iter().map(|(uid, answer)| {
                    let (devices, error) = match answer {
                        Ok(devices) => (devices, String::new()),
                        Err(error) => (Vec::new(), error),
                    };
                    let devices = devices.into_iter().map($device).collect();
                    (uid, $wire::NodePrepareResourceResponse { devices, error })
                });
                Ok(Response::new($wire::NodePrepareResourcesResponse { claims: answers.collect() }))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<$wire::NodeUnprepareResourcesRequest>,
            ) -> Result<Response<$wire::NodeUnprepareResourcesResponse>, Status> {
                let claims = claims!(request);
                let answers =
                    self.0.unprepare(&claims).await.map_err(|error| Status::internal(error.to_string()))?;
                let answers = answers.into_iter().map(|(uid, answer)| {
                    let error = answer.err().unwrap_or_default();
                    (uid, $wire::NodeUnprepareResourceResponse { error })
                });
                Ok(Response::new($wire::NodeUnprepareResourcesResponse { claims: answers.collect() }))
            }
        }
    };
}

service!(v1, ServiceV1, |device: ClaimDevice| v1::Device {
    request_names: device.requests,
    pool_name: device.pool,
    device_name: device.name,
    cdi_device_ids: device.cdi_devices,
    share_id: device.share_id,
});
service!(v1beta1, ServiceV1Beta1, |device: ClaimDevice| v1beta1::Device {
    request_names: device.requests,
    pool_name: device.pool,
    device_name: device.name,
    cdi_device_ids: device.cdi_devices,
});
