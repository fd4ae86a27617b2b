//! Records what a pass does in the pod's trail, with its duration.

use std::future::Future;

use base_core::trail::NewStep;

use super::PassContext;

/// What a pass spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    PrepareVolumes,
    PrepareClaims,
    StopContainers,
    StopSandbox,
    CreateSandbox,
    ReadPullSecrets,
    EnsureImage,
    ConfigureContainer,
    CreateContainer,
    StartContainer,
    PostStartHook,
    RemoveContainers,
    Resize,
}

impl Work {
    /// Its name in the trail.
    const fn reason(self) -> &'static str {
        match self {
            Self::PrepareVolumes => "PreparingVolumes",
            Self::PrepareClaims => "PreparingClaims",
            Self::StopContainers => "StoppingContainers",
            Self::StopSandbox => "StoppingSandbox",
            Self::CreateSandbox => "CreatingSandbox",
            Self::ReadPullSecrets => "ReadingPullSecrets",
            Self::EnsureImage => "EnsuringImage",
            Self::ConfigureContainer => "ConfiguringContainer",
            Self::CreateContainer => "CreatingContainer",
            Self::StartContainer => "StartingContainer",
            Self::PostStartHook => "RunningPostStartHook",
            Self::RemoveContainers => "RemovingContainers",
            Self::Resize => "ResizingContainers",
        }
    }
}

impl PassContext {
    /// Does the work, and records when it began and ended. If the pass is cancelled, the worker ends the step.
    pub(super) async fn traced<T>(
        &self,
        work: Work,
        container: Option<&str>,
        done: impl Future<Output = T>,
    ) -> T {
        let (trails, uid) = (&self.handles.ctx.recorder.trails, &self.identity.uid);
        trails.begin(uid, &NewStep { container, ..NewStep::new(work.reason(), "") });
        let result = done.await;
        trails.end(uid, work.reason(), container);
        result
    }

    /// The same, if there is such work at all.
    pub(super) async fn traced_if<T>(&self, has_work: bool, work: Work, done: impl Future<Output = T>) -> T {
        match has_work {
            true => self.traced(work, None, done).await,
            false => done.await,
        }
    }
}
