//! Resizes a running pod: sets limits of its cgroup and of its containers, in the order of
//! [`kubelet_core::pods::resize::steps`]. Ends at the first failure; the next pass goes on from what is set.

use base_agent::error_chain::chain;
use kubelet_core::pods::request::resources::overhead_resources;
use kubelet_core::pods::resize::changes::PodResize;
use kubelet_core::pods::resize::steps::{MemoryUse, ResizeInputs, ResizeStep, compute_steps};
use model::SandboxId;
use model::containers::find_container;
use model::request::LinuxResources;
use ports::RuntimeError;
use resources_core::amounts::Amounts;

use super::{PassContext, PassEvent, Retry};
use crate::metrics::ResizeMetrics;

/// Returns when to retry if something failed.
pub(super) async fn carry_out(
    context: &PassContext,
    sandbox: &SandboxId,
    resize: &PodResize,
) -> Option<Retry> {
    let ctx = &context.handles.ctx;
    let began = ctx.clock.mono();
    let outcome = try_all(context, sandbox, resize).await;
    ctx.metrics.get::<ResizeMetrics>().tried(outcome.is_ok(), ctx.clock.mono().saturating_since(began));
    match outcome {
        Ok(()) => {
            let amounts = Amounts::of_pod(&context.pod);
            context.report(PassEvent::PodResized { amounts }).await;
            None
        }
        Err(message) => {
            tracing::warn!(pod = %context.identity, err = message, "Failed to resize pod");
            context.report(PassEvent::ResizeFailed { message }).await;
            Some(Retry::BackingOff)
        }
    }
}

async fn try_all(context: &PassContext, sandbox: &SandboxId, resize: &PodResize) -> Result<(), String> {
    let handles = &context.handles;
    let cgroup = handles.cgroups.limits(&context.pod).await?;
    let usage = memory_use(context, resize).await;
    let steps = compute_steps(&ResizeInputs {
        pod: &context.pod,
        resize,
        node: &handles.ctx.node_facts,
        cgroup: cgroup.as_ref().map(|(desired, now)| (desired, *now)),
        usage: &usage,
    })?;
    for step in steps {
        act(context, sandbox, step).await?;
    }
    Ok(())
}

/// The memory in use, as far as it is known.
async fn memory_use(context: &PassContext, resize: &PodResize) -> MemoryUse {
    let mut usage =
        MemoryUse { pod: context.handles.cgroups.memory_use(&context.pod).await, ..MemoryUse::default() };
    for change in resize.containers.iter().filter(|change| change.smaller_memory_limit().is_some()) {
        let stats = context.handles.ctx.runtime.container_stats(&change.id).await;
        let bytes = stats.ok().and_then(|stats| stats.memory?.usage_bytes);
        usage.containers.extend(bytes.map(|bytes| (change.id.clone(), bytes)));
    }
    usage
}

async fn act(context: &PassContext, sandbox: &SandboxId, step: ResizeStep) -> Result<(), String> {
    match step {
        ResizeStep::Container { id, name, mut resources, amounts } => {
            lift_quota(context, &name, &mut resources);
            let runtime = &context.handles.ctx.runtime;
            runtime.update_container_resources(&id, &resources).await.map_err(|error| error.message())?;
            // On disk before the limits of the pod shrink: a kubelet that starts later continues from these amounts, and would set larger
            // ones of before again, which the pod then does not allow.
            context.record_amounts(name, amounts).await;
            Ok(())
        }
        ResizeStep::Pod { resource, numbers, after, before } => {
            report_limits(context, sandbox, &after).await.map_err(|why| {
                let resource = resource.name();
                format!(
                    "failed to notify runtime for UpdatePodSandboxResources (resource={resource}); resize rejected: {why}"
                )
            })?;
            let Err(error) = context.handles.cgroups.set(&context.pod, &numbers).await else { return Ok(()) };
            if let Err(why) = report_limits(context, sandbox, &before).await {
                tracing::warn!(pod = %context.identity, err = why, "Failed to withdraw the pod's limits from the runtime");
            }
            Err(chain(&error))
        }
    }
}

/// A quota would slow down a container whose CPUs are its own.
fn lift_quota(context: &PassContext, container: &str, resources: &mut LinuxResources) {
    let pod = &*context.pod;
    if let Some(container) = find_container(pod, container) {
        context.handles.resources.admissions.pins_of(pod, &container).lift_quota(resources);
    }
}

/// Reports the limits of the pod to the runtime before they are set, because it may refuse them. Most runtimes do not want to
/// know.
async fn report_limits(
    context: &PassContext,
    sandbox: &SandboxId,
    limits: &LinuxResources,
) -> Result<(), String> {
    let ctx = &context.handles.ctx;
    let overhead = overhead_resources(&context.pod, &ctx.node_facts);
    match ctx.runtime.update_sandbox_resources(sandbox, Some(&overhead), limits).await {
        Ok(()) | Err(RuntimeError::Unimplemented { .. }) => Ok(()),
        Err(error) => {
            Err(format!("updatePodSandboxResources failed for sandboxID \"{sandbox}\": {}", error.message()))
        }
    }
}
