//! Waits of pods that an event names: which steps of a trail they are, what the event says, and when it is due.
//!
//! A step that fails has an event about its error. A step that neither fails nor ends would have none: for it there is a row here. Every
//! wait and its reason is listed in docs/behaviour/waits.md, which a test compares with [`WAITS`].

use std::time::Duration;

/// A shorter wait has no event.
pub const REPORT_AFTER: Duration = Duration::from_secs(10);
/// A wait that goes on is reported again after so long, because the API server forgets events after an hour.
pub const REPEAT_AFTER: Duration = Duration::from_mins(30);

/// The pod waits for pods that were preempted for it.
pub const BEHIND_PREEMPTED: &str = "pods that were preempted for it still hold their resources";
/// The pod waits for an older pod of its name.
pub const BEHIND_PREVIOUS: &str = "a pod of the same name still runs";
/// The runtime was not listed yet.
pub const RUNTIME_UNKNOWN: &str = "the container runtime has not reported yet what it runs";

/// The runtime is asked what runs of the pod.
pub const AWAITING_RUNTIME: &str = "AwaitingRuntime";
/// Earlier pods are admitted first, and a device plugin allocates.
pub const ADMITTING: &str = "Admitting";
pub const WAITING_TO_START: &str = "WaitingToStart";
pub const STOPPING_POD: &str = "StoppingPod";
pub const OVER_GRACE_PERIOD: &str = "OverGracePeriod";
pub const UNPREPARING_CLAIMS: &str = "UnpreparingClaims";
pub const RELEASING_RESOURCES: &str = "ReleasingResources";
pub const REMOVING_FILES: &str = "RemovingFiles";

/// Steps that last over several tries: they end when their aim is reached, not with a try.
pub const LASTING: [&str; 5] =
    [STOPPING_POD, OVER_GRACE_PERIOD, UNPREPARING_CLAIMS, RELEASING_RESOURCES, REMOVING_FILES];

/// A step that is worth an event when it lasts.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Its reason in the trail.
    pub step: &'static str,
    /// Its message, where one step can mean several waits.
    pub says: Option<&'static str>,
    /// The reason and the message of the event.
    pub reason: &'static str,
    pub message: &'static str,
    /// Events that name the wait as well: none is due within [`REPEAT_AFTER`] of one of them.
    pub named_by: &'static [&'static str],
}

const fn wait(
    step: &'static str,
    reason: &'static str,
    message: &'static str,
    named_by: &'static [&'static str],
) -> Wait {
    Wait { step, says: None, reason, message, named_by }
}

const KILL: &[&str] = &["FailedKillPod", "ExceededGracePeriod"];

pub const WAITS: &[Wait] = &[
    wait(
        ADMITTING,
        "WaitingForAdmission",
        "pod is not admitted yet: an earlier pod is being admitted, or a device plugin has not answered",
        &[],
    ),
    Wait {
        says: Some(BEHIND_PREEMPTED),
        ..wait(
            WAITING_TO_START,
            "WaitingForPreemption",
            "pod does not start before the pods that were preempted for it have ended",
            &[],
        )
    },
    Wait {
        says: Some(RUNTIME_UNKNOWN),
        ..wait(
            WAITING_TO_START,
            "WaitingForRuntime",
            "pod does not start before the container runtime has reported what it runs",
            &[],
        )
    },
    wait(
        AWAITING_RUNTIME,
        "WaitingForRuntime",
        "container runtime has not reported yet what runs of the pod",
        &[],
    ),
    wait(
        "PreparingVolumes",
        VOLUMES,
        "volumes of the pod are not mounted yet",
        &[
            "FailedMount",
            "FailedMapVolume",
            "FailedAttachVolume",
            "VolumePermissionChangeInProgress",
            "NetworkNotReady",
            "FailedCreatePodContainer",
        ],
    ),
    wait(
        "PreparingClaims",
        "WaitingForResourceClaims",
        "resource claims of the pod are not prepared yet by their drivers",
        &["FailedPrepareDynamicResources"],
    ),
    wait(
        "StoppingSandbox",
        "WaitingForSandboxToStop",
        "container runtime has not stopped the previous sandbox of the pod yet",
        &["FailedKillPod"],
    ),
    wait(
        "CreatingSandbox",
        "WaitingForSandbox",
        "container runtime has not created the sandbox and network of the pod yet",
        &["FailedCreatePodSandBox"],
    ),
    wait(
        "ReadingPullSecrets",
        "WaitingForPullSecrets",
        "image pull secrets of the pod are not read yet from the API server",
        &["FailedToRetrieveImagePullSecret"],
    ),
    wait(
        "EnsuringImage",
        "WaitingForImage",
        "image of the container is not on the node yet: other images are pulled first, or the container runtime has not answered",
        &["Pulling"],
    ),
    wait(
        "ConfiguringContainer",
        "WaitingForConfiguration",
        "container is not configured yet: services, ConfigMaps, Secrets, devices or files that it refers to are not read yet",
        &[],
    ),
    wait(
        "CreatingContainer",
        "WaitingForContainerCreation",
        "container runtime has not created the container yet",
        &[],
    ),
    wait(
        "StartingContainer",
        "WaitingForContainerStart",
        "container runtime has not started the container yet",
        &[],
    ),
    wait(
        "RunningPostStartHook",
        "WaitingForPostStartHook",
        "postStart hook of the container has not ended yet",
        &[],
    ),
    wait(
        "StoppingContainers",
        "WaitingForContainersToStop",
        "containers that are restarted or replaced have not stopped yet",
        &["Killing", "FailedKillPod"],
    ),
    wait(
        "RemovingContainers",
        "WaitingForContainerRemoval",
        "container runtime has not removed earlier instances of containers yet",
        &[],
    ),
    wait(
        "ResizingContainers",
        "WaitingForResize",
        "resources of the pod are not set yet by the container runtime",
        &[],
    ),
    wait(
        OVER_GRACE_PERIOD,
        "WaitingForContainersToEnd",
        "containers of the pod have not ended although their grace period is over",
        KILL,
    ),
    wait(
        UNPREPARING_CLAIMS,
        "WaitingForClaimRelease",
        "resource claims of the pod are not released yet by their drivers",
        KILL,
    ),
    wait(
        RELEASING_RESOURCES,
        "WaitingForRelease",
        "volumes, cgroup and user IDs of the pod are not released yet",
        KILL,
    ),
    wait(
        REMOVING_FILES,
        "WaitingForFileRemoval",
        "records, logs and directory of the pod are not removed yet",
        KILL,
    ),
];

