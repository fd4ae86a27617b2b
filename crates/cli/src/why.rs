//! `kubelet why`: why a pod, the node, an image or a volume is as it is.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use explain_core::render::{Style, node_text, pod_text};
use explain_core::waterfall::{waterfall_svg, waterfall_text};
use jiff::Timestamp;
use model::explain::{Explanation, ManifestProblem, PodExplanation, PodExplanations, Verdict};

use crate::client::{Client, escaped};
use crate::get::WATCH;
use crate::output::{self, Format};
use crate::{
    ATTENTION, CommandError, FAILED, Outcome, USUAL_ROOT, connection_arguments, print_part, single_node,
    terminal,
};

/// The word for the node itself. A pod of that name has a namespace.
const NODE: &str = "node";
/// Words before the name of an image or a volume.
const IMAGE: &str = "image";
const VOLUME: &str = "volume";
const FORMATS: &[Format] = &[Format::Text, Format::Json, Format::Yaml];

pub(crate) fn definition() -> Command {
    let command = Command::new("why")
        .about("Say why a pod, the node, an image or a volume is as it is, and what to do about it")
        .after_help(
            "Examples:\n  kubelet why                     every pod that is not as desired\n  kubelet why web                 a pod by name\n  kubelet why default/web --watch\n  kubelet why 4c1d --timeline     how its start went, by the beginning of its UID\n  kubelet why node                the node itself\n  kubelet why image busybox:1.36  whether it is here, what it was pulled with, when it is removed\n  kubelet why volume data         each volume of that name; web/data and shop/web/data name one\n\nExit code: 0 as desired, 3 something waits, 4 something failed, 1 no answer or nothing of that name.",
        )
        .arg(Arg::new("pod").value_name("POD").help("Its name, namespace/name, or UID or the beginning of it; or the word node, image or volume"))
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .help("After the word image: a name or an ID; after the word volume: its name, POD/NAME or NAMESPACE/POD/NAME"),
        )
        .arg(output::argument(FORMATS))
        .arg(
            Arg::new("watch")
                .short('w')
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Print it again whenever it has changed, until it is as desired or has failed"),
        )
        .arg(
            Arg::new("timeline")
                .long("timeline")
                .action(ArgAction::SetTrue)
                .requires("pod")
                .help("Print the start of the pod as a waterfall"),
        )
        .arg(
            Arg::new("svg")
                .long("svg")
                .value_name("FILE")
                .requires("pod")
                .value_parser(value_parser!(PathBuf))
                .help("Write the waterfall to a file, as a picture"),
        );
    connection_arguments(command)
}

pub(crate) async fn run(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    if !matches.get_flag("watch") {
        return once(client, matches).await;
    }
    let mut before = String::new();
    loop {
        let outcome = once(client, matches).await?;
        // Durations change all the time: only for them nothing is printed again.
        let shown = without_numbers(&outcome.text);
        if outcome.code != code_of(Verdict::Waiting) {
            return Ok(outcome);
        }
        if shown != before {
            if !print_part(&outcome.text) {
                return Ok(Outcome { text: String::new(), ..outcome });
            }
            before = shown;
        }
        tokio::time::sleep(WATCH).await;
    }
}

fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

async fn once(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let words = matches.get_one::<String>("pod").map_or("", String::as_str);
    match (words, matches.get_one::<String>("name")) {
        (NODE, None) => return explained(client.get("/v1/node").await?, matches),
        (IMAGE | VOLUME, Some(name)) => return thing(client, words, name, matches).await,
        (IMAGE | VOLUME, None) => {
            return Err(CommandError::Usage(format!("kubelet why {words} needs the name of one")));
        }
        (_, Some(name)) => {
            let text =
                format!("{name:?} follows {words:?}: only the words image and volume have a name after them");
            return Err(CommandError::Usage(text));
        }
        (_, None) => {}
    }
    let mut found: PodExplanations = client.get(&format!("/v1/pods?pod={}", escaped(words))).await?;
    if !matches.contains_id("socket") && (found.pods.is_empty() || words.is_empty()) {
        let root = matches.get_one::<String>("root-dir").map_or(USUAL_ROOT, String::as_str);
        let unbound = single_node::unbound_pods(root).await.pods.into_iter();
        found.pods.extend(unbound.filter(|pod| is_named(pod, words)));
    }
    let found = if words.is_empty() { not_as_desired(found) } else { found };
    if found.pods.is_empty() && !words.is_empty() {
        return Err(CommandError::NotFound(unknown(words, &found)));
    }
    let now = Timestamp::now();
    if let Some(file) = matches.get_one::<PathBuf>("svg") {
        write_picture(file, &found.pods, now)?;
    }
    let code = code_of(worst(&found));
    let format = output::of(matches);
    let text = if matches!(format, Format::Json | Format::Yaml) {
        output::document(&found, format)?
    } else if matches.get_flag("timeline") {
        found.pods.iter().map(|pod| waterfall_text(pod, now)).collect::<Vec<_>>().join("\n")
    } else if words.is_empty() {
        overview(&found, now)
    } else {
        found.pods.iter().map(|pod| pod_text(pod, style(now))).collect::<Vec<_>>().join("\n")
    };
    Ok(Outcome { text, code })
}

/// By name, namespace/name, or UID or the beginning of it; without words every pod is.
fn is_named(pod: &PodExplanation, words: &str) -> bool {
    words == pod.name || words == format!("{}/{}", pod.namespace, pod.name) || pod.uid.starts_with(words)
}

