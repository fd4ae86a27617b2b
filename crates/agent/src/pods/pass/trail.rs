//! Records what a pass does in the pod's trail, with its duration.

use std::future::Future;

use base_core::trail::NewStep;

use super::PassContext;

/// What a pass spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    PrepareVolumes,
    PrepareClaims,
    CreateSandbox,
    EnsureImage,
    CreateContainer,
    StartContainer,
    PostStartHook,
}

impl Work {
    /// Its name in the trail.
    const fn reason(self) -> &'static str {
        match self {
            Self::PrepareVolumes => "PreparingVolumes",
            Self::PrepareClaims => "PreparingClaims",
            Self::CreateSandbox => "CreatingSandbox",
            Self::EnsureImage => "EnsuringImage",
            Self::CreateContainer => "CreatingContainer",
            Self::StartContainer => "StartingContainer",
            Self::PostStartHook => "RunningPostStartHook",
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
}
