//! `kubelet stats`: what the node and its pods use of CPU and memory.

use clap::{Arg, ArgAction, ArgMatches, Command};
use explain_core::amounts::{bytes, cores};
use explain_core::times::clock_time;
use model::inventory::{NodeUsage, PodUsage, Usage};

use crate::client::Client;
use crate::get::WATCH;
use crate::output::{self, Format};
use crate::selection::{self, Selection};
use crate::table::{lines, table};
use crate::{CommandError, Outcome, connection_arguments, print_part, report, terminal};

const FORMATS: &[Format] = &[Format::Text, Format::Json, Format::Yaml];
const HEADING: [&str; 7] = ["NAMESPACE", "POD", "CONTAINER", "CPU", "MEMORY", "LIMIT", "OF LIMIT"];
const NONE: &str = "-";
/// Moves the cursor to the top and clears what is below it.
const CLEAR: &str = "\x1b[H\x1b[J";

const EXAMPLES: &str = "Examples:
  kubelet stats                    every pod with its containers, the busiest first
  kubelet stats -w                 again every two seconds, until Ctrl-C
  kubelet stats --sort memory -n shop
  kubelet stats web -o json

CPU is in thousandths of a CPU over the last seconds; memory is the working set, which the kernel cannot take back at once.";

pub(crate) fn definition() -> Command {
    let command = Command::new("stats")
        .about("Show what the node and its pods use of CPU and memory")
        .after_help(EXAMPLES)
        .arg(
            Arg::new("watch")
                .short('w')
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Show it again every two seconds"),
        )
        .arg(
            Arg::new("sort")
                .long("sort")
                .value_name("BY")
                .value_parser(["cpu", "memory", "name"])
                .default_value("cpu")
                .help("The order of the pods"),
        )
        .arg(output::argument(FORMATS));
    connection_arguments(selection::arguments(command))
}

pub(crate) async fn run(client: &Client, matches: &ArgMatches) -> Result<Outcome, CommandError> {
    let path = Selection::of(matches).path("/v1/stats");
    let is_watched = matches.get_flag("watch");
    let mut usage: NodeUsage = client.get(&path).await?;
    if usage.node.cpu_nanocores.is_none() && usage.problems.is_empty() {
        // A rate needs two readings.
        tokio::time::sleep(WATCH).await;
        usage = client.get(&path).await?;
    }
    loop {
        let text = text(&mut usage, matches)?;
        if !is_watched {
            usage.problems.iter().for_each(|problem| report(problem));
            return Ok(Outcome { text, code: u8::from(!usage.problems.is_empty()) });
        }
        if !print_part(&if terminal::is_terminal() { screen(&text) } else { text }) {
            return Ok(Outcome::default());
        }
        tokio::time::sleep(WATCH).await;
        usage = client.get(&path).await?;
    }
}

/// As many lines as the terminal has.
fn screen(text: &str) -> String {
    let rows = terminal::size().map_or(usize::MAX, |(_, rows)| usize::from(rows).saturating_sub(1));
    format!("{CLEAR}{}", lines(text).take(rows).collect::<String>())
}

fn text(usage: &mut NodeUsage, matches: &ArgMatches) -> Result<String, CommandError> {
    sort(&mut usage.pods, matches.get_one::<String>("sort").map_or("cpu", String::as_str));
    match output::of(matches) {
        format @ (Format::Json | Format::Yaml) => output::document(usage, format),
        Format::Text | Format::Wide | Format::Name => {
            Ok(format!("{}\n{}", node_line(usage), pods(&usage.pods)))
        }
    }
}

/// The largest first, and then by name.
fn sort(pods: &mut [PodUsage], by: &str) {
    let name = |pod: &PodUsage| (pod.namespace.clone(), pod.name.clone());
    pods.sort_by_key(name);
    match by {
        "cpu" => pods.sort_by_key(|pod| std::cmp::Reverse(pod.usage.cpu_nanocores)),
        "memory" => pods.sort_by_key(|pod| std::cmp::Reverse(pod.usage.memory_bytes)),
        _ => {}
    }
}

