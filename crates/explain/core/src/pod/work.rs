//! What is under way for a pod, in words: steps of its trail that have not ended.

use base_core::waits::{
    ADMITTING, AWAITING_RUNTIME, OVER_GRACE_PERIOD, RELEASING_RESOURCES, REMOVING_FILES, REPORT_AFTER,
    UNPREPARING_CLAIMS, wait_of,
};
use jiff::Timestamp;
use model::explain::{Cause, TrailStep};

use super::PodFacts;
use crate::times::span;

/// The step as the reason why the pod is not as desired. One that lasts has an advice.
pub(super) fn under_way(step: &TrailStep, facts: &PodFacts<'_>) -> Cause {
    let now = facts.now;
    let lasts = now.duration_since(step.began).unsigned_abs() >= REPORT_AFTER;
    let advice = advice_of(&step.reason).filter(|_| lasts);
    // As the event about it has it, which is due after ten seconds.
    let reason = wait_of(&step.reason, &step.message).map_or(&*step.reason, |wait| wait.reason);
    Cause {
        reason: reason.to_owned(),
        container: step.container.clone(),
        what: format!("{}, for {} now.", describe_work(step, &facts.trail), span(step.began, now)),
        advice: advice.map(str::to_owned).into_iter().collect(),
        ..Cause::default()
    }
}

/// Steps of a start, and the warnings about them, in the order in which they come.
pub(super) fn order(reason: &str) -> u8 {
    match reason {
        ADMITTING => 0,
        "PreparingVolumes"
        | "NetworkNotReady"
        | "FailedCreatePodContainer"
        | "FailedMount"
        | "FailedMapVolume"
        | "FailedAttachVolume"
        | "Failed" => 1,
        "PreparingClaims" | "FailedPrepareDynamicResources" => 2,
        "StoppingSandbox" | "CreatingSandbox" | "FailedCreatePodSandBox" => 3,
        _ => 4,
    }
}

fn describe_work(step: &TrailStep, trail: &[TrailStep]) -> String {
    let container = step.container.as_deref().unwrap_or_default();
    match step.reason.as_str() {
        "PreparingVolumes" => "Its volumes are being mounted".to_owned(),
        "PreparingClaims" => "The drivers of its resource claims prepare its devices".to_owned(),
        "CreatingSandbox" => "The container runtime creates its sandbox and network".to_owned(),
        "EnsuringImage" => match pulled_since(step.began, step, trail) {
            Some(image) => format!("The image {image} of container {container} is being pulled"),
            None => format!(
                "Container {container} waits for its image: other pulls come first, or the runtime does not answer"
            ),
        },
        "AwaitingPull" => {
            let image = pulled_since(Timestamp::MIN, step, trail).unwrap_or_default();
            format!(
                "The image {image} of container {container} waits for its turn: other images are pulled first"
            )
        }
        "CreatingContainer" => format!("The container runtime creates container {container}"),
        "StartingContainer" => format!("The container runtime starts container {container}"),
        "RunningPostStartHook" => format!("The postStart hook of container {container} runs"),
        "ReadingPullSecrets" => "Its image pull secrets are read from the API server".to_owned(),
        "ConfiguringContainer" => {
            format!("The objects and files that container {container} refers to are read")
        }
        "StoppingContainers" => "Containers that are restarted or replaced are being stopped".to_owned(),
        "StoppingSandbox" => "The container runtime stops its previous sandbox".to_owned(),
        "RemovingContainers" => {
            "The container runtime removes earlier instances of its containers".to_owned()
        }
        "ResizingContainers" => "The container runtime sets its resources".to_owned(),
        ADMITTING => "It is being admitted".to_owned(),
        AWAITING_RUNTIME => "The container runtime has not answered what runs of it".to_owned(),
        OVER_GRACE_PERIOD => "Its containers have not ended after their grace period".to_owned(),
        UNPREPARING_CLAIMS => "The drivers of its resource claims release its devices".to_owned(),
        RELEASING_RESOURCES => "Its volumes, cgroup and user IDs are being released".to_owned(),
        REMOVING_FILES => "Its records, logs and directory are being removed".to_owned(),
        other => format!("{other} is under way"),
    }
}

/// The image that a pull is under way for, which the event about it has in quotation marks.
fn pulled_since<'a>(since: Timestamp, step: &TrailStep, trail: &'a [TrailStep]) -> Option<&'a str> {
    let is_pull = |other: &&TrailStep| {
        other.reason == "Pulling" && other.container == step.container && other.began >= since
    };
    trail.iter().rev().find(is_pull)?.message.split('"').nth(1)
}

/// What an operator can do about a step that does not end.
fn advice_of(step: &str) -> Option<&'static str> {
    let advice = match step {
        AWAITING_RUNTIME | "StoppingSandbox" | "CreatingContainer" | "StartingContainer"
        | "RemovingContainers" | "ResizingContainers" => {
            "Look at the container runtime: crictl ps, journalctl -u containerd. Restarting it keeps running containers."
        }
        "CreatingSandbox" => {
            "Look at the container runtime and the network plugin: crictl pods, journalctl -u containerd."
        }
        ADMITTING => {
            "Look at the device plugins of the resources that the pod requests: kubectl logs of their pods."
        }
        "PreparingVolumes" => {
            "See which volume it is: kubectl describe pod; for a claim, kubectl get volumeattachments and the CSI driver's pods."
        }
        "PreparingClaims" | UNPREPARING_CLAIMS => {
            "Look at the pods of the drivers of its resource claims on this node: kubectl get resourceslices names them."
        }
        "AwaitingPull" => {
            "serializeImagePulls: false pulls several images at once; kubelet why lists the pods whose images are being pulled."
        }
        "EnsuringImage" => {
            "Large images take time; crictl pull IMAGE shows the progress. serializeImagePulls: false pulls several at once."
        }
        "ReadingPullSecrets" | "ConfiguringContainer" => {
            "Check the connection to the API server: kubelet why node."
        }
        OVER_GRACE_PERIOD => {
            "See which process does not end: crictl ps, ps -o pid,stat,wchan; state D waits for a disk or a network filesystem."
        }
        RELEASING_RESOURCES => {
            "Many files in a volume take time to remove: du --inodes shows how many are left. Otherwise see what keeps it busy: findmnt, fuser -m; a network filesystem whose server is away does not unmount."
        }
        REMOVING_FILES => {
            "See what is left in the pod's directory and in /var/log/pods, and whether that disk works."
        }
        _ => return None,
    };
    Some(advice)
}
