//! Versions of semver.org 2.0.0, and their order.

use std::cmp::Ordering;

/// The longest version that is parsed.
const MAX_LENGTH: usize = 256;

/// A version. Build metadata takes no part in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) patch: u64,
    pre_release: Vec<Identifier>,
}

/// A part of a pre-release. Numbers come before texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Version {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LENGTH {
            return None;
        }
        let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
        if build.is_some_and(|build| !build.split('.').all(is_identifier)) {
            return None;
        }
        let (numbers, pre) = rest.split_once('-').map_or((rest, None), |(rest, pre)| (rest, Some(pre)));
        let mut parts = numbers.split('.');
        let mut next = || parts.next().and_then(number);
        let (major, minor, patch) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return None;
        }
        let pre_release = match pre {
            Some(pre) => pre.split('.').map(identifier).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        Some(Self { major, minor, patch, pre_release })
    }

    /// As [`Version::parse`], but a leading `v` is ignored, missing parts are zero, and leading zeros are removed.
    pub(super) fn parse_relaxed(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let (numbers, rest) = text.split_at_checked(end)?;
        let mut parts: Vec<&str> = numbers.split('.').map(without_zeros).collect();
        if parts.len() < 3 && !rest.is_empty() {
            return None;
        }
        while parts.len() < 3 {
            parts.push("0");
        }
        Self::parse(&format!("{}{rest}", parts.join(".")))
    }
}

fn without_zeros(part: &str) -> &str {
    match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0",
        rest => rest,
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}

fn identifier(text: &str) -> Option<Identifier> {
    if !is_identifier(text) {
        return None;
    }
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => number(text).map(Identifier::Number),
        false => Some(Identifier::Text(text.to_owned())),
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        // A version is newer than its pre-releases.
        let is_final = |version: &Self| version.pre_release.is_empty();
        numbers(self)
            .cmp(&numbers(other))
            .then_with(|| is_final(self).cmp(&is_final(other)))
            .then_with(|| self.pre_release.cmp(&other.pre_release))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_semver() {
        // The example of semver.org, paragraph 11.
        let ordered = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "2.0.0",
            "2.1.0",
            "2.1.1",
        ];
        let versions: Vec<Version> = ordered.iter().map(|text| Version::parse(text).expect(text)).collect();
        assert!(versions.is_sorted_by(|one, other| one < other));
        assert_eq!(Version::parse("1.0.0+a").cmp(&Version::parse("1.0.0+b")), Ordering::Equal);
    }

    #[test]
    fn only_complete_versions_are_versions_unless_they_are_relaxed() {
        for text in ["", "1", "1.2", "1.2.3.4", "01.2.3", "v1.2.3", "1.2.3-", "1.2.3-01", "1.2.x", "1.2.3+"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        for (text, expected) in
            [("v1.2.3", "1.2.3"), ("1", "1.0.0"), ("v01.02", "1.2.0"), ("1.2.3-rc.1", "1.2.3-rc.1")]
        {
            assert_eq!(Version::parse_relaxed(text), Version::parse(expected), "{text}");
        }
        assert_eq!(Version::parse_relaxed("1.2-rc"), None);
        assert_eq!(Version::parse_relaxed(""), None);
    }
}