fn node_line(usage: &NodeUsage) -> String {
    let percent = |part: u64, whole: u64| part.saturating_mul(100).checked_div(whole).unwrap_or_default();
    let cpu = usage.node.cpu_nanocores.map(|used| {
        let all = u64::from(usage.cpus) * 1_000_000_000;
        format!("{} of {} CPUs ({} %)", cores(used), usage.cpus, percent(used, all))
    });
    let memory = usage.node.memory_bytes.map(|used| {
        let all = usage.memory_capacity_bytes;
        format!("{} of {} memory ({} %)", bytes(used), bytes(all), percent(used, all))
    });
    let parts: Vec<String> = [cpu, memory].into_iter().flatten().collect();
    format!("The node uses {} at {}.\n", parts.join(" and "), clock_time(usage.taken))
}

fn pods(pods: &[PodUsage]) -> String {
    let mut rows = Vec::new();
    for pod in pods {
        let row = |container: &str, usage: &Usage, limit: Option<u64>| {
            let of_limit = usage.memory_bytes.zip(limit).filter(|(_, limit)| *limit > 0);
            vec![
                pod.namespace.clone(),
                pod.name.clone(),
                container.to_owned(),
                usage.cpu_nanocores.map_or_else(|| NONE.to_owned(), cores),
                usage.memory_bytes.map_or_else(|| NONE.to_owned(), bytes),
                limit.map_or_else(|| NONE.to_owned(), bytes),
                of_limit.map_or_else(|| NONE.to_owned(), |(used, limit)| format!("{} %", used * 100 / limit)),
            ]
        };
        rows.push(row("(all)", &pod.usage, pod.memory_limit_bytes));
        for container in &pod.containers {
            rows.push(row(&container.name, &container.usage, container.memory_limit_bytes));
        }
    }
    table(&HEADING, &rows)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use model::inventory::ContainerUsage;

    use super::*;

    fn pod(name: &str, cpu: u64, memory: u64) -> PodUsage {
        let usage = Usage { cpu_nanocores: Some(cpu * 1_000_000), memory_bytes: Some(memory << 20) };
        let container = ContainerUsage { name: "app".to_owned(), usage, memory_limit_bytes: Some(100 << 20) };
        PodUsage {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            usage,
            containers: vec![container],
            ..PodUsage::default()
        }
    }

    #[test]
    fn busiest_pod_is_first_and_each_container_has_its_part_of_the_limit() {
        let mut usage = NodeUsage {
            taken: Timestamp::from_second(50_710).unwrap(),
            node: Usage { cpu_nanocores: Some(500_000_000), memory_bytes: Some(1 << 30) },
            cpus: 2,
            memory_capacity_bytes: 4 << 30,
            pods: vec![pod("db", 3, 75), pod("web", 40, 20)],
            problems: Vec::new(),
        };
        let matches = definition().try_get_matches_from(["stats"]).unwrap();
        expect_test::expect![[r#"
            The node uses 500m of 2 CPUs (25 %) and 1.0 GiB of 4.0 GiB memory (25 %) at 14:05:10 UTC.

            NAMESPACE   POD   CONTAINER   CPU   MEMORY     LIMIT       OF LIMIT
            default     web   (all)       40m   20.0 MiB   -           -
            default     web   app         40m   20.0 MiB   100.0 MiB   20 %
            default     db    (all)       3m    75.0 MiB   -           -
            default     db    app         3m    75.0 MiB   100.0 MiB   75 %
        "#]]
        .assert_eq(&text(&mut usage, &matches).unwrap());
        let first = |by: &str| {
            let mut pods = [pod("db", 3, 75), pod("web", 40, 20)];
            sort(&mut pods, by);
            pods[0].name.clone()
        };
        assert_eq!(["cpu", "memory", "name"].map(first), ["web", "db", "db"]);
    }
}
