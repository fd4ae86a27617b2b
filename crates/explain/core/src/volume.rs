//! Why a volume of a pod is as it is: mounted, waiting for something, or failing.

use jiff::Timestamp;
use model::explain::{Check, Explanation, Verdict};
use model::inventory::{VolumeItem, VolumeState};

use crate::advice::advice;
use crate::times::{clock_time, span};

/// What the node knows of a volume.
#[derive(Clone, Debug, Default)]
pub struct VolumeFacts {
    pub volume: VolumeItem,
    /// The driver of the VolumeAttachment that it waits for.
    pub driver: String,
    /// No container of the pod will run again.
    pub has_pod_ended: bool,
    /// Why the state of volumes is not known.
    pub problem: Option<String>,
    pub now: Timestamp,
}

/// Says why the volume is as it is.
#[must_use]
pub fn compute_volume_explanation(facts: &VolumeFacts) -> Explanation {
    let volume = &facts.volume;
    let state = state(facts);
    let mut checks = vec![state.clone(), made_from(volume), used(volume)];
    if !volume.attachment.is_empty() {
        checks.push(attachment(facts));
    }
    Explanation {
        name: format!("{}/{}/{}", volume.namespace, volume.pod, volume.name),
        verdict: checks.iter().map(|check| check.verdict).max().unwrap_or_default(),
        summary: state.what,
        checks,
        ..Explanation::default()
    }
}

fn check(name: &str, verdict: Verdict, what: impl Into<String>) -> Check {
    Check { name: name.to_owned(), verdict, what: what.into(), ..Check::default() }
}

fn state(facts: &VolumeFacts) -> Check {
    let volume = &facts.volume;
    if let Some(problem) = &facts.problem {
        let what = "It is not known how the volume is.";
        return Check { error: problem.clone(), ..check("state", Verdict::Waiting, what) };
    }
    let (verdict, what) = match volume.state {
        VolumeState::Mounted => (Verdict::Fine, "The volume is mounted.".to_owned()),
        VolumeState::NotMounted if facts.has_pod_ended => {
            (Verdict::Fine, "The volume is not mounted, because its pod has ended.".to_owned())
        }
        VolumeState::NotMounted => (
            Verdict::Waiting,
            "The node has not begun with the volume; see kubelet why for its pod.".to_owned(),
        ),
        VolumeState::Mounting if volume.failures == 0 => {
            (Verdict::Waiting, "The volume is being mounted.".to_owned())
        }
        VolumeState::Mounting => {
            (Verdict::Waiting, format!("The volume is being mounted, after {}.", tries(volume.failures)))
        }
        VolumeState::Failed => (Verdict::Waiting, failed(facts)),
        VolumeState::Refused => {
            (Verdict::Failed, "The volume cannot be mounted, and trying again does not help.".to_owned())
        }
        VolumeState::Unmounting if volume.error.is_empty() => {
            (Verdict::Waiting, "The volume is being unmounted.".to_owned())
        }
        VolumeState::Unmounting => {
            (Verdict::Waiting, "The volume cannot be unmounted, and the node goes on trying.".to_owned())
        }
    };
    let reason = if volume.state == VolumeState::Unmounting { "FailedUnmount" } else { "FailedMount" };
    let advice = if volume.error.is_empty() { Vec::new() } else { advice(reason, &volume.error) };
    Check { error: volume.error.clone(), advice, ..check("state", verdict, what) }
}

fn failed(facts: &VolumeFacts) -> String {
    let next = facts.volume.next_try.filter(|at| *at > facts.now);
    let next = match next {
        Some(at) => format!("the next try is in {}, at {}", span(facts.now, at), clock_time(at)),
        None => "the next try is due".to_owned(),
    };
    format!("The volume cannot be mounted: {}, {next}.", tries(facts.volume.failures))
}

fn tries(failures: u32) -> String {
    match failures {
        0 | 1 => "one try failed".to_owned(),
        count => format!("{count} tries in a row failed"),
    }
}

