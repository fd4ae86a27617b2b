//! The latest verdicts of probes, by container instance. A restarted container is a new instance and starts without
//! verdicts.

use std::collections::BTreeMap;

use model::ContainerId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    Liveness,
    Readiness,
    Startup,
}

impl ProbeKind {
    pub const ALL: [Self; 3] = [Self::Liveness, Self::Readiness, Self::Startup];

    /// As in event messages: `Liveness probe failed: …`.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
            Self::Startup => "Startup",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Success,
    Failure,
    Unknown,
}

/// One container's verdicts; `None` where the probe has not decided yet (or does not exist).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerVerdicts {
    pub liveness: Option<Verdict>,
    pub readiness: Option<Verdict>,
    pub startup: Option<Verdict>,
}

/// All verdicts about the containers of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeVerdicts {
    by_container: BTreeMap<ContainerId, ContainerVerdicts>,
}

impl ProbeVerdicts {
    #[must_use]
    pub fn get(&self, id: &ContainerId) -> ContainerVerdicts {
        self.by_container.get(id).copied().unwrap_or_default()
    }

    /// Records a verdict; returns whether it differs from the one before.
    pub fn set(&mut self, id: &ContainerId, kind: ProbeKind, verdict: Verdict) -> bool {
        let entry = self.by_container.entry(id.clone()).or_default();
        let slot = match kind {
            ProbeKind::Liveness => &mut entry.liveness,
            ProbeKind::Readiness => &mut entry.readiness,
            ProbeKind::Startup => &mut entry.startup,
        };
        slot.replace(verdict) != Some(verdict)
    }

    /// Removes instances that are gone.
    pub fn retain(&mut self, mut keep: impl FnMut(&ContainerId) -> bool) {
        self.by_container.retain(|id, _| keep(id));
    }
}
