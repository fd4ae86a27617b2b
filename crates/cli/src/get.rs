//! `kubelet get`: what is on this node, as tables.

use clap::{Arg, ArgMatches, Command};
use explain_core::times::span;
use jiff::Timestamp;
use model::explain::{PodExplanation, PodExplanations, Verdict};

use crate::client::{Client, escaped};
use crate::output::{self, Format};
use crate::table::table;
use crate::{CommandError, Outcome, connection_arguments};

const FORMATS: &[Format] = &[Format::Text, Format::Wide, Format::Name, Format::Json, Format::Yaml];

pub(crate) fn definition() -> Command {
    let command = Command::new("get")
        .about("List what is on this node")
        .after_help(
            "Examples:\n  kubelet get pods\n  kubelet get containers -o wide\n  kubelet get pods web -o yaml",
        )
        .arg(
            Arg::new("kind")
                .value_name("KIND")
                .required(true)
                .value_parser(["pods", "containers"])
                .help("What to list"),
        )
        .arg(
            Arg::new("pod")
                .value_name("POD")
                .help("Only this pod: its name, namespace/name, or UID or the beginning of it"),
        )
        .arg(output::argument(FORMATS));
    connection_arguments(command)
}

pub(crate) async fn run(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let words = matches.get_one::<String>("pod").map_or("", String::as_str);
    let mut found: PodExplanations = client.get(&format!("/v1/pods?pod={}", escaped(words))).await?;
    // Pods that are gone have no source.
    found.pods.retain(|pod| !pod.source.is_empty());
    if found.pods.is_empty() && !words.is_empty() {
        return Err(CommandError::NotFound(format!("no pod {words:?} is on this node")));
    }
    let (format, now) = (output::of(matches), Timestamp::now());
    let text = match (format, matches.get_one::<String>("kind").map(String::as_str)) {
        (Format::Json | Format::Yaml, _) => output::document(&found, format)?,
        (Format::Name, _) => {
            found.pods.iter().map(|pod| format!("pod/{}/{}\n", pod.namespace, pod.name)).collect()
        }
        (_, Some("containers")) => containers(&found.pods, now),
        _ => pods(&found.pods, format == Format::Wide, now),
    };
    Ok(Outcome { text, code: 0 })
}

fn pods(pods: &[PodExplanation], is_wide: bool, now: Timestamp) -> String {
    let row = |pod: &PodExplanation| {
        let ready = pod.containers.iter().filter(|container| container.is_ready).count();
        let restarts: i32 = pod.containers.iter().map(|container| container.restarts).sum();
        let mut cells = vec![
            pod.namespace.clone(),
            pod.name.clone(),
            format!("{ready}/{}", pod.containers.len()),
            state(pod),
            restarts.to_string(),
            pod.trail.first().map(|first| span(first.began, now)).unwrap_or_default(),
        ];
        if is_wide {
            cells.extend([pod.uid.clone(), pod.source.clone(), pod.summary.clone()]);
        }
        cells
    };
    let mut heading = vec!["NAMESPACE", "NAME", "READY", "STATE", "RESTARTS", "KNOWN FOR"];
    if is_wide {
        heading.extend(["UID", "FROM", "WHY"]);
    }
    table(&heading, &pods.iter().map(row).collect::<Vec<_>>())
}

/// One word, as in kubectl's column STATUS: the reason why it waits or failed.
fn state(pod: &PodExplanation) -> String {
    match (pod.verdict, pod.causes.first()) {
        (Verdict::Waiting | Verdict::Failed, Some(cause)) => cause.reason.clone(),
        (Verdict::Failed, None) => "Failed".to_owned(),
        (Verdict::Waiting, None) => "Waiting".to_owned(),
        (Verdict::Fine, _) if pod.containers.iter().any(|container| container.state == "running") => {
            "Running".to_owned()
        }
        (Verdict::Fine, _) => "Completed".to_owned(),
    }
}

fn containers(pods: &[PodExplanation], now: Timestamp) -> String {
    let rows = pods.iter().flat_map(|pod| {
        pod.containers.iter().map(move |container| {
            vec![
                pod.namespace.clone(),
                pod.name.clone(),
                container.name.clone(),
                container.state.clone(),
                if container.is_ready { "yes" } else { "no" }.to_owned(),
                container.restarts.to_string(),
                container.since.map(|since| span(since, now)).unwrap_or_default(),
                container.last_end.clone(),
            ]
        })
    });
    let heading = ["NAMESPACE", "POD", "CONTAINER", "STATE", "READY", "RESTARTS", "FOR", "LAST END"];
    table(&heading, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use model::explain::{Cause, ContainerExplanation};

    use super::*;

    #[test]
    fn pods_and_containers_are_tables_like_those_of_kubectl() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let container = ContainerExplanation {
            name: "app".to_owned(),
            state: "running".to_owned(),
            since: Some(at(10)),
            is_ready: true,
            restarts: 2,
            last_end: "Error, exit code 1".to_owned(),
            ..ContainerExplanation::default()
        };
        let up = PodExplanation {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            containers: vec![container],
            ..PodExplanation::default()
        };
        let cause = Cause { reason: "ImagePullBackOff".to_owned(), ..Cause::default() };
        let waiting = PodExplanation {
            name: "db".to_owned(),
            verdict: Verdict::Waiting,
            causes: vec![cause],
            ..up.clone()
        };
        expect_test::expect![[r#"
            NAMESPACE   NAME   READY   STATE              RESTARTS   KNOWN FOR
            default     web    1/1     Running            2
            default     db     1/1     ImagePullBackOff   2
        "#]]
        .assert_eq(&pods(&[up.clone(), waiting], false, at(70)));
        expect_test::expect![[r#"
            NAMESPACE   POD   CONTAINER   STATE     READY   RESTARTS   FOR     LAST END
            default     web   app         running   yes     2          1 min   Error, exit code 1
        "#]]
        .assert_eq(&containers(&[up], at(70)));
    }
}