fn made_from(volume: &VolumeItem) -> Check {
    let source = if volume.source.is_empty() { String::new() } else { format!(" {}", volume.source) };
    check("made from", Verdict::Fine, format!("{}{source}", volume.kind))
}

fn used(volume: &VolumeItem) -> Check {
    let what = match volume.containers.as_slice() {
        [] => "No container mounts it.".to_owned(),
        [only] => format!("Container {only} mounts it."),
        all => format!("Containers {} mount it.", all.join(", ")),
    };
    check("used by", Verdict::Fine, what)
}

fn attachment(facts: &VolumeFacts) -> Check {
    let what = format!(
        "It waits until the attach-detach controller and driver {} have attached it: VolumeAttachment {}.",
        facts.driver, facts.volume.attachment
    );
    let advice = format!("See kubectl describe volumeattachment {}.", facts.volume.attachment);
    Check { advice: vec![advice], ..check("attached", Verdict::Waiting, what) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Style, node_text};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn shown(change: impl FnOnce(&mut VolumeFacts)) -> String {
        let volume = VolumeItem {
            namespace: "default".to_owned(),
            pod: "web".to_owned(),
            name: "data".to_owned(),
            kind: "hostPath".to_owned(),
            source: "/srv".to_owned(),
            containers: vec!["app".to_owned()],
            ..VolumeItem::default()
        };
        let mut facts = VolumeFacts { volume, now: at(100), ..VolumeFacts::default() };
        change(&mut facts);
        let style = Style { width: 110, has_color: false, now: at(100) };
        let explanation = compute_volume_explanation(&facts);
        format!("{:?}\n{}", explanation.verdict, node_text(&explanation, style))
    }

    #[test]
    fn volume_says_whether_it_is_mounted_what_it_waits_for_and_when_it_is_tried_again() {
        let mounted = shown(|facts| facts.volume.state = VolumeState::Mounted);
        let failed = shown(|facts| {
            facts.volume.state = VolumeState::Failed;
            facts.volume.failures = 3;
            facts.volume.error = "hostPath type check failed: /srv is not a directory".to_owned();
            facts.volume.next_try = Some(at(104));
        });
        let unattached = shown(|facts| {
            facts.volume.state = VolumeState::Mounting;
            facts.volume.attachment = "csi-1".to_owned();
            facts.driver = "disk.example".to_owned();
        });
        let ended = shown(|facts| facts.has_pod_ended = true);
        let unknown =
            shown(|facts| facts.problem = Some("the volume engine has not answered for 2 s".to_owned()));
        expect_test::expect![[r#"
            Fine
            default/web/data: The volume is mounted.
              state     The volume is mounted.
              made from hostPath /srv
              used by   Container app mounts it.
            Waiting
            default/web/data: The volume cannot be mounted: 3 tries in a row failed, the next try is in 4 s, at 00:01:44
            UTC.
              state     The volume cannot be mounted: 3 tries in a row failed, the next try is in 4 s, at 00:01:44 UTC.
                          error  hostPath type check failed: /srv is not a directory
                          do     Create the path on this node, or use the type DirectoryOrCreate.
              made from hostPath /srv
              used by   Container app mounts it.
            Waiting
            default/web/data: The volume is being mounted.
              state     The volume is being mounted.
              made from hostPath /srv
              used by   Container app mounts it.
              attached  It waits until the attach-detach controller and driver disk.example have attached it:
                        VolumeAttachment csi-1.
                          do     See kubectl describe volumeattachment csi-1.
            Fine
            default/web/data: The volume is not mounted, because its pod has ended.
              state     The volume is not mounted, because its pod has ended.
              made from hostPath /srv
              used by   Container app mounts it.
            Waiting
            default/web/data: It is not known how the volume is.
              state     It is not known how the volume is.
                          error  the volume engine has not answered for 2 s
              made from hostPath /srv
              used by   Container app mounts it.
        "#]].assert_eq(&[mounted, failed, unattached, ended, unknown].concat());
    }
}
