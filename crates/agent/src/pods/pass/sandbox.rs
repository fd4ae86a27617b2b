//! Creates and stops pod sandboxes.

use crate::metrics::KubeletMetrics;
use kubelet_core::pods::plan::SandboxReason;
use model::SandboxId;
use model::containers::spec_of;

use super::prepare::{Prepared, sandbox_request};
use super::{PassContext, Retry};

/// Stops the sandboxes one by one. On failure returns when to retry.
pub async fn stop_all(context: &PassContext, ids: &[SandboxId]) -> Result<(), Retry> {
    for id in ids {
        match context.handles.ctx.runtime.stop_sandbox(id).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                let message = format!("error killing pod: failed to \"KillPodSandbox\": {error}");
                context.handles.ctx.recorder.warning(&context.identity, None, "FailedKillPod", message);
                return Err(Retry::BackingOff);
            }
        }
    }
    Ok(())
}

/// Creates the sandbox. On failure returns when to retry.
pub async fn create(
    context: &PassContext,
    prepared: &Prepared,
    attempt: u32,
    why: SandboxReason,
) -> Result<(), Retry> {
    let handles = &context.handles;
    if why != SandboxReason::NoSandbox {
        let message = "Pod sandbox changed, it will be killed and re-created.";
        handles.ctx.recorder.normal(&context.identity, None, "SandboxChanged", message);
    }
    let failed = |message: String| {
        handles.ctx.recorder.warning(&context.identity, None, "FailedCreatePodSandBox", message);
        Err(Retry::BackingOff)
    };
    let request = match sandbox_request(context, prepared, attempt) {
        Ok(request) => request,
        Err(error) => return failed(format!("Failed to create pod sandbox: {error}")),
    };
    if let Err(error) = handles.ctx.files.ensure_dir(request.log_directory.as_ref(), 0o755).await {
        return failed(format!("Failed to create pod sandbox: {}", base_agent::error_chain::chain(&error)));
    }
    let has_own_users = !spec_of(&context.pod).host_users.unwrap_or(true);
    let began = handles.ctx.clock.mono();
    let created = handles.ctx.runtime.run_sandbox(&request).await;
    let took = handles.ctx.clock.mono().saturating_since(began);
    handles.ctx.metrics.get::<KubeletMetrics>().pod_started(
        &request.runtime_handler,
        has_own_users,
        took,
        created.is_ok(),
    );
    match created {
        Ok(id) => {
            tracing::info!(pod = %context.identity, sandbox = %id, attempt, reason = ?why, "Created pod sandbox");
            Ok(())
        }
        // If the outcome is uncertain, the next observation shows whether the sandbox exists.
        Err(error) => failed(format!("Failed to create pod sandbox: {}", error.rpc_message())),
    }
}
