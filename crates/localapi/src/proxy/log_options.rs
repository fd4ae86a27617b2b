//! The parameters of `pods/log`: parsed, validated with the messages of the real server, and written for the kubelet.

use jiff::Timestamp;

use crate::http::{Query, encode};
use crate::object;
use crate::status::ApiError;
use crate::validation::{FieldError, Reason};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    /// Accept any certificate of the kubelet.
    pub(super) skip_verification: bool,
}

impl LogOptions {
    /// `pod` is the pod's name, for messages.
    pub(super) fn parse(query: &Query, pod: &str) -> Result<Self, ApiError> {
        let number = |name: &str| {
            let bad = |value| ApiError::bad_request(format!("{name}: {value:?} is not an integer"));
            query.get(name).map(|value| value.parse::<i64>().map_err(|_| bad(value))).transpose()
        };
        let since_time = query.get("sinceTime").map(|value| {
            let bad =
                |error| ApiError::bad_request(format!("sinceTime: {value:?} is not a valid time: {error}"));
            value.parse::<Timestamp>().map_err(bad)
        });
        let options = Self {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            since_seconds: number("sinceSeconds")?,
            since_time: since_time.transpose()?,
            tail_lines: number("tailLines")?,
            limit_bytes: number("limitBytes")?,
            skip_verification: query.flag("insecureSkipTLSVerifyBackend"),
        };
        let errors = options.errors();
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(ApiError::invalid_of_kind("PodLogOptions", "", pod, &errors))
        }
    }

    fn errors(&self) -> Vec<FieldError> {
        let at_least = |field: &str, value: Option<i64>, least: i64, rule: &str| {
            value.filter(|value| *value < least).map(|value| FieldError {
                field: field.to_owned(),
                reason: Reason::Invalid,
                message: format!("Invalid value: {value}: {rule}"),
            })
        };
        let both = self.since_seconds.is_some() && self.since_time.is_some();
        let since = if both {
            Some(FieldError {
                field: String::new(),
                reason: Reason::Forbidden,
                message: "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
                    .to_owned(),
            })
        } else {
            at_least("sinceSeconds", self.since_seconds, 1, "must be greater than 0")
        };
        let tail = at_least("tailLines", self.tail_lines, 0, "must be greater than or equal to 0");
        let limit = at_least("limitBytes", self.limit_bytes, 1, "must be greater than 0");
        [tail, limit, since].into_iter().flatten().collect()
    }

    /// The query of the kubelet's `/containerLogs`.
    pub(super) fn query(&self) -> String {
        let on = |set: bool| set.then(|| "true".to_owned());
        let number = |value: Option<i64>| value.map(|value| value.to_string());
        [
            ("follow", on(self.follow)),
            ("limitBytes", number(self.limit_bytes)),
            ("previous", on(self.previous)),
            ("sinceSeconds", number(self.since_seconds)),
            ("sinceTime", self.since_time.map(|at| encode(&object::time(at)))),
            ("tailLines", number(self.tail_lines)),
            ("timestamps", on(self.timestamps)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
        .collect::<Vec<_>>()
        .join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<LogOptions, ApiError> {
        LogOptions::parse(&Query::parse(query), "p")
    }

    #[test]
    fn log_options_are_passed_to_the_kubelet() {
        for (sent, expected) in [
            ("", ""),
            (
                "follow=true&previous=1&timestamps=true&tailLines=0&limitBytes=7&container=c",
                "follow=true&limitBytes=7&previous=true&tailLines=0&timestamps=true",
            ),
            ("sinceSeconds=5&follow=false", "sinceSeconds=5"),
            ("sinceTime=2026-01-02T03:04:05.678%2B01:00", "sinceTime=2026-01-02T02%3A04%3A05Z"),
        ] {
            assert_eq!(parse(sent).unwrap().query(), expected, "{sent}");
        }
        assert!(parse("insecureSkipTLSVerifyBackend=true").unwrap().skip_verification);
    }

    #[test]
    fn invalid_log_options_are_refused_by_name() {
        let invalid = "PodLogOptions \"p\" is invalid: ";
        for (sent, code, expected) in [
            (
                "tailLines=-1",
                422,
                format!("{invalid}tailLines: Invalid value: -1: must be greater than or equal to 0"),
            ),
            ("limitBytes=0", 422, format!("{invalid}limitBytes: Invalid value: 0: must be greater than 0")),
            (
                "sinceSeconds=0",
                422,
                format!("{invalid}sinceSeconds: Invalid value: 0: must be greater than 0"),
            ),
            (
                "sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z",
                422,
                format!(
                    "{invalid}: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
                ),
            ),
            ("tailLines=few", 400, "tailLines: \"few\" is not an integer".to_owned()),
        ] {
            let error = parse(sent).unwrap_err();
            assert_eq!((error.code.as_u16(), error.message), (code, expected), "{sent}");
        }
        assert!(
            parse("sinceTime=noon")
                .unwrap_err()
                .message
                .starts_with("sinceTime: \"noon\" is not a valid time")
        );
    }
}