/// The row of a step with that message.
#[must_use]
pub fn wait_of(step: &str, message: &str) -> Option<&'static Wait> {
    WAITS.iter().find(|wait| wait.step == step && wait.says.is_none_or(|says| says == message))
}

/// Whether the reason is that of an event which only says that a wait goes on.
#[must_use]
pub fn is_wait(reason: &str) -> bool {
    WAITS.iter().any(|wait| wait.reason == reason)
}

const VOLUMES: &str = "WaitingForVolumes";

/// An event that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueWait {
    pub reason: &'static str,
    pub message: &'static str,
    pub container: Option<String>,
    /// The wait was not reported before.
    pub is_first: bool,
}

impl DueWait {
    /// The message of the event; a wait for volumes names those that wait to be attached.
    #[must_use]
    pub fn with_detail(&self, unattached: &[String]) -> String {
        match unattached {
            [_, ..] if self.reason == VOLUMES => {
                format!("{}; not attached to this node: {}", self.message, unattached.join(", "))
            }
            _ => self.message.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn reason_of_an_event_is_not_that_of_a_step_which_it_would_replace_in_the_trail() {
        for wait in WAITS {
            assert!(WAITS.iter().all(|other| other.step != wait.reason), "{}", wait.reason);
        }
    }

    #[test]
    fn wait_for_volumes_names_those_that_are_not_attached() {
        let due = |reason| DueWait { reason, message: "it waits", container: None, is_first: true };
        let unattached = ["data".to_owned(), "logs".to_owned()];
        assert_eq!(due(VOLUMES).with_detail(&unattached), "it waits; not attached to this node: data, logs");
        assert_eq!(due(VOLUMES).with_detail(&[]), "it waits");
        assert_eq!(due("WaitingForSandbox").with_detail(&unattached), "it waits");
    }

    /// The reasons in the first backticks of the second column of the table.
    fn documented() -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/behaviour/waits.md");
        let text = std::fs::read_to_string(path).expect("the page");
        let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
        let reasons =
            rows.flat_map(|row| row.split('|').nth(2).unwrap_or_default().split('`').skip(1).step_by(2));
        reasons.map(str::to_owned).collect()
    }

    /// Every reason in quotes in the sources of the crates, tests left out.
    fn in_sources(folder: &Path, found: &mut BTreeSet<String>, wanted: &BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                let name = path.file_name().unwrap_or_default();
                if name != "tests" && name != "testing" && name != "target" {
                    in_sources(&path, found, wanted);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source");
                found.extend(wanted.iter().filter(|reason| text.contains(&format!("\"{reason}\""))).cloned());
            }
        }
    }

    #[test]
    fn every_wait_is_documented_with_its_reason_and_every_documented_reason_exists() {
        let documented = documented();
        for wait in WAITS {
            assert!(documented.contains(wait.reason), "docs/behaviour/waits.md lacks {}", wait.reason);
        }
        let mut known = BTreeSet::new();
        in_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &mut known, &documented);
        assert_eq!(
            documented.difference(&known).collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "no such reason"
        );
    }
}
