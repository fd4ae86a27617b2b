//! Size limits that can only become stricter. Functions and files over a limit are listed with their size, which may only
//! shrink. An entry that is too large or no longer needed is also a finding, so that the lists can only get shorter.

use std::collections::BTreeMap;

use crate::Finding;
use crate::source::Source;
use crate::tidy::finding;

/// Lines of code of one function.
const FUNCTION_LINES: usize = 100;
/// Lines of one file without its tests.
const FILE_LINES: usize = 800;

/// Functions over the limit: file, name, lines.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];
/// Files over the limit: file, lines without tests.
const LONG_FILES: &[(&str, usize)] = &[];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut functions, mut files) = (BTreeMap::new(), BTreeMap::new());
    for (path, name, lines) in LONG_FUNCTIONS {
        functions.insert(format!("{path} {name}"), *lines);
    }
    files.extend(LONG_FILES.iter().copied());
    for source in sources {
        let path = source.path.as_str();
        // A test may be one long table; clippy requires a reason for it.
        for function in
            source.functions().into_iter().filter(|function| !source.lines[function.line - 1].test)
        {
            let allowed = functions.remove(&format!("{path} {}", function.name));
            let what = format!("function `{}`", function.name);
            let breach = evaluate(&what, "lines", function.length, FUNCTION_LINES, allowed);
            findings.extend(breach.map(|what| finding(source, function.line, what)));
        }
        let lines = source.lines.iter().filter(|line| !line.test).count();
        let breach = evaluate("this file", "lines without tests", lines, FILE_LINES, files.remove(path));
        findings.extend(breach.map(|what| finding(source, 0, what)));
    }
    findings.extend(gone(functions.keys().filter_map(|key| key.split(' ').next())));
    findings.extend(gone(files.into_keys()));
    findings
}

/// The problem with `size`, given the general limit and the list's entry; `None` if there is none.
fn evaluate(what: &str, unit: &str, size: usize, limit: usize, allowed: Option<usize>) -> Option<String> {
    match allowed {
        None if size > limit => Some(format!("{what} has {size} {unit}; the limit is {limit}")),
        Some(allowed) if size > allowed => {
            Some(format!("{what} has grown to {size} {unit}; the list in ratchet.rs allows {allowed}"))
        }
        Some(allowed) if size < allowed => Some(format!(
            "{what} is down to {size} {unit}; lower or remove its entry ({allowed}) in ratchet.rs"
        )),
        None | Some(_) => None,
    }
}

fn gone<'a>(left: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let finding = |path: &str| Finding {
        file: path.to_owned(),
        line: 0,
        what: "is on a list in ratchet.rs and gone: remove its entry".to_owned(),
    };
    left.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_apply_unless_listed_and_the_list_must_be_exact() {
        let say = |size, allowed| evaluate("f", "lines", size, 100, allowed).unwrap_or_default();
        assert_eq!(say(100, None), "");
        assert_eq!(say(101, None), "f has 101 lines; the limit is 100");
        assert_eq!(say(120, Some(120)), "");
        assert_eq!(say(121, Some(120)), "f has grown to 121 lines; the list in ratchet.rs allows 120");
        assert_eq!(
            say(90, Some(120)),
            "f is down to 90 lines; lower or remove its entry (120) in ratchet.rs"
        );
    }
}
