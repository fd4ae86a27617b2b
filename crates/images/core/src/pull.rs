//! When to pull an image, and the messages about it (docs/behaviour/images.md). Never pulls.

use std::fmt;
use std::time::Duration;

use config::GoDuration;

/// `imagePullPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// Unknown and absent values mean the default for tagged images; validation has rejected the former.
    #[must_use]
    pub fn parse(policy: Option<&str>) -> Self {
        match policy {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            _ => Self::IfNotPresent,
        }
    }

    /// The value of the metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::IfNotPresent => "ifnotpresent",
            Self::Never => "never",
        }
    }
}

/// What to do about an image before a container is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullDecision {
    /// The image exists, and no pull is needed.
    UsePresent,
    Pull,
    /// The image does not exist and must not be pulled: waiting reason `ErrImageNeverPull`.
    Refuse,
}

/// Whether to pull.
#[must_use]
pub const fn compute_pull(policy: PullPolicy, is_present: bool) -> PullDecision {
    match (policy, is_present) {
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, false) => PullDecision::Pull,
        (PullPolicy::IfNotPresent | PullPolicy::Never, true) => PullDecision::UsePresent,
        (PullPolicy::Never, false) => PullDecision::Refuse,
    }
}

/// Why a container waits for its image, as `state.waiting.reason` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageProblem {
    InvalidName,
    Inspect,
    NeverPull,
    BackOff,
    Pull,
    RegistryUnavailable,
    SignatureValidation,
}

impl ImageProblem {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidName => "InvalidImageName",
            Self::Inspect => "ImageInspectError",
            Self::NeverPull => "ErrImageNeverPull",
            Self::BackOff => "ImagePullBackOff",
            Self::Pull => "ErrImagePull",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::SignatureValidation => "SignatureValidationFailed",
        }
    }
}

impl fmt::Display for ImageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The meaning of a failed pull, with its waiting message. Runtimes mark the two special cases by a prefix of the error,
/// which the message omits.
#[must_use]
pub fn classify_pull_error(image: &str, error: &str) -> (ImageProblem, String) {
    let special = [
        (ImageProblem::RegistryUnavailable, "the registry is unavailable"),
        (ImageProblem::SignatureValidation, "the signature validation failed"),
    ];
    for (problem, cause) in special {
        if let Some(detail) = error.strip_prefix(problem.as_str()) {
            return (problem, format!("image pull failed for {image} because {cause}{detail}"));
        }
    }
    (ImageProblem::Pull, error.to_owned())
}

/// The error of a pull as events and states show it, without the code of an unknown gRPC error.
#[must_use]
pub fn without_unknown_code(error: &str) -> &str {
    error.strip_prefix("rpc error: code = Unknown desc = ").unwrap_or(error)
}

