//! `kubelet events`: what happened on this node lately.

use clap::{Arg, ArgAction, ArgMatches, Command};
use model::inventory::EventItem;

use crate::client::Client;
use crate::selection::Selection;
use crate::{CommandError, Outcome, connection_arguments, get, output, selection};

pub(crate) fn definition() -> Command {
    let command = Command::new("events")
        .about("Show what happened on this node lately, the latest last")
        .after_help(
            "Examples:\n  kubelet events              of all pods and the node\n  kubelet events web          of a pod\n  kubelet events -w           and what happens from now on, until Ctrl-C\n  kubelet events -n shop -o json\n\nThe node keeps 3 kB of what each pod went through; repeats are counted. Events of pods that are gone are not kept.",
        )
        .arg(
            Arg::new("watch")
                .short('w')
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Go on, and print each event that is new or happened again"),
        )
        .arg(output::argument(get::FORMATS));
    connection_arguments(selection::arguments(command))
}

pub(crate) async fn run(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    get::list::<EventItem>(client, &Selection::of(matches), matches).await
}
