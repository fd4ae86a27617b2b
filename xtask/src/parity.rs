//! Reads docs/parity.md, the map of what is built, and holds it to its word: states are known, what is done has a test,
//! a named test exists, no behaviour of the contract is missing. It does not run the tests; `cargo test` does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{self, Source};
use crate::{CheckError, Finding, read};

/// Where the map is, below the workspace root.
pub const MAP: &str = "docs/parity.md";
/// How many behaviours section C of the contract has; each has a row.
const BEHAVIOURS: usize = 90;

/// One line of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Where it stands in the file, counted from 1.
    pub line: usize,
    /// The line of the contract, in short.
    pub item: String,
    /// How far we are.
    pub state: Result<State, String>,
    /// What shows it, as written.
    pub tests: Vec<String>,
}

/// How far we are with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Built, and a test shows it.
    Done,
    /// Built in part; the note says what is missing.
    Partly,
    /// To be built.
    NotYet,
    /// Left out on purpose; the reason follows the word.
    WillNot,
}

impl State {
    /// Reads the second column; the error says what was there instead.
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "done" => Ok(Self::Done),
            "partly" => Ok(Self::Partly),
            "not yet" => Ok(Self::NotYet),
            _ if text.strip_prefix("will not:").is_some_and(|why| !why.trim().is_empty()) => {
                Ok(Self::WillNot)
            }
            _ => Err(format!("unknown state `{text}`: done, partly, not yet, or will not: <why>")),
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Partly => "partly",
            Self::NotYet => "not yet",
            Self::WillNot => "will not",
        })
    }
}

/// The rows of the map at `root`.
pub fn read_map(root: &Path) -> Result<Vec<Row>, CheckError> {
    Ok(parse_rows(&read(&root.join(MAP))?))
}

/// The rows of a map's text: table lines that are neither head nor rule.
pub fn parse_rows(text: &str) -> Vec<Row> {
    let row = |(index, line): (usize, &str)| {
        let cells: Vec<&str> =
            line.strip_prefix('|')?.trim_end().strip_suffix('|')?.split('|').map(str::trim).collect();
        let [item, state, tests, ..] = cells.as_slice() else { return None };
        if *item == "item" || item.chars().all(|c| c == '-') {
            return None;
        }
        let tests = tests.split(',').map(|test| test.trim().trim_matches('`').to_owned());
        Some(Row {
            line: index + 1,
            item: (*item).to_owned(),
            state: State::parse(state),
            tests: tests.filter(|test| !test.is_empty()).collect(),
        })
    };
    text.lines().enumerate().filter_map(row).collect()
}

/// How many rows are in each state.
pub fn summary(rows: &[Row]) -> BTreeMap<State, usize> {
    let mut counts = BTreeMap::new();
    for state in rows.iter().filter_map(|row| row.state.as_ref().ok()) {
        *counts.entry(*state).or_default() += 1;
    }
    counts
}

/// Every untruth in the map of the workspace at `root`.
pub fn check(root: &Path) -> Result<Vec<Finding>, CheckError> {
    let known = Evidence { tests: tests(&source::read_all(root)?), root: root.to_path_buf() };
    let rows = read_map(root)?;
    let mut findings: Vec<Finding> = rows
        .iter()
        .flat_map(|row| complaints(row, &known).into_iter().map(|what| at(row.line, what)))
        .collect();
    findings.extend(repeated(&rows));
    findings.extend(missing_behaviours(&rows));
    Ok(findings)
}

fn at(line: usize, what: String) -> Finding {
    Finding { file: MAP.to_owned(), line, what }
}

/// What a row may point at.
struct Evidence {
    tests: Vec<Test>,
    root: std::path::PathBuf,
}

/// A test function and the names under which it can be found.
#[derive(Debug, PartialEq, Eq)]
struct Test {
    crate_name: String,
    /// The names of its file, directories and inline modules, in no order.
    within: BTreeSet<String>,
    name: String,
}

/// Every test function of the sources.
fn tests(sources: &[Source]) -> Vec<Test> {
    let mut tests = Vec::new();
    for source in sources {
        let mut within: BTreeSet<String> =
            source.path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        within.extend(source.lines.iter().filter_map(|line| inline_module(&line.code)));
        for function in source.functions() {
            if is_test(source, function.line) {
                tests.push(Test {
                    crate_name: source.crate_name.clone(),
                    within: within.clone(),
                    name: function.name,
                });
            }
        }
    }
    tests
}

fn inline_module(code: &str) -> Option<String> {
    let mut found = source::words(code).skip_while(|word| *word != "mod");
    found.next()?;
    found.next().map(str::to_owned)
}

