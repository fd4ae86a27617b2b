//! Prepares what a pod needs before its sandbox is created: network ready, cgroup, directories, volumes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use kubelet_core::pods::dns::{
    DnsWarningReason, MISSING_CLUSTER_DNS, NodeDns, PodDns, check_resolv_conf, compute_pod_dns,
};
use kubelet_core::pods::request::{
    ConfigError, PodFacts, SandboxInputs, VolumeMountPoint, compute_sandbox_request,
};
use model::containers::{all_containers, spec_of};
use model::k8s::Pod;
use model::request::{DnsRequest, MountedImage, SandboxRequest};
use resources_core::pinned::lift_quota;
use volumes_agent::{MountRequest, ReadyVolumes, VolumeError};
use volumes_core::plan::extra_groups;

use super::files::uses_host_network;
use super::{PassContext, Retry};
use crate::pods::handles::PodHandles;

const NETWORK_RETRY: Duration = Duration::from_secs(1);

/// What the first pass prepared for all later ones.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    pub volumes: ReadyVolumes,
    pub facts: PodFacts,
    pub dns: DnsRequest,
    /// The pod's cgroup as sent to the runtime; empty if pods have none.
    pub cgroup_parent: String,
}

/// What follows the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparedFor {
    /// The pod's cgroup gets its limits before anything is in it.
    Sandbox,
    /// Containers may run in the cgroup. Its limits are changed in the order of a resize.
    Containers,
}

/// Prepares everything. On failure it records an event and returns when to retry.
pub async fn prepare(context: &PassContext, what: PreparedFor) -> Result<Prepared, Retry> {
    let handles = &context.handles;
    let is_on_host_network = uses_host_network(&context.pod);
    if !is_on_host_network && let Some(problem) = network_problem(handles).await {
        let message = format!("network is not ready: {problem}");
        handles.ctx.recorder.warning(&context.identity, None, "NetworkNotReady", message);
        return Err(Retry::At(handles.ctx.clock.mono() + NETWORK_RETRY));
    }
    let cgroup_parent = match what {
        PreparedFor::Sandbox => ensure_cgroup(context).await?,
        PreparedFor::Containers => handles.cgroups.name(&context.pod).await,
    };
    if let Err(error) = make_directories(context).await {
        let message =
            format!("error making pod data directories: {}", base_agent::error_chain::chain(&error));
        handles.ctx.recorder.warning(&context.identity, None, "Failed", message);
        return Err(Retry::BackingOff);
    }
    let volumes = match handles.volumes.mount(mount_request(context)).await {
        Ok(volumes) => volumes,
        Err(VolumeError::TimedOut(err)) => {
            tracing::warn!(pod = %context.identity, err, "Volumes were not mounted in time, retrying");
            return Err(Retry::BackingOff);
        }
        Err(VolumeError::NodeIsFull(why)) => {
            handles.termination_requests.reject_for_full_node(&context.identity.uid, why);
            return Err(Retry::BackingOff);
        }
        Err(error) => {
            handles.ctx.recorder.warning(&context.identity, None, "FailedMount", error.to_string());
            return Err(Retry::BackingOff);
        }
    };
    let dns = pod_dns(context).await.map_err(|why| {
        handles.ctx.recorder.warning(&context.identity, None, "FailedCreatePodSandBox", why);
        Retry::BackingOff
    })?;
    let facts = pod_facts(context, &volumes).await.map_err(|why| {
        let message = format!("Failed to create pod sandbox: {why}");
        handles.ctx.recorder.warning(&context.identity, None, "FailedCreatePodSandBox", message);
        Retry::BackingOff
    })?;
    Ok(Prepared { volumes, facts, dns, cgroup_parent })
}

/// Why the pod network is not ready, if so. Waits for the first status of the runtime, because just after the start it
/// arrives soon, and an event and a retry would delay the first pods by a second.
async fn network_problem(handles: &PodHandles) -> Option<String> {
    let mut node = handles.node.view.clone();
    let is_known = async { node.wait_for(|view| view.has_answered).await.is_ok() };
    tokio::select! {
        _ = is_known => {}
        () = handles.ctx.clock.sleep_until(handles.ctx.clock.mono() + NETWORK_RETRY) => {}
    }
    handles.node.view.borrow().network_problem()
}

/// Creates the pod's cgroup if it does not exist, with its limits; returns its name for the runtime.
pub async fn ensure_cgroup(context: &PassContext) -> Result<String, Retry> {
    context.handles.cgroups.ensure(&context.pod).await.map_err(|why| {
        let message = format!("unable to ensure pod container exists: {why}");
        context.handles.ctx.recorder.warning(&context.identity, None, "FailedCreatePodContainer", message);
        Retry::BackingOff
    })
}

/// Restores the limits of a running pod's cgroup after an external change.
pub async fn repair_cgroup(context: &PassContext) -> Result<(), Retry> {
    tracing::info!(pod = %context.identity, "Pod cgroup was changed externally, restoring it");
    ensure_cgroup(context).await.map(drop)
}

/// Updates the volumes to the current objects. If that fails they keep their old contents.
pub async fn refresh(context: &PassContext) {
    context.handles.volumes.refresh(mount_request(context)).await;
}

fn mount_request(context: &PassContext) -> MountRequest {
    MountRequest { pod: context.pod.clone(), objects: context.objects.clone() }
}