/// `kubelet why image` and `kubelet why volume`.
async fn thing(
    client: &Client,
    kind: &str,
    name: &str,
    matches: &ArgMatches,
) -> Result<Outcome, CommandError> {
    if matches.get_flag("timeline") || matches.contains_id("svg") {
        let text = "--timeline and --svg are for pods".to_owned();
        return Err(CommandError::Usage(text));
    }
    let path = format!("/v1/{kind}?name={}", escaped(name));
    if kind == IMAGE {
        return explained(client.get(&path).await?, matches);
    }
    let found: Vec<Explanation> = client.get(&path).await?;
    let verdict = found.iter().map(|volume| volume.verdict).max().unwrap_or_default();
    let format = output::of(matches);
    let text = match matches!(format, Format::Json | Format::Yaml) {
        true => output::document(&found, format)?,
        false => {
            let text = |volume: &Explanation| node_text(volume, style(Timestamp::now()));
            found.iter().map(text).collect::<Vec<_>>().join("\n")
        }
    };
    Ok(Outcome { text, code: code_of(verdict) })
}

/// The explanation of the node, or of an image.
fn explained(found: Explanation, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let format = output::of(matches);
    let text = match matches!(format, Format::Json | Format::Yaml) {
        true => output::document(&found, format)?,
        false => node_text(&found, style(Timestamp::now())),
    };
    Ok(Outcome { text, code: code_of(found.verdict) })
}

pub(crate) fn style(now: Timestamp) -> Style {
    Style { width: terminal::width(), has_color: terminal::has_color(), now }
}

fn write_picture(file: &PathBuf, pods: &[PodExplanation], now: Timestamp) -> Result<(), CommandError> {
    let Some(pod) = pods.first() else { return Ok(()) };
    std::fs::write(file, waterfall_svg(pod, now))
        .map_err(|source| CommandError::Write { path: file.clone(), source })
}

/// Pods that wait or failed. Those that are gone are as desired.
fn not_as_desired(mut found: PodExplanations) -> PodExplanations {
    found.pods.retain(|pod| pod.verdict != Verdict::Fine);
    found
}

fn worst(found: &PodExplanations) -> Verdict {
    let pods = found.pods.iter().map(|pod| pod.verdict).max().unwrap_or(Verdict::Fine);
    let is_broken = !found.manifest_problems.is_empty();
    if is_broken && found.pods.is_empty() { Verdict::Failed } else { pods }
}

pub(crate) const fn code_of(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Fine => 0,
        Verdict::Waiting => ATTENTION,
        Verdict::Failed => FAILED,
    }
}

/// A line for each pod, and each problem of a manifest.
fn overview(found: &PodExplanations, now: Timestamp) -> String {
    let mut text = String::new();
    for pod in &found.pods {
        let since = pod.since.map(|since| format!(" (for {})", explain_core::times::span(since, now)));
        text += &format!("{}/{}: {}{}\n", pod.namespace, pod.name, pod.summary, since.unwrap_or_default());
    }
    text += &problems(found);
    if text.is_empty() { "Every pod of this node is as desired.\n".to_owned() } else { text }
}

fn problems(found: &PodExplanations) -> String {
    found.manifest_problems.iter().map(|problem| format!("{}\n", problem_line(problem))).collect()
}

/// The message of a problem in a file begins with its path already.
fn problem_line(problem: &ManifestProblem) -> String {
    let ManifestProblem { origin, message } = problem;
    let is_named = origin.strip_prefix("file:").is_some_and(|path| message.starts_with(path));
    if is_named { message.clone() } else { format!("{origin}: {message}") }
}

fn unknown(words: &str, found: &PodExplanations) -> String {
    let mut text = format!("no pod {words:?} is on this node, or among the last hundred that were");
    let problems = problems(found);
    if !problems.is_empty() {
        text += "\nmanifests with problems:\n";
        text += problems.trim_end();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, verdict: Verdict) -> PodExplanation {
        PodExplanation {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            verdict,
            summary: format!("It is {name}."),
            since: Some(Timestamp::UNIX_EPOCH),
            ..PodExplanation::default()
        }
    }

    #[test]
    fn pod_is_named_by_its_name_with_or_without_namespace_or_the_beginning_of_its_uid() {
        let mut pod = pod("web", Verdict::Waiting);
        pod.uid = "4c1d-5".to_owned();
        for words in ["web", "default/web", "4c1d", "4c1d-5", ""] {
            assert!(is_named(&pod, words), "{words}");
        }
        for words in ["we", "other/web", "c1d"] {
            assert!(!is_named(&pod, words), "{words}");
        }
    }

    #[test]
    fn overview_has_a_line_for_each_pod_that_is_not_as_desired_and_each_broken_manifest() {
        let now = Timestamp::from_second(61).unwrap();
        let all = [pod("up", Verdict::Fine), pod("slow", Verdict::Waiting), pod("dead", Verdict::Failed)];
        let mut found = PodExplanations { pods: all.to_vec(), manifest_problems: Vec::new() };
        found = not_as_desired(found);
        assert_eq!(
            overview(&found, now),
            "default/slow: It is slow. (for 1 min 1 s)\ndefault/dead: It is dead. (for 1 min 1 s)\n"
        );
        assert_eq!(code_of(worst(&found)), 4);
        found.pods.clear();
        assert_eq!(
            (overview(&found, now).as_str(), worst(&found)),
            ("Every pod of this node is as desired.\n", Verdict::Fine)
        );
        let problem = ManifestProblem {
            origin: "file:/m/web.yaml".to_owned(),
            message: "/m/web.yaml:3: no such field".to_owned(),
        };
        found.manifest_problems.push(problem);
        assert_eq!(overview(&found, now), "/m/web.yaml:3: no such field\n");
        assert_eq!(code_of(worst(&found)), 4);
        assert!(unknown("web", &found).ends_with("manifests with problems:\n/m/web.yaml:3: no such field"));
    }
}
