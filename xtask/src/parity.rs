//! What of the kubelet is built and which tests show it: `docs/parity.tsv`, and `docs/parity.md`, which is generated
//! from it.
//!
//! A row is wrong when its state is unknown, when it is done and names no test, when a test it names does not exist, or when
//! its item appears twice. The page is wrong when it is not what the rows generate. Tests are not run here; `cargo test` does.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use crate::source::{self, Source};
use crate::{CheckError, Finding, read};

/// The data file below the workspace root.
pub const DATA: &str = "docs/parity.tsv";
/// The page that is generated from it.
pub const PAGE: &str = "docs/parity.md";

const FIELDS: &str = "id\tsubject\titem\tstate\ttests\tnote";

const INTRODUCTION: &str = "\
# Parity with the Go kubelet 1.36

<!-- Generated from parity.tsv by `cargo run -p xtask -- parity`; edit that file. -->

How much of the behaviour of the Go kubelet 1.36 is built, by subject; [behaviour/](behaviour/README.md) describes it. Each item is
a row of [parity.tsv](parity.tsv), which names the tests that show it. `cargo test -p xtask` fails when a test that a row names does
not exist, and when this page is not up to date.

Differences from the Go kubelet over recorded scenarios are found by `scripts/compare`; those that stay are listed with their
reasons in [compare-allowed.tsv](compare-allowed.tsv). Metric families that only a Go program has (`workqueue_*`,
`rest_client_transport_*`) or that describe caches which this kubelet does not need (`kubelet_imagemanager_inmemory_*`) are left
out on purpose; families of our own begin with `kubelet_rs_`.
";

/// One row of the data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The line in the file, counted from 1.
    pub line: usize,
    /// An older number of the item or its group, by which issues name it.
    pub id: String,
    /// The heading below which the row is counted and listed.
    pub subject: String,
    /// The behaviour in short.
    pub item: String,
    /// How far it is built.
    pub state: Result<State, String>,
    /// The tests that show it.
    pub tests: Vec<String>,
    /// What is missing or different; may be empty.
    pub note: String,
}

/// How far an item is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Built, and a test shows it.
    Done,
    /// Built in part; the note names what is missing.
    Partly,
    /// To be built.
    NotYet,
    /// Left out on purpose, for this reason.
    WillNot(String),
}

impl State {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "done" => Ok(Self::Done),
            "partly" => Ok(Self::Partly),
            "not yet" => Ok(Self::NotYet),
            _ => match text.strip_prefix("will not:").map(str::trim) {
                Some(why) if !why.is_empty() => Ok(Self::WillNot(why.to_owned())),
                Some(_) | None => {
                    Err(format!("unknown state `{text}`: done, partly, not yet, or will not: <why>"))
                }
            },
        }
    }

    /// The state without a reason, as in a table.
    fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partly => "partly",
            Self::NotYet => "not yet",
            Self::WillNot(_) => "will not",
        }
    }
}

/// The columns of the table of subjects.
const STATES: [&str; 4] = ["done", "partly", "not yet", "will not"];

/// The generated page could not be written.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The data file could not be read.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The page could not be written.
    #[error("write {path}: {source}")]
    Write {
        /// The page.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Writes the page from the data file of the workspace at `root`; returns its path.
pub fn generate(root: &Path) -> Result<PathBuf, GenerateError> {
    let (rows, _) = parse_rows(&read(&root.join(DATA))?);
    let path = root.join(PAGE);
    std::fs::write(&path, page(&rows))
        .map_err(|source| GenerateError::Write { path: path.clone(), source })?;
    Ok(path)
}

/// Every error in the data file and the page of the workspace at `root`.
pub fn check(root: &Path) -> Result<Vec<Finding>, CheckError> {
    let known = Evidence::read(root)?;
    let (rows, mut findings) = parse_rows(&read(&root.join(DATA))?);
    findings.extend(
        rows.iter().flat_map(|row| row_errors(row, &known).into_iter().map(|what| at(row.line, what))),
    );
    findings.extend(repeated(&rows));
    if read(&root.join(PAGE))? != page(&rows) {
        let what = format!("is not what {DATA} generates: run `cargo run -p xtask -- parity`");
        findings.push(Finding { file: PAGE.to_owned(), line: 0, what });
    }
    Ok(findings)
}

/// The rows of the data file, and a finding for each line that is none.
fn parse_rows(text: &str) -> (Vec<Row>, Vec<Finding>) {
    let mut rows = Vec::new();
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        if line.starts_with('#') || line == FIELDS {
            continue;
        }
        let fields: Vec<&str> = line.split('\t').collect();
        let &[id, subject, item, state, tests, note] = fields.as_slice() else {
            findings.push(at(line_number, format!("has {} fields instead of 6", fields.len())));
            continue;
        };
        rows.push(Row {
            line: line_number,
            id: id.to_owned(),
            subject: subject.to_owned(),
            item: item.to_owned(),
            state: State::parse(state),
            tests: tests
                .split(',')
                .map(|test| test.trim().to_owned())
                .filter(|test| !test.is_empty())
                .collect(),
            note: note.to_owned(),
        });
    }
    (rows, findings)
}

