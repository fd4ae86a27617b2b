//! The examples of docs/operate: alerts and a dashboard, held to what a node exposes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, shell_pod};
use crate::stats::program;

/// Families that a node has only after the first event that they count, with their labels: checked against the sources.
const COUNTED_LATER: &[(&str, &[&str])] = &[("kubelet_evictions", &["eviction_signal"])];
/// Labels that Prometheus adds to each sample.
const OF_PROMETHEUS: &[&str] = &["instance", "job"];
const WORDS: &[&str] = &["and", "or", "unless", "bool", "offset"];
/// Words before labels in parentheses.
const GROUPING: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text_of(name: &str) -> String {
    let path = repository().join("docs/operate").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What an expression uses: metrics with the labels that select, and the labels that group.
#[derive(Debug, Default, PartialEq, Eq)]
struct Used {
    metrics: Vec<(String, BTreeSet<String>)>,
    grouping: BTreeSet<String>,
}

fn used(expression: &str) -> Used {
    let mut used = Used::default();
    let mut rest = without_texts(expression);
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        // The unit of a duration belongs to its number.
        let is_unit = rest[..start].ends_with(|c: char| c.is_ascii_digit());
        let word: String = rest[start..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == ':')
            .collect();
        let after = rest[start + word.len()..].trim_start().to_owned();
        let inside = |open: char, close: char| {
            let list = after.strip_prefix(open)?.split(close).next()?;
            Some(list.split(',').map(label_of).filter(|label| !label.is_empty()).collect())
        };
        let mut skipped = 0;
        if GROUPING.contains(&word.as_str()) {
            let labels: BTreeSet<String> = inside('(', ')').unwrap_or_default();
            used.grouping.extend(labels);
            skipped = after.find(')').map_or(0, |end| end + 1);
        } else if !is_unit && !WORDS.contains(&word.as_str()) && !after.starts_with('(') {
            let is_aggregation = GROUPING.iter().any(|grouping| after.starts_with(&format!("{grouping} (")));
            if !is_aggregation {
                used.metrics.push((word, inside('{', '}').unwrap_or_default()));
                skipped = if after.starts_with('{') { after.find('}').map_or(0, |end| end + 1) } else { 0 };
            }
        }
        rest = after[skipped..].to_owned();
    }
    used
}

/// The text without what is in quotes.
fn without_texts(expression: &str) -> String {
    expression.split('"').step_by(2).collect::<Vec<_>>().join("")
}

/// `reason` of `reason!=`.
fn label_of(part: &str) -> String {
    part.trim().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

/// The labels of each metric of a scrape.
fn exposed(node: &Node) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in ["/metrics", "/metrics/cadvisor", "/metrics/resource"] {
        for line in node.get(path).expect("metrics").lines().filter(|line| !line.starts_with('#')) {
            let Used { metrics, .. } = used(line);
            let (name, labels) = metrics.into_iter().next().expect("a sample has a name");
            found.entry(name).or_default().extend(labels);
        }
    }
    found
}

/// The expressions of the rules: on the line of `expr:`, or folded over the lines that are indented further.
fn rules() -> Vec<String> {
    let (text, mut found) = (text_of("alerts.yaml"), Vec::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(first) = line.trim_start().strip_prefix("expr: ") else { continue };
        let indent = |line: &str| line.len() - line.trim_start().len();
        let mut expression = first.strip_prefix(">-").unwrap_or(first).to_owned();
        while let Some(more) = lines.next_if(|next| indent(next) > indent(line)) {
            expression = format!("{expression} {}", more.trim());
        }
        found.push(expression);
    }
    found
}

fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text_of("dashboard.json")).expect("JSON");
    let panels = list(&dashboard["panels"]).iter().flat_map(|panel| list(&panel["targets"]));
    rules().into_iter().chain(panels.map(|target| text(&target["expr"]))).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// A node on which a pod runs with a limit, one cannot be pulled, and one has a hook that takes its time.