/// Whether one of the attributes right above line `number` makes the function there a test.
fn is_test(source: &Source, number: usize) -> bool {
    source.attributes(number).any(|line| line.code.contains("test]") || line.code.contains("test("))
}

fn complaints(row: &Row, known: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    match &row.state {
        Err(what) => found.push(what.clone()),
        Ok(State::Done) if row.tests.is_empty() => {
            found.push(format!("`{}` is done and names no test that shows it", row.item));
        }
        Ok(State::Done | State::Partly | State::NotYet | State::WillNot) => {}
    }
    let absent = row.tests.iter().filter(|test| !known.has(test));
    found.extend(absent.map(|test| format!("`{}` names `{test}`, which does not exist", row.item)));
    found
}

impl Evidence {
    fn has(&self, test: &str) -> bool {
        if test.starts_with("scripts/") {
            return self.root.join(test).is_file();
        }
        let mut parts: Vec<&str> = test.split("::").collect();
        let (Some(name), true) = (parts.pop(), parts.len() > 1 || !parts.is_empty()) else { return false };
        let crate_name = parts.remove(0).replace('_', "-");
        self.tests.iter().any(|known| {
            known.crate_name == crate_name
                && known.name == name
                && parts.iter().all(|part| known.within.contains(*part))
        })
    }
}

fn repeated(rows: &[Row]) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let again = rows.iter().filter(|row| !seen.insert(row.item.as_str()));
    again.map(|row| at(row.line, format!("`{}` is there twice", row.item))).collect()
}

fn missing_behaviours(rows: &[Row]) -> Vec<Finding> {
    let present = |number: &usize| rows.iter().any(|row| row.item.starts_with(&format!("C.{number} ")));
    (1..=BEHAVIOURS)
        .filter(|number| !present(number))
        .map(|number| at(0, format!("C.{number} has no row")))
        .collect()
}

#[cfg(test)]
mod tests_of_the_map {
    use super::*;

    const CODE: &str = "//! A page.\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn a_law_holds() {}\n\n    /// Why.\n    #[tokio::test(start_paused = true)]\n    async fn a_task_ends() {}\n\n    fn not_a_test() {}\n}\n";

    fn known() -> Evidence {
        let source = Source::new("crates/kubelet-core/src/pod/backoff.rs", CODE);
        Evidence { tests: tests(&[source]), root: crate::workspace_root() }
    }

    fn complaints_about(line: &str) -> Vec<String> {
        let rows = parse_rows(line);
        assert_eq!(rows.len(), 1, "{line}");
        complaints(&rows[0], &known())
    }

    #[test]
    fn heads_rules_and_prose_are_no_rows() {
        let text =
            "Some words.\n\n| item | state | test | note |\n|---|---|---|---|\n| C.1 a | not yet |  |  |\n";
        let rows = parse_rows(text);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].line, rows[0].item.as_str(), &rows[0].state), (5, "C.1 a", &Ok(State::NotYet)));
    }

    #[test]
    fn done_needs_a_test() {
        assert_eq!(
            complaints_about("| C.1 a | done |  |  |"),
            ["`C.1 a` is done and names no test that shows it"]
        );
    }

    #[test]
    fn a_named_test_must_exist_and_be_a_test() {
        assert_eq!(
            complaints_about("| C.1 a | done | `kubelet_core::pod::backoff::tests::a_law_holds` |  |"),
            [""; 0]
        );
        assert_eq!(complaints_about("| C.1 a | partly | kubelet-core::a_task_ends |  |"), [""; 0]);
        assert_eq!(
            complaints_about("| C.1 a | partly | kubelet-core::pod::not_a_test, model::a_law_holds |  |"),
            [
                "`C.1 a` names `kubelet-core::pod::not_a_test`, which does not exist",
                "`C.1 a` names `model::a_law_holds`, which does not exist"
            ]
        );
    }

    #[test]
    fn a_script_counts_as_a_test_when_it_is_there() {
        assert_eq!(complaints_about("| C.1 a | done | scripts/demo |  |"), [""; 0]);
        assert_eq!(complaints_about("| C.1 a | done | scripts/dance |  |").len(), 1);
    }

    #[test]
    fn a_refusal_needs_its_reason() {
        assert_eq!(complaints_about("| C.1 a | will not: Windows |  |  |"), [""; 0]);
        assert_eq!(complaints_about("| C.1 a | will not: |  |  |").len(), 1);
        assert_eq!(complaints_about("| C.1 a | soon |  |  |").len(), 1);
    }

    #[test]
    fn every_behaviour_of_the_contract_has_one_row() {
        let rows = parse_rows("| C.2 a | not yet | | |\n| C.2 a | not yet | | |\n");
        assert_eq!(missing_behaviours(&rows).len(), BEHAVIOURS - 1);
        assert_eq!(repeated(&rows).len(), 1);
    }
}
