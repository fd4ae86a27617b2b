//! `kubelet describe`: everything about a pod, as text for people.

use clap::{ArgMatches, Command};
use explain_core::describe::{Description, describe_text};
use jiff::Timestamp;
use model::explain::{PodExplanation, PodExplanations};
use model::inventory::{EventItem, Inventory, VolumeItem};
use model::k8s::Pod;

use crate::client::{Client, escaped};
use crate::selection::{self, Selection};
use crate::why::style;
use crate::{CommandError, Outcome, connection_arguments, report};

const EXAMPLES: &str = "Examples:
  kubelet describe web
  kubelet describe shop/web
  kubelet describe 4c1d        by the beginning of its UID

For programs: kubelet get pods web -o json, kubelet get volumes web -o json, kubelet events web -o json.

Exit code: 0 described, 1 no answer or no such pod.";

pub(crate) fn definition() -> Command {
    let command = Command::new("describe")
        .about("Describe a pod with its containers, volumes, conditions and events")
        .after_help(EXAMPLES);
    connection_arguments(selection::one_pod(command))
}

pub(crate) async fn run(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let selection = Selection::of(matches);
    let mut found: PodExplanations = client.get(&selection.path("/v1/pods")).await?;
    found.pods.retain(|pod| !pod.source.is_empty() && !pod.uid.is_empty());
    if found.pods.is_empty() {
        return Err(CommandError::NotFound(format!("no pod {:?} is on this node", selection.words)));
    }
    let mut texts = Vec::new();
    for explanation in &found.pods {
        texts.push(one(client, explanation).await?);
    }
    Ok(Outcome { text: texts.join("\n\n"), code: 0 })
}

async fn one(client: &Client, explanation: &PodExplanation) -> Result<String, CommandError> {
    let uid = escaped(&explanation.uid);
    let pod: Pod = client.get(&format!("/v1/pods/{uid}")).await?;
    let volumes: Inventory<VolumeItem> = client.get(&format!("/v1/volumes?pod={uid}")).await?;
    let events: Inventory<EventItem> = client.get(&format!("/v1/events?pod={uid}")).await?;
    volumes.problems.iter().for_each(|problem| report(problem));
    let of = Description { explanation, pod: &pod, volumes: &volumes.items, events: &events.items };
    Ok(describe_text(&of, style(Timestamp::now())))
}
