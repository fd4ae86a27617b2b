//! PodResources API: the resources that are allocated to pods, over gRPC on a Unix socket that only root may open.

use std::sync::Arc;

use config::Features;
use grpc_api::pod_resources as v1;
use grpc_api::pod_resources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use grpc_api::pod_resources_alpha as v1alpha1;
use grpc_api::pod_resources_alpha::pod_resources_lister_server as alpha;
use http::Request;
use hyper::body::Incoming;
use model::RateLimiter;
use model::dra::{UsedClaim, UsedDevice};
use model::k8s::Pod;
use parking_lot::Mutex;
use ports::node_api::{NodeDevice, NodeMemory};
use ports::request_metrics::PodResourcesCall;
use ports::{Clock, NodeApi};
use tokio::net::UnixListener;
use tonic::{Response, Status};

use crate::Api;
pub use crate::grpc_socket::listen;
use crate::grpc_socket::{self, Answer, OVER_LIMIT, called, limiter};

const V1: &str = "v1";
const V1_ALPHA: &str = "v1alpha1";
/// Phases of pods that have ended.
const ENDED: [&str; 2] = ["Succeeded", "Failed"];

/// Serves both versions until `shutdown`.
pub async fn serve(
    listener: UnixListener,
    api: Api,
    features: Features,
    clock: Clock,
    shutdown: impl Future<Output = ()> + Send,
) {
    let lister = Lister { api, features, clock, limiter: Arc::new(Mutex::new(limiter(clock.mono()))) };
    let answer = move |request| answer(lister.clone(), request);
    grpc_socket::serve("PodResources", listener, answer, shutdown).await;
}

async fn answer(lister: Lister, request: Request<Incoming>) -> Answer {
    if !lister.limiter.lock().try_take(lister.clock.mono()) {
        return Ok(Status::resource_exhausted(OVER_LIMIT).into_http());
    }
    let is_alpha = request.uri().path().starts_with("/v1alpha1.");
    if is_alpha {
        called(alpha::PodResourcesListerServer::new(lister), request).await
    } else {
        called(PodResourcesListerServer::new(lister), request).await
    }
}

#[derive(Clone, Debug)]
struct Lister {
    api: Api,
    features: Features,
    clock: Clock,
    limiter: Arc<Mutex<RateLimiter>>,
}

impl Lister {
    fn record(&self, version: &'static str, call: PodResourcesCall, is_ok: bool) {
        if let Some(observer) = self.api.observer() {
            observer.pod_resources_called(version, call, is_ok);
        }
    }

    fn pods(&self) -> Vec<Pod> {
        let mut pods = self.api.pods();
        pods.retain(|pod| is_listed(pod, self.features));
        pods
    }
}

/// Whether the pod may hold resources: with the feature gate on, one that has ended does not.
fn is_listed(pod: &Pod, features: Features) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !features.list_active_pods || !phase.is_some_and(|phase| ENDED.contains(&phase))
}

/// Containers that hold resources as long as the pod runs: regular containers and sidecars.
fn containers(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.iter().flatten();
    let staying = init.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    staying.chain(&spec.containers).map(|container| container.name.clone()).collect()
}

/// `v1alpha1` knows no sidecars.
fn regular_containers(pod: &Pod) -> Vec<String> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.map(|container| container.name.clone()).collect()
}

fn resources(api: &dyn NodeApi, pod: &Pod, containers: Vec<String>) -> v1::PodResources {
    let container = |name: String| v1::ContainerResources {
        devices: api.devices_of(pod, &name).into_iter().map(device).collect(),
        cpu_ids: api.cpus_of(pod, &name),
        memory: api.memory_of(pod, &name).into_iter().map(memory).collect(),
        dynamic_resources: api.claims_of(pod, &name).into_iter().map(claim).collect(),
        name,
    };
    v1::PodResources {
        name: pod.metadata.name.clone().unwrap_or_default(),
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        containers: containers.into_iter().map(container).collect(),
    }
}

/// One entry for each device, because devices of one resource may have different NUMA nodes.
fn device(device: NodeDevice) -> v1::ContainerDevices {
    let nodes: Vec<_> = device.numa_nodes.into_iter().map(|id| v1::NumaNode { id }).collect();
    v1::ContainerDevices {
        resource_name: device.resource,
        device_ids: vec![device.id],
        topology: (!nodes.is_empty()).then_some(v1::TopologyInfo { nodes }),
    }
}

fn claim(claim: UsedClaim) -> v1::DynamicResource {
    let device = |UsedDevice { driver, device }: UsedDevice| v1::ClaimResource {
        cdi_devices: device.cdi_devices.into_iter().map(|name| v1::CdiDevice { name }).collect(),
        driver_name: driver,
        pool_name: device.pool,
        device_name: device.name,
        share_id: device.share_id,
    };
    v1::DynamicResource {
        claim_name: claim.name,
        claim_namespace: claim.namespace,
        claim_resources: claim.devices.into_iter().map(device).collect(),
    }
}

fn memory(memory: NodeMemory) -> v1::ContainerMemory {
    let nodes = memory.numa_nodes.into_iter().map(|id| v1::NumaNode { id }).collect();
    v1::ContainerMemory {
        memory_type: memory.resource,
        size: memory.bytes,
        topology: Some(v1::TopologyInfo { nodes }),
    }
}

