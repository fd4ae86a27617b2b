//! ExecSync: a command in a container, for probes and hooks. Its outputs are truncated (`exec_answer`).

use std::time::Duration;

use cri_api::v1 as wire;
use model::ContainerId;
use model::request::ExecResult;
use ports::runtime::{RuntimeError, RuntimeResult};

use super::whole_seconds;
use crate::CriRuntime;
use crate::call::Call;

pub(crate) async fn exec_sync(
    cri: &CriRuntime,
    id: &ContainerId,
    command: &[String],
    timeout: Duration,
) -> RuntimeResult<ExecResult> {
    // The runtime kills the command after `timeout`; the deadline is for a runtime that does not. Without a timeout for the
    // command there is no deadline for the call.
    let deadline = (!timeout.is_zero()).then(|| cri.request_timeout.saturating_add(timeout));
    let call = cri.call_within("ExecSync", deadline);
    let request = wire::ExecSyncRequest {
        container_id: id.as_str().to_owned(),
        cmd: command.to_vec(),
        timeout: whole_seconds(timeout),
    };
    let answer = call.answer(cri.exec_client().exec_sync(call.request(request))).await;
    let answer = answer.map_err(|error| name_the_commands_deadline(error, call, timeout))?;
    Ok(ExecResult { stdout: answer.stdout, stderr: answer.stderr, exit_code: answer.exit_code })
}

/// Reports a timeout with the command's timeout, whether the runtime or the deadline ended the call.
fn name_the_commands_deadline(error: RuntimeError, call: Call<'_>, timeout: Duration) -> RuntimeError {
    if matches!(error, RuntimeError::TimedOut { .. }) && !timeout.is_zero() {
        call.timed_out(timeout)
    } else {
        error
    }
}
