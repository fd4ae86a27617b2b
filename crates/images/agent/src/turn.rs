//! A pull that waits for others, as a step of its pod's trail.

use base_agent::trails::PodTrails;
use base_core::trail::NewStep;
use model::PodUid;

/// The name of the step.
const AWAITING: &str = "AwaitingPull";

/// The step: it begins when this is made, and ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AwaitedTurn {
    trails: PodTrails,
    pod: PodUid,
    container: Option<String>,
}

impl AwaitedTurn {
    pub(crate) fn new(trails: &PodTrails, pod: &PodUid, container: Option<&str>) -> Self {
        trails.begin(pod, &NewStep { container, ..NewStep::new(AWAITING, "") });
        Self { trails: trails.clone(), pod: pod.clone(), container: container.map(str::to_owned) }
    }
}

impl Drop for AwaitedTurn {
    fn drop(&mut self) {
        self.trails.end(&self.pod, AWAITING, self.container.as_deref());
    }
}