/// Mount points of the volumes, `images` included; those whose files the kubelet writes are read-only.
pub fn mount_points(
    pod: &Pod,
    volumes: &ReadyVolumes,
    images: &BTreeMap<String, MountedImage>,
) -> BTreeMap<String, VolumeMountPoint> {
    let all = spec_of(pod).volumes.iter().flatten();
    let on_host = all.filter_map(|volume| {
        let ready = volumes.get(&*volume.name)?;
        let point = VolumeMountPoint {
            host_path: ready.path.display().to_string(),
            read_only: ready.read_only,
            selinux_relabel: ready.relabel,
            is_device: ready.is_device,
            image: None,
        };
        Some((volume.name.clone(), point))
    });
    let shown = images.iter().map(|(volume, image)| {
        let point = VolumeMountPoint { image: Some(image.clone()), ..VolumeMountPoint::default() };
        (volume.clone(), point)
    });
    on_host.chain(shown).collect()
}

/// Creates the pod's directories, with the modes of the Go kubelet.
async fn make_directories(context: &PassContext) -> Result<(), ports::HostError> {
    let handles = &context.handles;
    let dir = handles.ctx.settings.paths.pod(&context.identity.uid);
    for path in [dir.clone(), dir.join("volumes"), dir.join("plugins"), dir.join("containers")] {
        handles.ctx.files.ensure_dir(&path, 0o750).await?;
    }
    let pod = &*context.pod;
    for container in all_containers(pod) {
        handles.ctx.files.ensure_dir(&dir.join("containers").join(container.name()), 0o750).await?;
    }
    Ok(())
}

async fn pod_facts(context: &PassContext, volumes: &ReadyVolumes) -> Result<PodFacts, String> {
    let handles = &context.handles;
    let pod = &*context.pod;
    let class = spec_of(pod).runtime_class_name.as_deref().unwrap_or_default();
    let name = context.objects.runtime_handler(class).await.map_err(|error| error.to_string())?;
    let handler = handles.node.view.borrow().status.handlers.iter().find(|h| h.name == name).cloned();
    let user_namespace = match spec_of(pod).host_users {
        Some(false) => {
            let (files, settings) = (&*handles.ctx.files, &handles.ctx.settings);
            let uid = &context.identity.uid;
            Some(handles.pod_ids.ensure(files, settings, uid, &name, handler.as_ref()).await?)
        }
        Some(true) | None => None,
    };
    Ok(PodFacts {
        recursive_read_only: handler.is_some_and(|h| h.recursive_read_only_mounts),
        user_namespace,
        extra_supplemental_groups: extra_groups(pod, volumes.values()),
        runtime_handler: name,
        ..PodFacts::default()
    })
}

/// Records, once, an event about the node if its resolv.conf is invalid.
pub async fn check_node_dns(ctx: Arc<Context>) {
    let config = ctx.config();
    if config.resolv_conf.is_empty() {
        return;
    }
    let shown = &config.resolv_conf;
    let problem = match ctx.files.read_text(Path::new(shown)).await {
        Ok(text) => check_resolv_conf(shown, &text, &config.cluster_domain).map(|warning| warning.message),
        Err(error) if error.is_not_found() => Some(format!("open {shown}: no such file or directory")),
        Err(error) => Some(base_agent::error_chain::chain(&error)),
    };
    if let Some(problem) = problem {
        ctx.recorder.node_warning(DnsWarningReason::CheckLimitsForResolvConf.as_str(), problem);
    }
}

async fn pod_dns(context: &PassContext) -> Result<DnsRequest, String> {
    let ctx = &context.handles.ctx;
    let config = ctx.config();
    let resolv_conf = match config.resolv_conf.as_str() {
        "" => None,
        path => {
            let text = ctx.files.read_text(Path::new(path)).await;
            Some(text.map_err(|error| base_agent::error_chain::chain(&error))?)
        }
    };
    let node = NodeDns {
        // Validation has refused what is no address.
        cluster_dns: config.cluster_dns_ips().collect(),
        cluster_domain: config.cluster_domain.clone(),
        resolv_conf,
        node_ips: ctx.host_ips().to_vec(),
    };
    let PodDns { dns, warnings } = compute_pod_dns(&context.pod, &node).map_err(|error| error.to_string())?;
    for warning in warnings {
        if warning.reason == DnsWarningReason::MissingClusterDns {
            context.handles.ctx.recorder.node_warning(warning.reason.as_str(), MISSING_CLUSTER_DNS);
        }
        context.handles.ctx.recorder.warning(
            &context.identity,
            None,
            warning.reason.as_str(),
            warning.message,
        );
    }
    Ok(dns)
}

/// The request for the pod's sandbox of that attempt. Boxed, because it has a kilobyte, and is kept while the runtime works.
///
/// # Errors
/// The spec cannot be satisfied.
pub fn sandbox_request(
    context: &PassContext,
    prepared: &Prepared,
    attempt: u32,
) -> Result<Box<SandboxRequest>, ConfigError> {
    let pod = &*context.pod;
    let mut request = Box::new(compute_sandbox_request(&SandboxInputs {
        pod,
        node: &context.handles.ctx.node_facts,
        facts: &prepared.facts,
        attempt,
        dns: &prepared.dns,
        cgroup_parent: &prepared.cgroup_parent,
    })?);
    if context.handles.resources.admissions.disable_quota_of(pod)
        && let Some(resources) = &mut request.resources
    {
        lift_quota(resources);
    }
    Ok(request)
}
