//! `kubelet get`: what is on this node, as tables.

mod inventory;
mod pods;
mod row;

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use jiff::Timestamp;
use model::explain::{PodExplanation, PodExplanations};
use model::inventory::{AllocationItem, CgroupItem, ClaimItem, EventItem, ImageItem, PluginItem, VolumeItem};

use self::pods::ContainerRow;
pub(crate) use self::row::{Document, Row};
use crate::client::Client;
use crate::output::{self, Format};
use crate::selection::{self, Selection};
use crate::table::{lines, table};
use crate::{CommandError, Outcome, connection_arguments, print_part, report};

pub(crate) const FORMATS: &[Format] = &[Format::Text, Format::Wide, Format::Name, Format::Json, Format::Yaml];

/// How often `--watch` looks.
pub(crate) const WATCH: Duration = Duration::from_secs(2);

/// What can be listed.
const KINDS: [&str; 9] =
    ["pods", "containers", "images", "volumes", "claims", "allocations", "cgroups", "plugins", "events"];
/// Those that belong to the node and not to pods.
const OF_THE_NODE: [&str; 2] = ["images", "plugins"];

const EXAMPLES: &str = "Examples:
  kubelet get pods                         what runs here, and what does not
  kubelet get containers -o wide
  kubelet get pods web -o yaml             one pod, as the node explains it
  kubelet get volumes -n shop              the volumes of the pods of a namespace
  kubelet get allocations -l app=db        CPUs, memory and devices that pods with a label have
  kubelet get images
  kubelet get pods -w                      and each change, until Ctrl-C

Kinds: pods, containers, images, volumes, claims (ResourceClaims that drivers prepared), allocations (what
containers have of the node), cgroups, plugins (CSI drivers, device plugins, DRA drivers), events.

Exit code: 0 listed, 1 no answer, nothing of that name, or something is missing from the list.";

pub(crate) fn definition() -> Command {
    let command = Command::new("get")
        .about("List what is on this node")
        .after_help(EXAMPLES)
        .arg(Arg::new("kind").value_name("KIND").required(true).value_parser(KINDS).help("What to list"))
        .arg(
            Arg::new("watch")
                .short('w')
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Go on, and print each row again that has changed"),
        )
        .arg(output::argument(FORMATS));
    connection_arguments(selection::arguments(command))
}

pub(crate) async fn run(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let kind = matches.get_one::<String>("kind").map_or("", String::as_str);
    let selection = Selection::of(matches);
    if OF_THE_NODE.contains(&kind) && !selection.is_empty() {
        let text =
            format!("{kind} belong to the node: kubelet get {kind} takes no POD, --namespace or --selector");
        return Err(CommandError::Usage(text));
    }
    match kind {
        "containers" => list::<ContainerRow>(client, &selection, matches).await,
        "images" => list::<ImageItem>(client, &selection, matches).await,
        "volumes" => list::<VolumeItem>(client, &selection, matches).await,
        "claims" => list::<ClaimItem>(client, &selection, matches).await,
        "allocations" => list::<AllocationItem>(client, &selection, matches).await,
        "cgroups" => list::<CgroupItem>(client, &selection, matches).await,
        "plugins" => list::<PluginItem>(client, &selection, matches).await,
        "events" => list::<EventItem>(client, &selection, matches).await,
        _ => list::<PodExplanation>(client, &selection, matches).await,
    }
}

/// Lists things of one kind, once or again and again.
pub(crate) async fn list<R: Row>(
    client: &Client,
    selection: &Selection,
    matches: &ArgMatches,
) -> Result<Outcome, CommandError> {
    let format = output::of(matches);
    let document = fetch::<R>(client, selection).await?;
    let problems = document.problems().to_vec();
    let mut shown = Shown::default();
    let text = shown.next::<R>(document, format)?;
    if !matches.get_flag("watch") {
        problems.iter().for_each(|problem| report(problem));
        return Ok(Outcome { text, code: u8::from(!problems.is_empty()) });
    }
    let mut is_read = print_part(&text);
    while is_read {
        tokio::time::sleep(WATCH).await;
        let document = fetch::<R>(client, selection).await?;
        is_read = print_part(&shown.next::<R>(document, format)?);
    }
    Ok(Outcome::default())
}

