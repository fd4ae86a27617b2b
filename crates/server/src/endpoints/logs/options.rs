//! Parses the query options of service logs. Pure.

use std::fmt::Debug;

use jiff::Timestamp;
use model::NodeLogOptions;

use crate::query::first;

const MAX_SERVICES: usize = 4;
const MAX_NAME_BYTES: usize = 256;
const MAX_LINES: i64 = 100_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The file of the URL's path.
    Path,
    Logs(LogQuery),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogQuery {
    pub(crate) services: Vec<String>,
    /// Names with a slash are files.
    pub(crate) files: Vec<String>,
    pub(crate) options: NodeLogOptions,
}

/// The error of an invalid value, as Kubernetes formats it.
pub(crate) fn invalid(name: &str, value: &impl Debug, why: &str) -> String {
    format!("{name}: Invalid value: {value:?}: {why}")
}

/// A single problem is unchanged, several are in brackets.
fn together(problems: Vec<String>) -> Result<(), String> {
    match <[String; 1]>::try_from(problems) {
        Ok([problem]) => Err(problem),
        Err(none) if none.is_empty() => Ok(()),
        Err(several) => Err(format!("[{}]", several.join(", "))),
    }
}

/// # Errors
/// Values that cannot be parsed.
pub(crate) fn read(query: &[(String, String)]) -> Result<Wanted, String> {
    let mut problems = Vec::new();
    let queries: Vec<_> = query.iter().filter(|(name, _)| name == "query").map(|(_, value)| value).collect();
    let (files, names): (Vec<String>, Vec<String>) =
        queries.iter().map(|text| (*text).clone()).partition(|text| text.contains(['/', '\\']));
    let services: Vec<String> = names.into_iter().filter(|text| !text.trim().is_empty()).collect();
    if !queries.is_empty() && files.is_empty() && services.is_empty() {
        problems.push(invalid("query", &queries, "query cannot be empty"));
    }
    let value = |name| first(query, name).filter(|value| !value.is_empty());
    let mut time = |name| -> Option<Timestamp> {
        let text = value(name)?;
        let time = text.parse().ok();
        if time.is_none() {
            problems.push(invalid(name, &text, "invalid time format"));
        }
        time
    };
    let (since, until) = (time("sinceTime"), time("untilTime"));
    let mut number = |name| -> Option<i64> {
        let text = value(name)?;
        let number = text.parse().ok();
        if number.is_none() {
            problems.push(invalid(name, &text, &format!("parsing {text:?}: invalid syntax")));
        }
        number
    };
    let (boot, tail_lines) = (number("boot"), number("tailLines"));
    together(problems)?;
    let pattern = value("pattern").unwrap_or_default().to_owned();
    let log_query =
        LogQuery { services, files, options: NodeLogOptions { since, until, tail_lines, boot, pattern } };
    Ok(if log_query == LogQuery::default() { Wanted::Path } else { Wanted::Logs(log_query) })
}

impl LogQuery {
    /// # Errors
    /// Invalid combinations and values.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut problems = Vec::new();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_@".contains(c);
        for service in &self.services {
            if service.len() > MAX_NAME_BYTES {
                problems.push(invalid("query", service, "length must be less than 257"));
            } else if !service.chars().all(is_plain) {
                problems.push(invalid("query", service, "input contains unsupported characters"));
            }
        }
        let (services, options) = (self.services.len(), &self.options);
        if services > MAX_SERVICES {
            problems.push(format!("query: Too many: {services}: must have at most {MAX_SERVICES} items"));
        }
        match (self.files.len(), services) {
            (0, 0) => problems.push("query: Required value: cannot be empty with options".to_owned()),
            (1.., 1..) => {
                let all: Vec<_> = self.files.iter().chain(&self.services).collect();
                problems.push(invalid("query", &all, "cannot specify a file and service"));
            }
            (2.., 0) => {
                problems.push(invalid("query", &self.files, "cannot specify more than one file"));
            }
            (1, 0) if *options != NodeLogOptions::default() => {
                problems.push(invalid("query", &self.files, "cannot specify file with options"));
            }
            (1, 0) | (0, 1..) => {}
        }
        if let (Some(since), Some(until)) = (options.since, options.until)
            && since > until
        {
            problems.push(invalid("untilTime", &until, "must be after `sinceTime`"));
        }
        if let Some(boot) = options.boot.filter(|boot| *boot > 0) {
            problems.push(invalid("boot", &boot, "must be less than 1"));
        }
        if let Some(lines) = options.tail_lines.filter(|lines| !(0..=MAX_LINES).contains(lines)) {
            let why = format!("must be between 0 and {MAX_LINES}, inclusive");
            problems.push(invalid("tailLines", &lines, &why));
        }
        together(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::pairs;

    fn parsed(query: &str) -> LogQuery {
        match read(&pairs(Some(query))).unwrap() {
            Wanted::Logs(log_query) => log_query,
            Wanted::Path => panic!("{query}"),
        }
    }

    #[test]
    fn queries_and_paths_are_distinguished() {
        assert_eq!(read(&pairs(None)), Ok(Wanted::Path));
        assert_eq!(read(&pairs(Some("other=1"))), Ok(Wanted::Path));
        let all = parsed(
            "query=kubelet&query=%2Fa.log&sinceTime=2026-01-01T00:00:00Z&tailLines=5&boot=-1&pattern=x%7Cy",
        );
        assert_eq!((&*all.services, &*all.files), (&["kubelet".to_owned()][..], &["/a.log".to_owned()][..]));
        let options = all.options;
        assert_eq!((options.tail_lines, options.boot, &*options.pattern), (Some(5), Some(-1), "x|y"));
        assert_eq!(options.since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
    }

    #[test]
    fn unparsable_values_are_reported() {
        let error = |query: &str| read(&pairs(Some(query))).unwrap_err();
        assert_eq!(error("query=+"), r#"query: Invalid value: [" "]: query cannot be empty"#);
        assert_eq!(
            error("query=a&sinceTime=x&boot=y"),
            r#"[sinceTime: Invalid value: "x": invalid time format, boot: Invalid value: "y": parsing "y": invalid syntax]"#
        );
    }

    #[test]
    fn invalid_queries_are_reported() {
        let error = |query: &str| parsed(query).check().unwrap_err();
        for (query, expected) in [
            ("tailLines=5", "query: Required value: cannot be empty with options"),
            ("query=a;b", r#"query: Invalid value: "a;b": input contains unsupported characters"#),
            ("query=a&query=/b", r#"query: Invalid value: ["/b", "a"]: cannot specify a file and service"#),
            ("query=/a&query=/b", r#"query: Invalid value: ["/a", "/b"]: cannot specify more than one file"#),
            ("query=/a&boot=0", r#"query: Invalid value: ["/a"]: cannot specify file with options"#),
            ("query=a&boot=1", "boot: Invalid value: 1: must be less than 1"),
            ("query=a&tailLines=-1", "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive"),
            (
                "query=a&tailLines=100001",
                "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
            ),
            (
                "query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z",
                "untilTime: Invalid value: 2026-01-01T00:00:00Z: must be after `sinceTime`",
            ),
        ] {
            assert_eq!(error(query), expected, "{query}");
        }
        let five = "query=a&query=b&query=c&query=d&query=e";
        assert_eq!(error(five), "query: Too many: 5: must have at most 4 items");
        parsed("query=a&query=b&query=c&query=d&tailLines=100000&boot=0").check().unwrap();
    }
}
