//! Reaching into a running pod for those who ask: a command, the container's own process, or a port.

use std::time::Duration;

use kubelet_core::mirror::is_meant_by;
use model::{ContainerId, ContainerState, SandboxId};
use ports::RuntimeError;
use ports::node_api::{PodRefusal, PodTarget};
use ports::runtime::Streams;

use crate::cluster::key_of;
use crate::container_logs::find_pod;
use crate::engine::Engine;

pub(crate) async fn exec(
    engine: &Engine,
    (pod, container): (&PodTarget, &str),
    command: &[String],
    streams: Streams,
) -> Result<String, PodRefusal> {
    let id = running_container(engine, pod, container)?;
    engine.runtime.exec(&id, command, streams).await.map_err(failed)
}

pub(crate) async fn attach(
    engine: &Engine,
    (pod, container): (&PodTarget, &str),
    streams: Streams,
) -> Result<String, PodRefusal> {
    let id = running_container(engine, pod, container)?;
    engine.runtime.attach(&id, streams).await.map_err(failed)
}

pub(crate) async fn port_forward(
    engine: &Engine,
    pod: &PodTarget,
    ports: &[u16],
) -> Result<String, PodRefusal> {
    let id = ready_sandbox(engine, pod)?;
    engine.runtime.port_forward(&id, ports).await.map_err(failed)
}

/// Runs a command to its end, however long that is; what it wrote to both outputs, one after the other.
pub(crate) async fn run(
    engine: &Engine,
    (pod, container): (&PodTarget, &str),
    command: &[String],
) -> Result<Vec<u8>, PodRefusal> {
    let id = running_container(engine, pod, container)?;
    let mut result = engine.runtime.exec_sync(&id, command, Duration::ZERO).await.map_err(failed)?;
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

fn running_container(engine: &Engine, pod: &PodTarget, name: &str) -> Result<ContainerId, PodRefusal> {
    let uid = uid(engine, pod)?;
    let observed = engine.cache.get(&uid);
    let containers = observed.iter().flat_map(|observed| &observed.containers);
    let mut running = containers.filter(|c| &*c.name == name && c.state == ContainerState::Running);
    let found = running.next().map(|container| container.id.clone());
    found.ok_or_else(|| PodRefusal::Invalid(format!("container not found ({name:?})")))
}

fn ready_sandbox(engine: &Engine, pod: &PodTarget) -> Result<SandboxId, PodRefusal> {
    let uid = uid(engine, pod)?;
    let observed = engine.cache.get(&uid);
    let found = observed.as_ref().and_then(|observed| observed.ready_sandboxes().next());
    let name = || format!("{}_{}", pod.pod, pod.namespace);
    found
        .map(|sandbox| sandbox.id.clone())
        .ok_or_else(|| PodRefusal::Invalid(format!("pod not found ({:?})", name())))
}

/// Of the pod that is meant; a UID in the question must be its own, or that of the mirror which shows it.
fn uid(engine: &Engine, target: &PodTarget) -> Result<model::PodUid, PodRefusal> {
    let pod = find_pod(engine, &target.namespace, &target.pod)?.pod;
    if let Some(asked) = &target.uid {
        let in_api = engine.pods_in_api.borrow().objects.get(&key_of(&*pod)).cloned();
        if !is_meant_by(asked, &pod, in_api.as_deref()) {
            let text = format!("pod {:?} with UID {asked:?} does not exist", target.pod);
            return Err(PodRefusal::NotFound(text));
        }
    }
    Ok(model::PodRef::of(&pod).uid)
}
