//! All changes of the pods of a cluster, as a watch reports them: kubectl writes the stream to a file.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::Child;

use serde_json::Value;

use super::kubectl::Kubectl;

pub(crate) struct Watch {
    file: PathBuf,
    /// The offset up to which [`Self::new_events`] has read.
    read: usize,
    kubectl: Child,
}

impl Watch {
    /// All pods of the default namespace from now on.
    pub(crate) fn pods(kubectl: &Kubectl, file: PathBuf) -> Self {
        let pods = "/api/v1/namespaces/default/pods";
        let list: Value = serde_json::from_str(&kubectl.ok(&["get", "--raw", pods])).expect("a list of pods");
        let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
        let out = std::fs::File::create(&file).expect("a file for the stream");
        let path = format!("{pods}?watch=true&resourceVersion={version}");
        let kubectl = kubectl.start_into(&["get", "--raw", &path], out);
        Self { file, read: 0, kubectl }
    }

    /// All events so far, in order.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.events_after(0).0
    }

    /// The events since the last call.
    pub(crate) fn new_events(&mut self) -> Vec<Value> {
        let (events, end) = self.events_after(self.read);
        self.read = end;
        events
    }

    /// The events that begin at this offset of the file, and where they end.
    fn events_after(&self, begin: usize) -> (Vec<Value>, usize) {
        let mut file = std::fs::File::open(&self.file).expect("the stream so far");
        file.seek(SeekFrom::Start(begin as u64)).expect("as far as it was read");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("the stream from there on");
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let events = whole.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
        (events, begin + whole.len())
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.events().iter().filter(|event| event["type"] == kind).count()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

/// Reports what is wrong with the history of each pod, from its creation to its deletion: it has both, its phase never goes back,
/// its container is one and the same, and every update changes something. At most `most` updates are allowed.
pub(crate) fn violations(events: &[Value], max_updates: usize) -> Vec<String> {
    let mut histories: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    let mut violations = Vec::new();
    let mut last_version = 0;
    for event in events {
        let meta = &event["object"]["metadata"];
        let version = meta["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
        if version <= last_version {
            violations.push(format!("{version} comes after {last_version}"));
        }
        last_version = version;
        histories.entry(meta["uid"].to_string()).or_default().push(event);
    }
    violations.extend(histories.values().flat_map(|history| violations_of(history, max_updates)));
    violations
}

fn violations_of(history: &[&Value], max_updates: usize) -> Vec<String> {
    let mut violations = Vec::new();
    let kinds: Vec<&str> = history.iter().filter_map(|event| event["type"].as_str()).collect();
    let between = kinds.iter().filter(|kind| **kind == "MODIFIED").count();
    if kinds.first() != Some(&"ADDED") || kinds.last() != Some(&"DELETED") || between + 2 != kinds.len() {
        violations.push(format!("{kinds:?}"));
    }
    if between > max_updates {
        violations.push(format!("{between} updates, expected at most {max_updates}"));
    }
    for pair in history.windows(2) {
        let [before, after] = [&pair[0]["object"], &pair[1]["object"]];
        if rank(after) < rank(before) {
            violations.push(format!("{} after {}", after["status"]["phase"], before["status"]["phase"]));
        }
        let [id, next] =
            [before, after].map(|pod| pod["status"]["containerStatuses"][0]["containerID"].clone());
        if id.is_string() && id != next {
            violations.push(format!("container {next} after {id}"));
        }
        if pair[1]["type"] == "MODIFIED" && without_version(before) == without_version(after) {
            violations.push("an update without a change".to_owned());
        }
    }
    let name = &history[0]["object"]["metadata"]["name"];
    violations.into_iter().map(|what| format!("{name}: {what}")).collect()
}

fn rank(pod: &Value) -> u8 {
    match pod["status"]["phase"].as_str() {
        Some("Running") => 1,
        Some("Succeeded" | "Failed") => 2,
        _ => 0,
    }
}

fn without_version(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for field in ["resourceVersion", "managedFields"] {
        pod["metadata"].as_object_mut().expect("an object").remove(field);
    }
    pod
}

#[test]
fn pod_history_check_reports_invalid_transitions() {
    let event = |kind: &str, version: u32, phase: &str, id: &str| {
        serde_json::json!({"type": kind, "object": {
            "metadata": {"name": "a", "uid": "u", "resourceVersion": version.to_string()},
            "status": {"phase": phase, "containerStatuses": [{"containerID": id}]},
        }})
    };
    let born = event("ADDED", 1, "Pending", "x");
    let good = [born.clone(), event("MODIFIED", 2, "Running", "x"), event("DELETED", 3, "Running", "x")];
    assert_eq!(violations(&good, 1), Vec::<String>::new());
    assert_eq!(violations(&good, 0), [r#""a": 1 updates, expected at most 0"#]);
    assert_eq!(violations(&good[..2], 1), [r#""a": ["ADDED", "MODIFIED"]"#]);
    let bad = [
        event("ADDED", 2, "Running", "x"),
        event("MODIFIED", 3, "Running", "x"),
        event("DELETED", 1, "Pending", "y"),
    ];
    assert_eq!(
        violations(&bad, 9),
        [
            "1 comes after 3",
            r#""a": an update without a change"#,
            r#""a": "Pending" after "Running""#,
            r#""a": container "y" after "x""#,
        ]
    );
}