fn at(line: usize, what: String) -> Finding {
    Finding { file: DATA.to_owned(), line, what }
}

/// The page that the rows generate.
fn page(rows: &[Row]) -> String {
    let mut page = INTRODUCTION.to_owned();
    let subjects = subjects(rows);
    let mut table =
        String::from("\n| subject | done | partly | not yet | will not |\n|---|---|---|---|---|\n");
    for subject in &subjects {
        add_counts(&mut table, subject, rows.iter().filter(|row| row.subject == **subject));
    }
    add_counts(&mut table, "**all**", rows.iter());
    page.push_str(&table);
    page.push_str("\n## What is not done\n");
    for subject in &subjects {
        add_open_rows(&mut page, subject, rows);
    }
    page
}

/// The subjects in the order of their first rows.
fn subjects(rows: &[Row]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    rows.iter().map(|row| row.subject.as_str()).filter(|subject| seen.insert(*subject)).collect()
}

fn add_counts<'a>(table: &mut String, subject: &str, rows: impl Iterator<Item = &'a Row>) {
    let mut counts = [0_usize; STATES.len()];
    for state in rows.filter_map(|row| row.state.as_ref().ok()) {
        for (count, name) in counts.iter_mut().zip(STATES) {
            *count += usize::from(name == state.name());
        }
    }
    let cells = counts.map(|count| if count == 0 { String::new() } else { count.to_string() });
    let _infallible = writeln!(table, "| {subject} | {} |", cells.join(" | "));
}

fn add_open_rows(page: &mut String, subject: &str, rows: &[Row]) {
    let open = rows.iter().filter(|row| row.subject == subject && row.state != Ok(State::Done));
    let mut lines = open.map(open_row).peekable();
    if lines.peek().is_some() {
        let _infallible = write!(page, "\n### {subject}\n\n| item | state | note |\n|---|---|---|\n");
        page.extend(lines);
    }
}

