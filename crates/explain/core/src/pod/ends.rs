//! Why an instance of a container ended.

use base_core::exit_signal::signal_of_exit_code;
use model::explain::TrailStep;
use model::k8s::ContainerStateTerminated;

/// The kernel killed it for its memory, which needs no name of a signal.
const OOM_KILLED: &str = "OOMKilled";

/// `OOMKilled, exit code 137`; `Error, exit code 139 (SIGSEGV)`.
pub(super) fn describe_end(ended: &ContainerStateTerminated) -> String {
    let reason = ended.reason.as_deref().unwrap_or_default();
    let code = ended.exit_code;
    let signal = signal_of_exit_code(code).filter(|_| reason != OOM_KILLED);
    let signal = signal.map(|name| format!(" ({name})"));
    let code = format!("exit code {code}{}", signal.unwrap_or_default());
    if reason.is_empty() { code } else { format!("{reason}, {code}") }
}

/// Why the node ended the instance, if it did: the latest kill between its start and its end.
pub(super) fn ended_for(
    trail: &[TrailStep],
    container: &str,
    end: &ContainerStateTerminated,
) -> Option<String> {
    let started = end.started_at.as_ref()?.0;
    let ended = end.finished_at.as_ref()?.0;
    let is_its_kill = |step: &&TrailStep| {
        step.reason == "Killing"
            && step.container.as_deref() == Some(container)
            && step.began >= started
            // Ends are in whole seconds.
            && step.began.as_second() <= ended.as_second()
    };
    trail.iter().rev().find(is_its_kill).map(|step| step.message.clone())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use model::k8s::Time;

    use super::*;

    fn end(reason: &str, exit_code: i32) -> ContainerStateTerminated {
        let at = |second| Some(Time(Timestamp::from_second(second).unwrap()));
        ContainerStateTerminated {
            reason: Some(reason.to_owned()),
            exit_code,
            started_at: at(100),
            finished_at: at(200),
            ..ContainerStateTerminated::default()
        }
    }

    #[test]
    fn end_by_a_signal_has_its_name() {
        let shown =
            [("OOMKilled", 137), ("Error", 137), ("Error", 139), ("Error", 1), ("", 143), ("Completed", 0)]
                .map(|(reason, code)| describe_end(&end(reason, code)));
        assert_eq!(
            shown,
            [
                "OOMKilled, exit code 137",
                "Error, exit code 137 (SIGKILL)",
                "Error, exit code 139 (SIGSEGV)",
                "Error, exit code 1",
                "exit code 143 (SIGTERM)",
                "Completed, exit code 0",
            ]
        );
    }

    #[test]
    fn kill_of_the_instance_says_why_the_node_ended_it() {
        let step = |second, container: &str, message: &str| TrailStep {
            reason: "Killing".to_owned(),
            container: Some(container.to_owned()),
            message: message.to_owned(),
            began: Timestamp::from_second(second).unwrap(),
            ..TrailStep::default()
        };
        let trail = [
            step(50, "app", "an earlier instance"),
            step(170, "other", "another container"),
            step(190, "app", "Container app failed liveness probe, will be restarted"),
            step(300, "app", "a later instance"),
        ];
        let why = ended_for(&trail, "app", &end("Error", 137));
        assert_eq!(why.as_deref(), Some("Container app failed liveness probe, will be restarted"));
        assert_eq!(ended_for(&trail[..2], "app", &end("Error", 137)), None);
    }
}
