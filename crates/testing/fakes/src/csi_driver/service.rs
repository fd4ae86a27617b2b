//! The Identity and Node services: records each call, applies its fault, and carries it out even if its caller gives up.

use std::collections::BTreeMap;
use std::sync::Arc;

use grpc_api::csi as wire;
use grpc_api::csi::identity_server::Identity;
use grpc_api::csi::node_server::Node;
use model::csi::NodeCapabilities;
use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status};
use wire::node_service_capability::rpc::Type as Rpc;

use super::faults::{Break, CsiDriverFault};
use super::state::Volumes;
use super::{Shared, convert};
use crate::CsiMethod;

#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) shared: Arc<Shared>,
    pub(super) breaks: mpsc::Sender<Break>,
}

/// A volume with a call in progress, until that ends.
struct Busy {
    shared: Arc<Shared>,
    volume_id: String,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.shared.volumes.lock().busy.remove(&self.volume_id);
    }
}

impl Service {
    /// Records the deadline of the client, in the format of gRPC: `120000m`.
    pub(super) fn record_deadline(&self, request: Request<()>) -> Result<Request<()>, Status> {
        let timeout = request.metadata().get("grpc-timeout").and_then(|value| value.to_str().ok());
        self.shared.record.lock().timeout = timeout.map(str::to_owned);
        Ok(request)
    }

    /// The task goes on when the caller gives up, as the handlers of Go's servers do.
    async fn call<T: Send + 'static>(
        &self,
        method: CsiMethod,
        volume_id: &str,
        act: impl FnOnce(&mut Volumes, NodeCapabilities) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let began = self.shared.clock.mono();
        let line =
            if volume_id.is_empty() { format!("{method:?}") } else { format!("{method:?} {volume_id}") };
        if !method.is_read() {
            self.shared.record.lock().lines.push(line.clone());
        }
        let busy = self.begin(method, volume_id)?;
        let service = self.clone();
        let task = tokio::spawn(async move {
            let answer = service.answer(method, act).await;
            drop(busy);
            answer
        });
        let answer = task.await.unwrap_or_else(|_| Err(Status::unavailable("the driver ended")));
        let ended = self.shared.clock.mono();
        self.shared.record.lock().times.push((began, ended));
        if let Err(status) = &answer {
            self.record_violation(&line, status);
        }
        answer.map(Response::new)
    }

    fn begin(&self, method: CsiMethod, volume_id: &str) -> Result<Option<Busy>, Status> {
        if method.is_read() || volume_id.is_empty() {
            return Ok(None);
        }
        if !self.shared.volumes.lock().busy.insert(volume_id.to_owned()) {
            return Err(Status::aborted(format!("an operation for volume {volume_id} is pending")));
        }
        Ok(Some(Busy { shared: Arc::clone(&self.shared), volume_id: volume_id.to_owned() }))
    }

    /// Codes with which only a kubelet that violates the specification is answered.
    fn record_violation(&self, line: &str, status: &Status) {
        let is_scripted = status.message().contains("chosen by the seed");
        let codes =
            [Code::InvalidArgument, Code::AlreadyExists, Code::FailedPrecondition, Code::Unimplemented];
        if codes.contains(&status.code()) && !is_scripted {
            self.shared.record.lock().violations.push(format!("{line}: {}", status.message()));
        }
    }

    async fn answer<T>(
        &self,
        method: CsiMethod,
        act: impl FnOnce(&mut Volumes, NodeCapabilities) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let carry_out = || {
            let capabilities = self.shared.settings.lock().capabilities;
            act(&mut self.shared.volumes.lock(), capabilities)
        };
        match self.shared.faults.take(method) {
            None => carry_out(),
            Some(CsiDriverFault::Fails(code, message)) => Err(status(code, message)),
            Some(CsiDriverFault::FailsAfterDoing(code, message)) => {
                carry_out()?;
                Err(status(code, message))
            }
            Some(CsiDriverFault::Hangs) => {
                self.shared.faults.hang().await;
                carry_out()
            }
            Some(CsiDriverFault::AnswersAfter(after)) => {
                let answer = carry_out();
                tokio::time::sleep(after).await;
                answer
            }
            Some(CsiDriverFault::Breaks) => self.lose(Break::Connections).await,
            Some(CsiDriverFault::BreaksAfterDoing) => {
                carry_out()?;
                self.lose(Break::Connections).await
            }
            Some(CsiDriverFault::Dies) => self.lose(Break::Process).await,
            Some(CsiDriverFault::DiesAfterDoing) => {
                carry_out()?;
                self.lose(Break::Process).await
            }
        }
    }

    async fn lose<T>(&self, what: Break) -> Result<T, Status> {
        // The receiver lives as long as the connections.
        let _ = self.breaks.send(what).await;
        std::future::pending().await
    }
}

fn status(code: &str, message: &str) -> Status {
    let code = (0..=16).map(Code::from_i32).find(|known| format!("{known:?}") == code);
    Status::new(code.unwrap_or(Code::Unknown), message)
}

