//! Streams into a running pod: exec, attach and port-forward.

use std::time::Duration;

use ports::RuntimeError;
use ports::node_api::{PodRefusal, PodTarget};
use ports::runtime::Streams;

use crate::serving::pod_lookup::PodLookup;

pub(crate) async fn exec(
    lookup: &PodLookup,
    pod: &PodTarget,
    container: &str,
    command: &[String],
    streams: Streams,
) -> Result<String, PodRefusal> {
    let id = lookup.running_container(pod, container).await?;
    lookup.ctx.runtime.exec(&id, command, streams).await.map_err(failed)
}

pub(crate) async fn attach(
    lookup: &PodLookup,
    pod: &PodTarget,
    container: &str,
    streams: Streams,
) -> Result<String, PodRefusal> {
    let id = lookup.running_container(pod, container).await?;
    lookup.ctx.runtime.attach(&id, streams).await.map_err(failed)
}

pub(crate) async fn port_forward(
    lookup: &PodLookup,
    pod: &PodTarget,
    ports: &[u16],
) -> Result<String, PodRefusal> {
    let id = lookup.ready_sandbox(pod).await?;
    lookup.ctx.runtime.port_forward(&id, ports).await.map_err(failed)
}

/// Runs a command without a timeout; returns its standard output followed by its standard error.
pub(crate) async fn run(
    lookup: &PodLookup,
    pod: &PodTarget,
    container: &str,
    command: &[String],
) -> Result<Vec<u8>, PodRefusal> {
    let id = lookup.running_container(pod, container).await?;
    let mut result = lookup.ctx.runtime.exec_sync(&id, command, Duration::ZERO).await.map_err(failed)?;
    if result.exit_code != 0 {
        let (command, code) = (command.join(" "), result.exit_code);
        let stderr = String::from_utf8_lossy(&result.stderr);
        return Err(PodRefusal::Failed(format!("command '{command}' exited with {code}: {stderr}")));
    }
    result.stdout.append(&mut result.stderr);
    Ok(result.stdout)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: RuntimeError) -> PodRefusal {
    PodRefusal::Failed(error.to_string())
}