/// A pod that is named must exist, even if it has nothing of the kind.
async fn fetch<R: Row>(client: &Client, selection: &Selection) -> Result<R::Document, CommandError> {
    let document = client.get::<R::Document>(&selection.path(R::PATH)).await?.listed();
    if document.is_empty() && !selection.words.is_empty() {
        let pods: PodExplanations = client.get(&selection.path("/v1/pods")).await?;
        if pods.pods.iter().all(|pod| pod.source.is_empty()) {
            let text = format!("no pod {:?} is on this node", selection.words);
            return Err(CommandError::NotFound(text));
        }
    }
    Ok(document)
}

/// What was printed before, so that only changes are printed again.
#[derive(Debug, Default)]
enum Shown {
    #[default]
    Nothing,
    /// Each row without what changes by itself, such as ages.
    Rows(BTreeSet<String>),
    Document(String),
}

impl Shown {
    /// The text to print: everything the first time, then what has changed.
    fn next<R: Row>(&mut self, document: R::Document, format: Format) -> Result<String, CommandError> {
        match format {
            Format::Json | Format::Yaml => {
                let text = output::document(&document, format)?;
                let is_new = !matches!(self, Self::Document(before) if *before == text);
                *self = Self::Document(text.clone());
                Ok(if is_new { text } else { String::new() })
            }
            Format::Text | Format::Wide | Format::Name => Ok(self.rows(&R::rows(document), format)),
        }
    }

    fn rows<R: Row>(&mut self, rows: &[R], format: Format) -> String {
        let keys: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
        let before = match std::mem::take(self) {
            Self::Rows(before) => Some(before),
            Self::Nothing | Self::Document(_) => None,
        };
        let is_known = |key: &String| before.as_ref().is_some_and(|before| before.contains(key));
        let is_new: Vec<bool> = keys.iter().map(|key| !is_known(key)).collect();
        *self = Self::Rows(keys.into_iter().collect());
        if format == Format::Name {
            let new = rows.iter().zip(is_new).filter(|(_, is_new)| *is_new);
            return new.map(|(row, _)| format!("{}\n", row.name())).collect();
        }
        let text = rows_table(rows, format == Format::Wide, Timestamp::now());
        if before.is_none() {
            return text;
        }
        lines(&text).skip(1).zip(is_new).filter(|(_, is_new)| *is_new).map(|(line, _)| line).collect()
    }
}

fn rows_table<R: Row>(rows: &[R], is_wide: bool, now: Timestamp) -> String {
    let mut heading = R::HEADING.to_vec();
    if is_wide {
        heading.extend(R::WIDE);
    }
    let cells = |row: &R| {
        let mut cells = row.cells(now);
        if is_wide {
            cells.extend(row.wide_cells(now));
        }
        cells
    };
    table(&heading, &rows.iter().map(cells).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_prints_the_table_and_then_only_changed_rows() {
        let image = |name: &str, size_bytes: u64| ImageItem {
            id: name.to_owned(),
            names: vec![name.to_owned()],
            size_bytes,
            ..ImageItem::default()
        };
        let mut shown = Shown::default();
        let mut next =
            |images: Vec<ImageItem>, format| shown.next::<ImageItem>(images.into(), format).unwrap();
        let all = next(vec![image("a", 1), image("b", 2)], Format::Text);
        assert_eq!(all.lines().count(), 3);
        assert_eq!(next(vec![image("a", 1), image("b", 2)], Format::Text), "");
        let changed = next(vec![image("a", 1), image("b", 3 << 20)], Format::Text);
        assert!(changed.starts_with("b ") && changed.lines().count() == 1, "{changed}");
        assert_eq!(next(vec![image("c", 1)], Format::Name), "image/c\n");
    }
}