fn node() -> Node {
    let node = Node::start();
    let mut limited = shell_pod("limited", FOREVER);
    limited["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi"}});
    node.apply("limited", &limited);
    let mut unpullable = shell_pod("unpullable", FOREVER);
    unpullable["spec"]["containers"][0]["image"] = "127.0.0.1:1/no/such:1".into();
    unpullable["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    node.apply("unpullable", &unpullable);
    let mut slow = shell_pod("slow", FOREVER);
    slow["spec"]["containers"][0]["lifecycle"] =
        json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", "sleep 40"]}}});
    node.apply("slow", &slow);
    node
}

/// The line in a source of the crates that has the name of a family.
fn is_in_sources(folder: &Path, name: &str) -> bool {
    let mut entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.any(|path| match path.is_dir() {
        true => path.file_name().is_some_and(|name| name != "tests") && is_in_sources(&path, name),
        false => std::fs::read_to_string(&path).is_ok_and(|text| text.contains(&format!("\"{name}\""))),
    })
}

#[test]
fn expressions_are_taken_apart_into_metrics_and_labels() {
    let set = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<_>>();
    let expression = "sum by (instance, le) (rate(calls_total{code!=\"x, y\", verb=~\"a|b\"}[10m])) / on (pod) up > 0.5 and offline";
    let expected = Used {
        metrics: vec![
            ("calls_total".to_owned(), set(&["code", "verb"])),
            ("up".to_owned(), set(&[])),
            ("offline".to_owned(), set(&[])),
        ],
        grouping: set(&["instance", "le", "pod"]),
    };
    assert_eq!(used(expression), expected);
    assert_eq!(used("bucket{le=\"+Inf\"} 5").metrics, [("bucket".to_owned(), set(&["le"]))]);
}

#[test]
fn alerts_and_dashboard_use_only_metrics_that_a_node_exposes() {
    let node = node();
    let known = node.eventually("the waits and the limit are exposed", |node| {
        let known = exposed(node);
        let wanted = [
            "kubelet_rs_pod_waits_total",
            "kubelet_rs_waiting_pods",
            "container_spec_memory_limit_bytes",
            "kubelet_runtime_operations_errors_total",
        ];
        match wanted.iter().find(|name| !known.contains_key(**name)) {
            Some(missing) => Err(format!("{missing} is missing")),
            None => Ok(known),
        }
    });
    let metrics = node.get("/metrics").expect("metrics");
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        if metrics.contains(&format!("kubelet_rs_waiting_pods{{reason=\"{reason}\"}} 1\n")) {
            assert!(metrics.contains(&format!("kubelet_rs_pod_waiting_seconds{{reason=\"{reason}\"}}")));
        }
    }
    assert!(
        metrics.contains("kubelet_rs_pod_waits_total{reason=\"WaitingForPostStartHook\"} 1\n"),
        "{metrics}"
    );
    let expressions = expressions();
    assert!(rules().len() >= 10 && expressions.len() >= 24, "{expressions:?}");
    let later = |name: &str| COUNTED_LATER.iter().find(|(later, _)| *later == name);
    for expression in expressions {
        let Used { metrics, grouping } = used(&expression);
        let mut labels_of_all: BTreeSet<String> =
            OF_PROMETHEUS.iter().map(|label| (*label).to_owned()).collect();
        for (name, labels) in metrics {
            let its = match (known.get(&name), later(&name)) {
                (Some(its), _) => its.clone(),
                (None, Some((_, its))) => {
                    assert!(
                        is_in_sources(&repository().join("crates"), &name),
                        "{name} is not in the sources"
                    );
                    its.iter().map(|label| (*label).to_owned()).collect()
                }
                (None, None) => panic!("{name} of {expression:?} is not exposed"),
            };
            labels_of_all.extend(its);
            assert!(
                labels.is_subset(&labels_of_all),
                "{expression:?}: {labels:?} are not all of {labels_of_all:?}"
            );
        }
        assert!(
            grouping.is_subset(&labels_of_all),
            "{expression:?}: {grouping:?} are not all of {labels_of_all:?}"
        );
    }
}

#[test]
fn alerts_pass_promtool() {
    let file = repository().join("docs/operate/alerts.yaml");
    let output = program("promtool").args(["check", "rules", "--lint-fatal"]).arg(file).output();
    let output = output.expect("promtool runs; scripts/setup brings it");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
