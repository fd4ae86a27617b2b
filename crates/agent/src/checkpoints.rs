//! Writing the state of a container to a file of the node, for those who ask.

use std::path::PathBuf;
use std::time::Duration;

use model::ContainerState;
use model::containers::find_container;
use ports::node_api::{PodRefusal, PodTarget};

use crate::container_logs::find_pod;
use crate::engine::Engine;
use crate::volumes::chain;

/// Returns the file. Without a `timeout` the runtime has as long as for any other call.
pub(crate) async fn write(
    engine: &Engine,
    pod: &PodTarget,
    container: &str,
    timeout: Option<Duration>,
) -> Result<PathBuf, PodRefusal> {
    let absent = || PodRefusal::NotFound("pod does not exist".to_owned());
    let entry = find_pod(engine, &pod.namespace, &pod.pod).map_err(|_| absent())?;
    if find_container(&entry.pod, container).is_none() {
        return Err(PodRefusal::NotFound(format!("container {container} does not exist")));
    }
    let failed = |why: String| {
        let PodTarget { namespace, pod, .. } = pod;
        PodRefusal::Failed(format!("checkpointing of {namespace}/{pod}/{container} failed ({why})"))
    };
    let observed = engine.cache.get(&model::PodRef::of(&entry.pod).uid);
    let containers = observed.iter().flat_map(|observed| &observed.containers);
    let mut running = containers.filter(|c| &*c.name == container && c.state == ContainerState::Running);
    let id = running.next().map(|found| found.id.clone());
    let id = id.ok_or_else(|| failed(format!("container {container} not found")))?;
    let dir = engine.settings.paths.checkpoints();
    engine.host.ensure_dir(&dir, 0o700).await.map_err(|error| failed(chain(&error)))?;
    let now = engine.clock.now().wall.strftime("%Y-%m-%dT%H:%M:%SZ");
    let file = dir.join(format!("checkpoint-{}_{}-{container}-{now}.tar", pod.pod, pod.namespace));
    let location = file.display().to_string();
    let written = engine.runtime.checkpoint_container(&id, &location, timeout.unwrap_or_default());
    written.await.map_err(|error| failed(error.to_string()))?;
    Ok(file)
}
