//! A device plugin as vendors write them: a gRPC server on a socket in the kubelet's directory. Its devices are files in `/dev`
//! that every machine has.
//!
//! Runs in a thread with its own runtime, so that synchronous tests can use it; ends when dropped.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use grpc_api::device_plugin as wire;
use grpc_api::device_plugin::device_plugin_server::{self, DevicePluginServer};
use grpc_api::device_plugin::registration_client::RegistrationClient;
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use fixtures::stretched;

/// A running device plugin.
#[derive(Debug)]
pub struct DevicePlugin {
    dir: PathBuf,
    resource: String,
    endpoint: String,
    state: State,
    runtime: Option<Runtime>,
}

#[derive(Clone, Debug)]
struct State {
    devices: watch::Sender<Vec<wire::Device>>,
    options: wire::DevicePluginOptions,
    calls: Arc<Mutex<Vec<String>>>,
}

/// `null zero!`: two devices, the second of which is unhealthy.
fn devices(line: &str) -> Vec<wire::Device> {
    let device = |word: &str| wire::Device {
        id: word.trim_end_matches('!').to_owned(),
        health: if word.ends_with('!') { "Unhealthy" } else { "Healthy" }.to_owned(),
        topology: Some(wire::TopologyInfo { nodes: vec![wire::NumaNode { id: 0 }] }),
    };
    line.split_whitespace().map(device).collect()
}

impl DevicePlugin {
    /// Serves these devices at a socket in the kubelet's directory. The kubelet does not know it until it registers.
    ///
    /// # Panics
    /// The socket cannot be opened.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn serve(dir: &Path, resource: &str, line: &str) -> Self {
        let options =
            wire::DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };
        let state = State { devices: watch::Sender::new(devices(line)), options, calls: Arc::default() };
        let endpoint = format!("{}.sock", resource.replace('/', "_"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut plugin = Self {
            dir: dir.to_owned(),
            resource: resource.to_owned(),
            endpoint,
            state,
            runtime: Some(runtime),
        };
        plugin.open();
        plugin
    }

    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    fn open(&mut self) {
        let Some(runtime) = &self.runtime else { return };
        let socket = self.dir.join(&self.endpoint);
        let _ = std::fs::remove_file(&socket);
        let _inside = runtime.enter();
        let listener = UnixListener::bind(&socket).expect("a socket");
        let service = DevicePluginServer::new(self.state.clone());
        let server = Server::builder().add_service(service);
        runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    }

    /// Registers with the kubelet as soon as that listens; first opens its own socket again if the kubelet has removed it.
    ///
    /// # Errors
    /// The error of the kubelet.
    pub fn register(&mut self) -> Result<(), String> {
        if !self.dir.join(&self.endpoint).exists() {
            self.open();
        }
        self.register_as("v1beta1")
    }

    /// # Errors
    /// The error of the kubelet.
    pub fn register_as(&self, version: &str) -> Result<(), String> {
        let Some(runtime) = &self.runtime else { return Err("it has ended".to_owned()) };
        runtime.block_on(async {
            let mut client = RegistrationClient::new(channel(&self.dir.join("kubelet.sock")).await?);
            let request = wire::RegisterRequest {
                version: version.to_owned(),
                endpoint: self.endpoint.clone(),
                resource_name: self.resource.clone(),
                options: Some(self.state.options),
            };
            client.register(request).await.map(|_| ()).map_err(|status| status.message().to_owned())
        })
    }

    /// Replaces its devices.
    pub fn set(&self, line: &str) {
        self.state.devices.send_replace(devices(line));
    }

    /// The requests so far: `Allocate null`.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.state.calls.lock().clone()
    }
}

impl Drop for DevicePlugin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(stretched(Duration::from_secs(5)));
        }
        let _ = std::fs::remove_file(self.dir.join(&self.endpoint));
    }
}

async fn channel(socket: &Path) -> Result<Channel, String> {
    let endpoint =
        Endpoint::from_shared(format!("unix://{}", socket.display())).map_err(|e| e.to_string())?;
    endpoint.connect().await.map_err(|e| e.to_string())
}

impl State {
    fn record(&self, call: &str, ids: &[String]) {
        self.calls.lock().push(format!("{call} {}", ids.join(",")));
    }
}

type Lists = Pin<Box<dyn Stream<Item = Result<wire::ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl device_plugin_server::DevicePlugin for State {
    async fn get_device_plugin_options(
        &self,
        _: Request<wire::Empty>,
    ) -> Result<Response<wire::DevicePluginOptions>, Status> {
        Ok(Response::new(self.options))
    }

    async fn list_and_watch(&self, _: Request<wire::Empty>) -> Result<Response<Lists>, Status> {
        let lists = WatchStream::new(self.devices.subscribe());
        Ok(Response::new(lists.map(|devices| Ok(wire::ListAndWatchResponse { devices })).boxed()))
    }

    /// Prefers the devices at the end of the list.
    async fn get_preferred_allocation(
        &self,
        request: Request<wire::PreferredAllocationRequest>,
    ) -> Result<Response<wire::PreferredAllocationResponse>, Status> {
        let mut answers = Vec::new();
        for container in request.into_inner().container_requests {
            self.record("GetPreferredAllocation", &container.available_device_ids);
            let mut device_ids = container.available_device_ids;
            device_ids.sort_by(|a, b| b.cmp(a));
            device_ids.truncate(usize::try_from(container.allocation_size).unwrap_or_default());
            answers.push(wire::ContainerPreferredAllocationResponse { device_ids });
        }
        Ok(Response::new(wire::PreferredAllocationResponse { container_responses: answers }))
    }

    async fn allocate(
        &self,
        request: Request<wire::AllocateRequest>,
    ) -> Result<Response<wire::AllocateResponse>, Status> {
        let mut answers = Vec::new();
        for container in request.into_inner().container_requests {
            self.record("Allocate", &container.device_ids);
            let device = |id: &String| wire::DeviceSpec {
                container_path: format!("/dev/plugged-{id}"),
                host_path: format!("/dev/{id}"),
                permissions: "rw".to_owned(),
            };
            answers.push(wire::ContainerAllocateResponse {
                envs: [("PLUGGED".to_owned(), container.device_ids.join(","))].into(),
                mounts: vec![wire::Mount {
                    container_path: "/plugged/users".to_owned(),
                    host_path: "/etc/passwd".to_owned(),
                    read_only: true,
                }],
                devices: container.device_ids.iter().map(device).collect(),
                annotations: [("plugged.example.com/ids".to_owned(), container.device_ids.join(","))].into(),
                cdi_devices: Vec::new(),
            });
        }
        Ok(Response::new(wire::AllocateResponse { container_responses: answers }))
    }

    async fn pre_start_container(
        &self,
        request: Request<wire::PreStartContainerRequest>,
    ) -> Result<Response<wire::PreStartContainerResponse>, Status> {
        self.record("PreStartContainer", &request.into_inner().device_ids);
        Ok(Response::new(wire::PreStartContainerResponse {}))
    }
}