fn supported(is_supported: bool, method: &str) -> Result<(), Status> {
    if is_supported {
        return Ok(());
    }
    Err(Status::unimplemented(format!("unknown method {method} for service csi.v1.Node")))
}

#[tonic::async_trait]
impl Identity for Service {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Result<Response<wire::GetPluginInfoResponse>, Status> {
        let name = self.shared.name.clone();
        let vendor_version = "1.0.0".to_owned();
        Ok(Response::new(wire::GetPluginInfoResponse { name, vendor_version, manifest: BTreeMap::new() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<wire::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(wire::GetPluginCapabilitiesResponse { capabilities: Vec::new() }))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Result<Response<wire::ProbeResponse>, Status> {
        Ok(Response::new(wire::ProbeResponse { ready: Some(true) }))
    }
}

#[tonic::async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<wire::NodeStageVolumeRequest>,
    ) -> Result<Response<wire::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let volume_id = request.volume_id.clone();
        let request = convert::stage(request);
        if let Ok(request) = &request {
            self.shared.record.lock().stages.push(request.clone());
        }
        self.call(CsiMethod::NodeStageVolume, &volume_id, move |volumes, capabilities| {
            supported(capabilities.stage_unstage_volume, "NodeStageVolume")?;
            volumes.stage(&request?).map(|()| wire::NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Result<Response<wire::NodeUnstageVolumeResponse>, Status> {
        let wire::NodeUnstageVolumeRequest { volume_id, staging_target_path } = request.into_inner();
        self.call(CsiMethod::NodeUnstageVolume, &volume_id.clone(), move |volumes, capabilities| {
            supported(capabilities.stage_unstage_volume, "NodeUnstageVolume")?;
            let volume_id = convert::volume_id(volume_id)?;
            let path = convert::path("staging target path", &staging_target_path)?;
            volumes.unstage(&volume_id, &path).map(|()| wire::NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Result<Response<wire::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let volume_id = request.volume_id.clone();
        let request = convert::publish(request);
        if let Ok(request) = &request {
            self.shared.record.lock().publishes.push(request.clone());
        }
        self.call(CsiMethod::NodePublishVolume, &volume_id, move |volumes, capabilities| {
            volumes.publish(&request?, capabilities).map(|()| wire::NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<wire::NodeUnpublishVolumeResponse>, Status> {
        let wire::NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        self.call(CsiMethod::NodeUnpublishVolume, &volume_id.clone(), move |volumes, _| {
            let volume_id = convert::volume_id(volume_id)?;
            let path = convert::path("target path", &target_path)?;
            volumes.unpublish(&volume_id, &path).map(|()| wire::NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<wire::NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        self.call(CsiMethod::NodeGetVolumeStats, &request.volume_id.clone(), move |volumes, capabilities| {
            let is_supported = capabilities.get_volume_stats || capabilities.volume_condition;
            supported(is_supported, "NodeGetVolumeStats")?;
            volumes.stats(&convert::stats(request)?, capabilities)
        })
        .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<wire::NodeExpandVolumeRequest>,
    ) -> Result<Response<wire::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        self.call(CsiMethod::NodeExpandVolume, &request.volume_id.clone(), move |volumes, capabilities| {
            supported(capabilities.expand_volume, "NodeExpandVolume")?;
            let capacity_bytes = volumes.expand(&convert::expand(request)?)?;
            Ok(wire::NodeExpandVolumeResponse { capacity_bytes })
        })
        .await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<wire::NodeGetCapabilitiesResponse>, Status> {
        self.call(CsiMethod::NodeGetCapabilities, "", |_, capabilities| Ok(announced(capabilities))).await
    }

    async fn node_get_info(
        &self,
        _: Request<wire::NodeGetInfoRequest>,
    ) -> Result<Response<wire::NodeGetInfoResponse>, Status> {
        let info = self.shared.settings.lock().info.clone();
        let topology = (!info.topology.is_empty()).then_some(wire::Topology { segments: info.topology });
        let response = wire::NodeGetInfoResponse {
            node_id: info.node_id,
            max_volumes_per_node: info.max_volumes_per_node,
            accessible_topology: topology,
        };
        self.call(CsiMethod::NodeGetInfo, "", |_, _| Ok(response)).await
    }
}

fn announced(from: NodeCapabilities) -> wire::NodeGetCapabilitiesResponse {
    let all = [
        (from.stage_unstage_volume, Rpc::StageUnstageVolume),
        (from.get_volume_stats, Rpc::GetVolumeStats),
        (from.expand_volume, Rpc::ExpandVolume),
        (from.volume_condition, Rpc::VolumeCondition),
        (from.single_node_multi_writer, Rpc::SingleNodeMultiWriter),
        (from.volume_mount_group, Rpc::VolumeMountGroup),
    ];
    let capability = |rpc: Rpc| wire::NodeServiceCapability {
        r#type: Some(wire::node_service_capability::Type::Rpc(wire::node_service_capability::Rpc {
            r#type: rpc.into(),
        })),
    };
    let supported = all.into_iter().filter(|(is_supported, _)| *is_supported);
    wire::NodeGetCapabilitiesResponse { capabilities: supported.map(|(_, rpc)| capability(rpc)).collect() }
}
