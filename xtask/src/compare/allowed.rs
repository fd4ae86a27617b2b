//! The list of allowed differences: one for each line, `pattern<TAB>reason`. A pattern is matched against `subject what`; `*`
//! matches any text.

use super::Difference;

#[derive(Debug)]
pub(super) struct Allowed {
    entries: Vec<(String, String)>,
}

impl Allowed {
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entries = lines.filter_map(|line| line.split_once('\t'));
        Self { entries: entries.map(|(pattern, reason)| (pattern.to_owned(), reason.to_owned())).collect() }
    }

    /// The reason of the difference, if it is listed.
    pub(super) fn reason(&self, difference: &Difference) -> Option<&str> {
        let text = key(difference);
        let entry = self.entries.iter().find(|(pattern, _)| matches(pattern, &text));
        entry.map(|(_, reason)| reason.as_str())
    }

    /// Entries that match none of the differences.
    pub(super) fn unused(&self, found: &[Difference]) -> Vec<(&str, &str)> {
        let keys: Vec<String> = found.iter().map(key).collect();
        let unused = self.entries.iter().filter(|(pattern, _)| !keys.iter().any(|key| matches(pattern, key)));
        unused.map(|(pattern, reason)| (pattern.as_str(), reason.as_str())).collect()
    }
}

fn key(difference: &Difference) -> String {
    format!("{} {}", difference.subject, difference.what)
}

/// Whether the text matches the pattern.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(head) else { return false };
    let parts: Vec<&str> = rest.split('*').collect();
    let Some((last, middle)) = parts.split_last() else { return true };
    for part in middle {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.len() >= last.len() && left.ends_with(last)
}
