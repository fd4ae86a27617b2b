//! `docs/operate/kubectl.md`: what each command of kubectl does on a single node, next to the same on a cluster. It is made from the
//! recording, from `different.tsv`, and from `commands.tsv`, which has a line for each command.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::differences::{self, Difference};
use super::{Shell, TOPICS, read, recorded, rows_of_four};

/// Writes the page.
const RENEW: &str = "UPDATE_EXPECT=1 cargo test -p localapi --test it recorded_kubectl::page";
/// In `commands.tsv`: what happens here is what happens on a cluster.
const SAME: &str = "=";

const INTRODUCTION: &str = "\
What each command of kubectl 1.36 does with [`kubelet --single-node`](single-node.md), next to the same on a cluster. Read it before a script
that was written for a cluster runs here.

*Recorded* commands were run against a kube-apiserver 1.36.2 with its controllers, without a scheduler and nodes. A test runs each of them
here with the same kubectl, and compares exit code, output and error output; times, UIDs and the like are left out. Commands that need a
running pod are *tested* with this API server, the kubelet and a real runtime, and what they do on a cluster is what the reference of kubectl
says. *kubectl* does the others alone.
";

/// A line of `commands.tsv`.
struct Row {
    command: String,
    cluster: String,
    here: String,
    /// How both columns are known if not by the recording; may be empty.
    source: String,
}

fn rows() -> Vec<Row> {
    let rows = rows_of_four("commands.tsv", "command, on a cluster, here, source");
    rows.into_iter().map(|[command, cluster, here, source]| Row { command, cluster, here, source }).collect()
}

/// The command of kubectl in a command line: the last one, if there are several.
fn command_of(line: &str) -> &str {
    let arguments = line.rsplit("kubectl ").next().unwrap_or_default();
    arguments.split(' ').next().unwrap_or_default()
}

/// How many command lines of each command are recorded, and how many of them differ.
fn counts() -> BTreeMap<String, (usize, usize)> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for entry in TOPICS.iter().flat_map(|topic| recorded(topic)) {
        counts.entry(command_of(&entry.command).to_owned()).or_default().0 += 1;
    }
    for difference in differences::all() {
        counts.entry(command_of(&difference.command).to_owned()).or_default().1 += 1;
    }
    counts
}

fn page() -> String {
    let mut counts = counts();
    let mut text = format!(
        "# kubectl, command by command\n\n<!-- Made from the files in crates/localapi/tests/recorded/kubectl by\n`{RENEW}`; edit those. -->\n\n{INTRODUCTION}\n"
    );
    let (total, differ) = counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    let _ = writeln!(
        text,
        "{total} command lines are recorded; {} answer the same here, {differ} are [below](#answers-that-differ).\n",
        total - differ
    );
    text += "| command | on a cluster | here | known from |\n|---|---|---|---|\n";
    for row in rows() {
        let (count, differ) = counts.remove(&row.command).unwrap_or_default();
        assert!(
            row.here == SAME || differ > 0 || !row.source.is_empty(),
            "{}: every answer is the same, and commands.tsv says {:?} of what happens here",
            row.command,
            row.here
        );
        let here = match (row.here.as_str(), differ) {
            (SAME, 0) => "the same",
            (SAME, _) => "the same, but for answers [below](#answers-that-differ)",
            (here, _) => here,
        };
        let known = match (count, differ) {
            (0, _) => String::new(),
            (_, 0) => format!("{count} recorded"),
            _ => format!("{count} recorded, {differ} differ"),
        };
        let known = [known, row.source].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        assert!(!known.is_empty(), "{}: commands.tsv must say how this is known", row.command);
        let _ = writeln!(text, "| `{}` | {} | {here} | {} |", row.command, row.cluster, known.join("; "));
    }
    assert!(counts.is_empty(), "no line in commands.tsv: {:?}", counts.keys());
    text + &answers_that_differ(&differences::all())
}

/// One row for each reason, in the order of the file.
fn answers_that_differ(all: &[Difference]) -> String {
    let mut reasons: Vec<&str> = all.iter().map(|difference| difference.reason.as_str()).collect();
    let mut seen = BTreeSet::new();
    reasons.retain(|reason| seen.insert(*reason));
    let mut text = "\n## Answers that differ\n\n| here | command lines |\n|---|---|\n".to_owned();
    for reason in reasons {
        let lines = all.iter().filter(|difference| difference.reason == reason);
        let lines: Vec<String> = lines.map(|difference| span(&difference.command)).collect();
        let _ = writeln!(text, "| {reason} | {} |", lines.join(", "));
    }
    text
}

/// A command line as a code span of a table, without its comment.
fn span(line: &str) -> String {
    let line = line.split_once(" # ").map_or(line, |(line, _)| line);
    format!("`{}`", line.replace('|', "\\|"))
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/kubectl.md")
}

#[test]
fn page_about_the_commands_of_kubectl_is_up_to_date() {
    let page = page();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(file(), &page).expect("the page is written");
    }
    assert!(read(&file()) == page, "docs/operate/kubectl.md is not up to date: {RENEW}");
}

#[test]
fn page_has_a_row_for_each_command_of_kubectl() {
    let Some(shell) = Shell::start() else { return };
    let help = shell.run("kubectl help").out;
    // `  create          Create a resource from a file or from stdin`
    let lines = help.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
    let commands: BTreeSet<String> = lines.map(|(command, _)| command.to_owned()).collect();
    let described: BTreeSet<String> = rows().into_iter().map(|row| row.command).collect();
    assert!(commands.contains("get"), "{help}");
    assert_eq!(described, commands);
}