/// The errors of several attempts as one: each distinct one once, in brackets where there are several.
#[must_use]
pub fn join_errors(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Event `Failed` (Warning) of a container whose image is not ready, next to the event that names the cause.
#[must_use]
pub fn container_event(reason: &str) -> String {
    format!("Error: {reason}")
}

/// Event `ErrImageNeverPull` (Warning), and the waiting message.
#[must_use]
pub fn never_pull_message(image: &str) -> String {
    format!("Container image {image:?} is not present with pull policy of Never")
}

/// Event `Pulled` where nothing had to be pulled.
#[must_use]
pub fn already_present_message(image: &str) -> String {
    format!("Container image {image:?} already present on machine and can be accessed by the pod")
}

/// Event `Pulling`.
#[must_use]
pub fn pulling_message(image: &str) -> String {
    format!("Pulling image {image:?}")
}

/// Event `Pulled` after a pull: how long it took, alone and with the time in the queue, and how big the image is.
#[must_use]
pub fn pulled_message(image: &str, pulling: Duration, with_waiting: Duration, size_bytes: u64) -> String {
    format!(
        "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {size_bytes} bytes.",
        to_millis(pulling),
        to_millis(with_waiting),
    )
}

/// Event `Failed` (Warning).
#[must_use]
pub fn failed_message(image: &str, error: &str) -> String {
    format!("Failed to pull image {image:?}: {error}")
}

/// The waiting message if pull records cannot be written: a pull that could not be recorded is not started.
#[must_use]
pub fn not_noted_message(image: &str, problem: &str) -> String {
    format!("Failed to record image pull intent for container image {image:?}: {problem}")
}

/// Event `BackOff`.
#[must_use]
pub fn back_off_event(image: &str) -> String {
    format!("Back-off pulling image {image:?}")
}

/// The waiting message during back-off: its state, and the previous error.
#[must_use]
pub fn back_off_message(image: &str, last: Option<(ImageProblem, &str)>) -> String {
    match last {
        Some((problem, error)) => format!("{}: {problem}: {error}", back_off_event(image)),
        None => back_off_event(image),
    }
}

/// Event `InspectFailed` (Warning), and the waiting message. The Go kubelet quotes the image's ID, which is not known here,
/// so the quotes are empty; pod and container are in the event.
#[must_use]
pub fn inspect_failed_message(error: &str) -> String {
    format!("Failed to inspect image \"\": {error}")
}

/// As Go writes it, truncated to milliseconds.
fn to_millis(duration: Duration) -> GoDuration {
    GoDuration::from(Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_and_what_is_there_decide() {
        use PullDecision::{Pull, Refuse, UsePresent};
        let table = [
            (Some("Always"), true, Pull),
            (Some("Always"), false, Pull),
            (Some("IfNotPresent"), true, UsePresent),
            (Some("IfNotPresent"), false, Pull),
            (None, true, UsePresent),
            (None, false, Pull),
            (Some("Never"), true, UsePresent),
            (Some("Never"), false, Refuse),
        ];
        for (policy, is_present, expected) in table {
            assert_eq!(
                compute_pull(PullPolicy::parse(policy), is_present),
                expected,
                "{policy:?} {is_present}"
            );
        }
    }

    #[test]
    fn durations_read_as_in_go() {
        let table = [
            (0, "0s"),
            (1, "1ms"),
            (350, "350ms"),
            (1000, "1s"),
            (1200, "1.2s"),
            (1034, "1.034s"),
            (60_000, "1m0s"),
            (62_500, "1m2.5s"),
            (3_600_000, "1h0m0s"),
            (7_325_001, "2h2m5.001s"),
        ];
        for (millis, expected) in table {
            assert_eq!(to_millis(Duration::from_millis(millis)).to_string(), expected);
        }
        assert_eq!(to_millis(Duration::from_micros(1_999)).to_string(), "1ms");
    }

    #[test]
    fn image_messages_are_those_of_the_go_kubelet() {
        assert_eq!(
            never_pull_message("x"),
            r#"Container image "x" is not present with pull policy of Never"#
        );
        assert_eq!(
            already_present_message("x"),
            r#"Container image "x" already present on machine and can be accessed by the pod"#
        );
        assert_eq!(pulling_message("x"), r#"Pulling image "x""#);
        assert_eq!(
            pulled_message("x", Duration::from_millis(1200), Duration::from_millis(1300), 42),
            r#"Successfully pulled image "x" in 1.2s (1.3s including waiting). Image size: 42 bytes."#
        );
        assert_eq!(failed_message("x", "no"), r#"Failed to pull image "x": no"#);
        assert_eq!(inspect_failed_message("no"), r#"Failed to inspect image "": no"#);
        assert_eq!(container_event("ImagePullBackOff"), "Error: ImagePullBackOff");
    }

    #[test]
    fn back_off_message_contains_the_previous_error() {
        assert_eq!(back_off_message("x", None), r#"Back-off pulling image "x""#);
        assert_eq!(
            back_off_message("x", Some((ImageProblem::Pull, "no such host"))),
            r#"Back-off pulling image "x": ErrImagePull: no such host"#
        );
    }

    /// The values of `image_manager_test.go` (TestEvalCRIPullErr).
    #[test]
    fn pull_error_prefix_is_classified_and_trimmed() {
        let check = |error, reason: &str, message| {
            let (problem, text) = classify_pull_error("test", error);
            assert_eq!((problem.as_str(), text.as_str()), (reason, message), "{error}");
        };
        check("pull error", "ErrImagePull", "pull error");
        check(
            "RegistryUnavailable",
            "RegistryUnavailable",
            "image pull failed for test because the registry is unavailable",
        );
        check(
            "RegistryUnavailable: foo",
            "RegistryUnavailable",
            "image pull failed for test because the registry is unavailable: foo",
        );
        check(
            "SignatureValidationFailed",
            "SignatureValidationFailed",
            "image pull failed for test because the signature validation failed",
        );
        check(
            "SignatureValidationFailed: bar",
            "SignatureValidationFailed",
            "image pull failed for test because the signature validation failed: bar",
        );
        check("x RegistryUnavailable", "ErrImagePull", "x RegistryUnavailable");
    }

    #[test]
    fn unknown_grpc_code_is_left_out_of_pull_errors() {
        let unknown = "rpc error: code = Unknown desc = SignatureValidationFailed: bar";
        assert_eq!(without_unknown_code(unknown), "SignatureValidationFailed: bar");
        let known = "rpc error: code = NotFound desc = not found";
        assert_eq!(without_unknown_code(known), known);
        assert_eq!(without_unknown_code("plain"), "plain");
    }

    /// As `k8s.io/apimachinery/pkg/util/errors` writes an aggregate.
    #[test]
    fn errors_of_several_credentials_are_joined() {
        let joined = |errors: &[&str]| {
            join_errors(&errors.iter().map(|error| (*error).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(joined(&["denied"]), "denied");
        assert_eq!(joined(&["denied", "denied"]), "denied");
        assert_eq!(joined(&["denied", "not found"]), "[denied, not found]");
        assert_eq!(joined(&["a", "b", "a"]), "[a, b]");
    }
}
