//! Which build of the kubelet runs: its version, the commit it was made from, and when that was.
//!
//! The binary fills it in; everything else passes it on.

use std::fmt;

/// A part that is not known is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    pub version: &'static str,
    /// The whole hash.
    pub commit: &'static str,
    /// The time of the commit, or `SOURCE_DATE_EPOCH`, in UTC: two builds of one commit are equal.
    pub date: &'static str,
}

/// Letters of a commit that are shown to people.
const SHORT: usize = 12;

impl fmt::Display for BuildInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kubelet-rs {}", self.version)?;
        match (self.commit.get(..SHORT).unwrap_or(self.commit), self.date) {
            ("", "") => f.write_str(" (commit unknown)"),
            ("", date) => write!(f, " ({date})"),
            (commit, "") => write!(f, " (commit {commit})"),
            (commit, date) => write!(f, " (commit {commit}, {date})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_is_shown_with_what_is_known_of_it() {
        let whole = BuildInfo {
            version: "0.1.0",
            commit: "0123456789abcdef0123456789abcdef01234567",
            date: "2026-11-27T22:33:05Z",
        };
        assert_eq!(whole.to_string(), "kubelet-rs 0.1.0 (commit 0123456789ab, 2026-11-27T22:33:05Z)");
        let dated = BuildInfo { commit: "", ..whole };
        assert_eq!(dated.to_string(), "kubelet-rs 0.1.0 (2026-11-27T22:33:05Z)");
        assert_eq!(BuildInfo { date: "", ..dated }.to_string(), "kubelet-rs 0.1.0 (commit unknown)");
    }
}