fn alpha_device(device: v1::ContainerDevices) -> v1alpha1::ContainerDevices {
    v1alpha1::ContainerDevices { resource_name: device.resource_name, device_ids: device.device_ids }
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: tonic::Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        self.record(V1, PodResourcesCall::List, true);
        let pod_resources =
            self.pods().iter().map(|pod| resources(&*self.api, pod, containers(pod))).collect();
        Ok(Response::new(v1::ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: tonic::Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        self.record(V1, PodResourcesCall::GetAllocatable, true);
        let devices = self.api.allocatable_devices().into_iter().map(device).collect();
        let memory = self.api.allocatable_memory().into_iter().map(memory).collect();
        let cpu_ids = self.api.allocatable_cpus();
        Ok(Response::new(v1::AllocatableResourcesResponse { devices, cpu_ids, memory }))
    }

    async fn get(
        &self,
        request: tonic::Request<v1::GetPodResourcesRequest>,
    ) -> Result<Response<v1::GetPodResourcesResponse>, Status> {
        let v1::GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let is_meant = |pod: &&Pod| {
            let metadata = &pod.metadata;
            (metadata.name.as_ref(), metadata.namespace.as_ref()) == (Some(&pod_name), Some(&pod_namespace))
        };
        let pods = self.api.pods();
        let found = pods.iter().find(is_meant);
        self.record(V1, PodResourcesCall::Get, found.is_some());
        let Some(pod) = found else {
            let text = format!("pod {pod_name} in namespace {pod_namespace} not found");
            return Err(Status::unknown(text));
        };
        let pod_resources = Some(resources(&*self.api, pod, containers(pod)));
        Ok(Response::new(v1::GetPodResourcesResponse { pod_resources }))
    }
}

#[tonic::async_trait]
impl alpha::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: tonic::Request<v1alpha1::ListPodResourcesRequest>,
    ) -> Result<Response<v1alpha1::ListPodResourcesResponse>, Status> {
        let shown = |pod: &Pod| {
            let v1::PodResources { name, namespace, containers } =
                resources(&*self.api, pod, regular_containers(pod));
            let named = |c: v1::ContainerResources| v1alpha1::ContainerResources {
                name: c.name,
                devices: c.devices.into_iter().map(alpha_device).collect(),
            };
            v1alpha1::PodResources {
                name,
                namespace,
                containers: containers.into_iter().map(named).collect(),
            }
        };
        self.record(V1_ALPHA, PodResourcesCall::List, true);
        // Pods that have ended, too, whatever the feature gate.
        let pod_resources = self.api.pods().iter().map(shown).collect();
        Ok(Response::new(v1alpha1::ListPodResourcesResponse { pod_resources }))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;
    use crate::grpc_socket::LIMITS;

    #[test]
    fn ended_pods_are_listed_only_with_the_feature_gate_off() {
        let all = Features { list_active_pods: false, ..Features::default() };
        for (phase, is_active) in [
            (None, true),
            (Some("Pending"), true),
            (Some("Running"), true),
            (Some("Succeeded"), false),
            (Some("Failed"), false),
        ] {
            let status = model::k8s::PodStatus { phase: phase.map(str::to_owned), ..Default::default() };
            let pod = Pod { status: Some(status), ..Pod::default() };
            assert_eq!(is_listed(&pod, Features::default()), is_active, "{phase:?}");
            assert!(is_listed(&pod, all), "{phase:?}");
        }
    }

    /// `server_v1alpha1.go`: without sidecars and without the filter for active pods.
    #[tokio::test]
    async fn v1alpha1_lists_the_regular_containers_of_all_pods() {
        let pod = serde_json::json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "initContainers": [{"name": "sidecar", "restartPolicy": "Always"}, {"name": "init"}],
                "containers": [{"name": "main"}],
            },
            "status": {"phase": "Succeeded"},
        });
        let clock = Clock::system();
        let lister = Lister {
            api: Arc::new(crate::tests::Agent::with_pod(serde_json::from_value(pod).unwrap())),
            features: Features::default(),
            clock,
            limiter: Arc::new(Mutex::new(limiter(clock.mono()))),
        };
        let request = tonic::Request::new(v1alpha1::ListPodResourcesRequest {});
        let listed = alpha::PodResourcesLister::list(&lister, request).await.unwrap().into_inner();
        let containers = listed.pod_resources.iter().flat_map(|pod| &pod.containers);
        assert_eq!(containers.map(|one| one.name.as_str()).collect::<Vec<_>>(), ["main"]);
        let request = tonic::Request::new(v1::ListPodResourcesRequest {});
        let listed = PodResourcesLister::list(&lister, request).await.unwrap().into_inner();
        assert_eq!(listed.pod_resources, []);
    }

    /// A process that only opens connections does not prevent another from being served.
    #[tokio::test]
    async fn idle_connections_are_closed_for_new_ones() {
        let dir = std::env::temp_dir().join(format!("pod-resources-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("kubelet.sock");
        let listener = listen(&socket).unwrap();
        let api: Api = Arc::new(crate::tests::Agent::default());
        let clock = Clock::system();
        let server = serve(listener, api, Features::default(), clock, std::future::pending());
        let clients = async {
            let mut idle = Vec::new();
            for _ in 0..200 {
                idle.push(UnixStream::connect(&socket).await.unwrap());
            }
            let mut closed = 0;
            for stream in &mut idle[..200 - LIMITS.per_peer] {
                closed += usize::from(tokio::io::AsyncReadExt::read(stream, &mut [0; 64]).await.is_ok());
            }
            assert_eq!(closed, 200 - LIMITS.per_peer);
        };
        tokio::select! { () = server => unreachable!(), () = clients => {} }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
