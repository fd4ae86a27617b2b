//! Paths of the logs of node services, and the arguments of journalctl.

use model::NodeLogOptions;

/// Arguments that list all units with entries in the journal.
pub const UNITS: [&str; 2] = ["--field", "_SYSTEMD_UNIT"];

/// Arguments of a journal query.
#[must_use]
pub fn journal_arguments(services: &[&str], options: &NodeLogOptions) -> Vec<String> {
    let mut arguments = vec!["--utc".to_owned(), "--no-pager".to_owned()];
    for (name, time) in [("since", options.since), ("until", options.until)] {
        arguments.extend(time.map(|time| format!("--{name}={}", time.strftime("%Y-%m-%d %H:%M:%S"))));
    }
    if let Some(lines) = options.tail_lines {
        arguments.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
    }
    arguments.extend(services.iter().map(|service| format!("--unit={service}")));
    if !options.pattern.is_empty() {
        arguments.extend([format!("--grep={}", options.pattern), "--case-sensitive=false".to_owned()]);
    }
    arguments.extend(options.boot.map(|boot| format!("--boot={boot}")));
    arguments
}

/// Separates services with entries in the journal, which has these units, from those that may have log files.
#[must_use]
pub fn part<'a>(services: &'a [String], units: &str) -> (Vec<&'a str>, Vec<&'a str>) {
    services.iter().map(String::as_str).partition(|service| units.contains(&format!("{service}.service")))
}

/// Possible log files of a service without journal entries, below the log directory; the first that is a file is used.
#[must_use]
pub fn file_names(service: &str) -> [String; 3] {
    [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(services: &[&str], options: &NodeLogOptions) -> String {
        journal_arguments(services, options).join(" ")
    }

    #[test]
    fn journal_arguments_follow_the_query_options() {
        assert_eq!(
            arguments(&["kubelet", "crio"], &NodeLogOptions::default()),
            "--utc --no-pager --unit=kubelet --unit=crio"
        );
        let all = NodeLogOptions {
            since: Some("2026-01-02T03:04:05+02:00".parse().unwrap()),
            until: Some("2026-01-03T00:00:00Z".parse().unwrap()),
            tail_lines: Some(5),
            boot: Some(-1),
            pattern: "oops|--bad".to_owned(),
        };
        assert_eq!(
            arguments(&["kubelet"], &all),
            "--utc --no-pager --since=2026-01-02 01:04:05 --until=2026-01-03 00:00:00 --pager-end --lines=5 \
             --unit=kubelet --grep=oops|--bad --case-sensitive=false --boot=-1"
        );
    }

    #[test]
    fn services_without_journal_entries_are_looked_up_as_files() {
        let services = ["kubelet".to_owned(), "nginx".to_owned()];
        assert_eq!(part(&services, "cron.service\nkubelet.service\n"), (vec!["kubelet"], vec!["nginx"]));
        assert_eq!(file_names("nginx"), ["nginx", "nginx.log", "nginx/nginx.log"]);
    }
}