fn open_row(row: &Row) -> String {
    let (state, reason) = match &row.state {
        Ok(State::WillNot(why)) => (State::WillNot(String::new()).name(), Some(why.as_str())),
        Ok(state) => (state.name(), None),
        Err(_) => ("unknown", None),
    };
    let notes = [reason.unwrap_or_default(), &row.note];
    let note = notes.into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; ");
    format!("| {} | {state} | {} |\n", cell(&row.item), cell(&note))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// What a row or a page of the book may name.
pub(crate) struct Evidence {
    tests: Vec<Test>,
    root: PathBuf,
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

fn row_errors(row: &Row, known: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    match &row.state {
        Err(what) => found.push(what.clone()),
        Ok(State::Done) if row.tests.is_empty() => {
            found.push(format!("`{}` is done and names no test that shows it", row.item));
        }
        Ok(State::Done | State::Partly | State::NotYet | State::WillNot(_)) => {}
    }
    let absent = row.tests.iter().filter(|test| !known.has(test));
    found.extend(absent.map(|test| format!("`{}` names `{test}`, which does not exist", row.item)));
    found
}

impl Evidence {
    pub(crate) fn read(root: &Path) -> Result<Self, CheckError> {
        Ok(Self { tests: tests(&source::read_all(root)?), root: root.to_path_buf() })
    }

    /// Whether it is a module or a file with tests: `crate::module`.
    pub(crate) fn has_module(&self, module: &str) -> bool {
        let mut parts = module.split("::");
        let crate_name = parts.next().unwrap_or_default().replace('_', "-");
        let parts: Vec<&str> = parts.collect();
        self.tests.iter().any(|known| {
            known.crate_name == crate_name && parts.iter().all(|part| known.within.contains(*part))
        })
    }

    pub(crate) fn has(&self, test: &str) -> bool {
        if test.starts_with("scripts/") {
            return self.root.join(test).is_file();
        }
        let mut parts: Vec<&str> = test.split("::").collect();
        let (Some(name), true) = (parts.pop(), !parts.is_empty()) else { return false };
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
    let again = rows.iter().filter(|row| !seen.insert((row.subject.as_str(), row.item.as_str())));
    again.map(|row| at(row.line, format!("`{}` appears twice in its subject", row.item))).collect()
}

#[cfg(test)]
mod tests_of_the_rows {
    use super::*;

    const CODE: &str = "//! A page.\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn an_invariant_holds() {}\n\n    /// Why.\n    #[tokio::test(start_paused = true)]\n    async fn a_task_ends() {}\n\n    fn not_a_test() {}\n}\n";

    fn known() -> Evidence {
        let source = Source::new("crates/kubelet-core/src/pods/backoff.rs", CODE);
        Evidence { tests: tests(&[source]), root: crate::workspace_root() }
    }

    fn errors_of(state: &str, tests: &str) -> Vec<String> {
        let (rows, findings) = parse_rows(&format!("C.1\tProbes\ta\t{state}\t{tests}\t"));
        assert_eq!((rows.len(), findings.len()), (1, 0));
        row_errors(&rows[0], &known())
    }

    #[test]
    fn comments_and_the_heading_are_no_rows_and_other_lines_have_six_fields() {
        let text = format!("# Some words.\n{FIELDS}\nC.1\tProbes\ta\tnot yet\t\t\nC.2\tProbes\tb\n");
        let (rows, findings) = parse_rows(&text);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].line, rows[0].item.as_str(), &rows[0].state), (3, "a", &Ok(State::NotYet)));
        assert_eq!(findings, [at(4, "has 3 fields instead of 6".to_owned())]);
    }

    #[test]
    fn done_row_needs_a_test() {
        assert_eq!(errors_of("done", ""), ["`a` is done and names no test that shows it"]);
    }

    #[test]
    fn named_test_must_exist_and_be_a_test() {
        assert_eq!(errors_of("done", "kubelet_core::pods::backoff::tests::an_invariant_holds"), [""; 0]);
        assert_eq!(errors_of("partly", "kubelet-core::a_task_ends"), [""; 0]);
        assert_eq!(
            errors_of("partly", "kubelet-core::pods::not_a_test, model::an_invariant_holds"),
            [
                "`a` names `kubelet-core::pods::not_a_test`, which does not exist",
                "`a` names `model::an_invariant_holds`, which does not exist"
            ]
        );
    }

    #[test]
    fn named_script_must_exist() {
        assert_eq!(errors_of("done", "scripts/demo"), [""; 0]);
        assert_eq!(errors_of("done", "scripts/dance").len(), 1);
    }

    #[test]
    fn will_not_needs_a_reason() {
        assert_eq!(errors_of("will not: Windows", ""), [""; 0]);
        assert_eq!(errors_of("will not:", "").len(), 1);
        assert_eq!(errors_of("soon", "").len(), 1);
    }

    #[test]
    fn item_appears_once_in_its_subject() {
        let (rows, _) = parse_rows(
            "C.2\tProbes\ta\tnot yet\t\t\nC.3\tProbes\ta\tpartly\t\t\nC.4\tImages\ta\tnot yet\t\t\n",
        );
        assert_eq!(repeated(&rows), [at(2, "`a` appears twice in its subject".to_owned())]);
    }

    #[test]
    fn page_counts_by_subject_and_lists_what_is_not_done() {
        let (rows, _) = parse_rows(
            "C.1\tProbes\ta\tdone\tscripts/demo\tx\nC.2\tImages\tb|c\tpartly\t\tno d\nC.3\tImages\te\twill not: f\t\tg\n",
        );
        let page = page(&rows);
        let generated = page.strip_prefix(INTRODUCTION).unwrap_or_default();
        let expected = "\n| subject | done | partly | not yet | will not |\n|---|---|---|---|---|\n\
            | Probes | 1 |  |  |  |\n| Images |  | 1 |  | 1 |\n| **all** | 1 | 1 |  | 1 |\n\
            \n## What is not done\n\n### Images\n\n| item | state | note |\n|---|---|---|\n\
            | b\\|c | partly | no d |\n| e | will not | f; g |\n";
        assert_eq!(generated, expected);
    }
}
