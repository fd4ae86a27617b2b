//! Variables from a file that an init container writes (`fileKeyRef`, docs/behaviour/pod-environment.md): which files a
//! container needs, and how they are parsed. Never opens a file.

use api_core::env_objects::EnvFile;
use std::collections::{BTreeMap, BTreeSet};

use model::containers::ContainerRef;

/// A file longer than this many bytes is rejected.
pub const LONGEST_ENV_FILE: usize = 64 << 10;
/// Maximum size of all files together from which one container takes variables.
pub const MAX_ENV_FILES_TOTAL: usize = 2 << 20;

/// Why a file cannot be used; the message follows the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct EnvFileError {
    /// Counted from one.
    pub line: usize,
    pub problem: &'static str,
}

/// Every file from which the container takes a variable, optional ones too.
#[must_use]
pub fn required_env_files(container: &ContainerRef<'_>) -> BTreeSet<EnvFile> {
    let sources = container.env().iter().filter_map(|variable| variable.value_from.as_ref());
    sources.filter_map(|source| source.file_key_ref.as_ref()).map(EnvFile::of).collect()
}

/// Parses the variables of a file: `NAME='value'` on separate lines, with comments and blank lines between. A value is
/// literal and may span lines; of several values for one name the last is used. Anything that a shell would parse
/// differently is an error.
///
/// # Errors
/// The first line that cannot be parsed.
pub(crate) fn read_env_file(text: &str) -> Result<BTreeMap<&str, &str>, EnvFileError> {
    let mut variables = BTreeMap::new();
    let mut rest = text;
    let mut line = 1;
    while !rest.is_empty() {
        let (first, behind) = rest.split_once('\n').unwrap_or((rest, ""));
        let first = first.trim_start_matches(BLANK);
        if is_blank_or_comment(first) {
            (rest, line) = (behind, line + 1);
            continue;
        }
        let wrong = |problem| EnvFileError { line, problem };
        let at = rest.trim_start_matches(BLANK);
        let (name, value) = first.split_once('=').ok_or_else(|| wrong("must be NAME='value'"))?;
        if name.is_empty() {
            return Err(wrong("the name before '=' is missing"));
        }
        if name.ends_with(BLANK) || value.starts_with(BLANK) {
            return Err(wrong("no space is allowed around '='"));
        }
        let quoted = at.get(name.len() + 1..).and_then(|value| value.strip_prefix('\''));
        let quoted = quoted.ok_or_else(|| wrong("the value must be enclosed in single quotes"))?;
        let (value, after) = quoted.split_once('\'').ok_or_else(|| wrong("the closing quote is missing"))?;
        let (tail, behind) = after.split_once('\n').unwrap_or((after, ""));
        // To a shell, text that touches the quote belongs to the value, even a '#'.
        let is_over =
            tail.is_empty() || tail.starts_with(BLANK) && is_blank_or_comment(tail.trim_start_matches(BLANK));
        if !is_over {
            return Err(wrong("nothing but a comment may follow the closing quote"));
        }
        variables.insert(name, value);
        line += 1 + value.matches('\n').count();
        rest = behind;
    }
    Ok(variables)
}

const BLANK: [char; 3] = [' ', '\t', '\r'];

fn is_blank_or_comment(text: &str) -> bool {
    text.is_empty() || text.starts_with('#')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let read = read_env_file(text).map(|variables| format!("{variables:?}"));
        assert_eq!(read.unwrap_or_else(|error| error.to_string()), expected, "{text:?}");
    }

    #[test]
    fn env_file_values_are_literal_in_single_quotes() {
        check("", "{}");
        check("A='1'\nB='two words'", r#"{"A": "1", "B": "two words"}"#);
        check("A='$HOME \"x\" \\n # =' \t\n", r#"{"A": "$HOME \"x\" \\n # ="}"#);
        check("A=''\r\n", r#"{"A": ""}"#);
        check("A='one\n\n # two'\nB='3'\n", r#"{"A": "one\n\n # two", "B": "3"}"#);
        check("A='1'\nA='2'\n", r#"{"A": "2"}"#);
    }

    #[test]
    fn env_file_comments_blank_lines_and_indentation_are_skipped() {
        check("# A='0'\n\n \t\n  A='1' # why\n   # B='2'", r#"{"A": "1"}"#);
    }

    #[test]
    fn invalid_env_file_line_is_reported_with_its_number() {
        check("\nA=1", "line 2: the value must be enclosed in single quotes");
        check("A=\"1\"", "line 1: the value must be enclosed in single quotes");
        check("A=", "line 1: the value must be enclosed in single quotes");
        check("A='1''2'", "line 1: nothing but a comment may follow the closing quote");
        check("A='1'#no", "line 1: nothing but a comment may follow the closing quote");
        check("A='1'$B", "line 1: nothing but a comment may follow the closing quote");
        check("A='x\ny'\nB", "line 3: must be NAME='value'");
        check("A ='1'", "line 1: no space is allowed around '='");
        check("A= '1'", "line 1: no space is allowed around '='");
        check("='1'", "line 1: the name before '=' is missing");
        check("A='1'\nB='2\n", "line 2: the closing quote is missing");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(pairs in prop::collection::btree_map("[A-Z_]{1,4}", "[^']{0,12}", 0..5)) {
            let text: String = pairs.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect();
            let read = read_env_file(&text).unwrap();
            prop_assert!(read.iter().map(|(n, v)| (*n, *v)).eq(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str()))));
        }

        #[test]
        fn env_file_parser_accepts_or_rejects_any_text(text in "[A='#\\n \\t\\r\"ä]{0,40}") {
            let _ = read_env_file(&text);
        }
    }
}
