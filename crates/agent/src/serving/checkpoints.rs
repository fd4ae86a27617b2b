//! Container checkpoints: writes the state of a container to a file of the node.

use std::path::PathBuf;
use std::time::Duration;

use base_agent::error_chain::chain;
use model::containers::find_container;
use ports::node_api::{PodRefusal, PodTarget};

use crate::serving::pod_lookup::PodLookup;

/// Returns the path of the file. Without a `timeout` the runtime's usual deadline applies.
pub(crate) async fn write(
    lookup: &PodLookup,
    pod: &PodTarget,
    container: &str,
    timeout: Option<Duration>,
) -> Result<PathBuf, PodRefusal> {
    let absent = || PodRefusal::NotFound("pod does not exist".to_owned());
    let entry = lookup.pod(&pod.namespace, &pod.pod).map_err(|_| absent())?;
    if find_container(&entry.pod, container).is_none() {
        return Err(PodRefusal::NotFound(format!("container {container} does not exist")));
    }
    let failed = |why: String| {
        let PodTarget { namespace, pod, .. } = pod;
        PodRefusal::Failed(format!("checkpointing of {namespace}/{pod}/{container} failed ({why})"))
    };
    let id = lookup.running_container_of(&entry.identity.uid, container).await;
    let id = id.ok_or_else(|| failed(format!("container {container} not found")))?;
    let ctx = &lookup.ctx;
    let dir = ctx.settings.paths.checkpoints();
    ctx.files.ensure_dir(&dir, 0o700).await.map_err(|error| failed(chain(&error)))?;
    let now = ctx.clock.now().wall.strftime("%Y-%m-%dT%H:%M:%SZ");
    let file = dir.join(format!("checkpoint-{}_{}-{container}-{now}.tar", pod.pod, pod.namespace));
    let location = file.display().to_string();
    let written = ctx.runtime.checkpoint_container(&id, &location, timeout.unwrap_or_default());
    written.await.map_err(|error| failed(error.to_string()))?;
    Ok(file)
}
