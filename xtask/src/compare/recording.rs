//! A recording on disk, and its assembly from the files of a run.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::exposition::exposition_families;
use crate::CheckError;

/// The recording of one kubelet.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// By name: `patches`, `final`, `events`.
    pub pods: BTreeMap<String, Value>,
    pub node: Value,
    pub lease: Value,
    /// By pod and container: requests to the runtime.
    pub cri: Value,
    pub summary: Value,
    pub configz: Value,
    pub metrics_resource: String,
    /// Families of all endpoints with type and labels.
    pub families: BTreeMap<String, String>,
}

/// The endpoints whose families `metrics.tsv` lists, and the file that has the text of each.
const ENDPOINTS: [(&str, &str); 4] = [
    ("/metrics", "metrics.txt"),
    ("/metrics/cadvisor", "metrics-cadvisor.txt"),
    ("/metrics/resource", "metrics-resource.txt"),
    ("/metrics/probes", "metrics-probes.txt"),
];

impl Recording {
    /// Reads a directory. A file that is missing leaves its part empty, and that part is not compared.
    ///
    /// # Errors
    /// The directory has no pods, or a file cannot be read.
    pub fn read(directory: &Path) -> Result<Self, CheckError> {
        let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        let value = |name: &str| serde_json::from_str(&text(name)).unwrap_or_default();
        let mut families = families_of_table(&text("metrics.tsv"));
        for (endpoint, file) in ENDPOINTS {
            let file = text(file);
            if families.is_empty() || !families.keys().any(|key| key.starts_with(&format!("{endpoint} "))) {
                families.extend(exposition_families(endpoint, &file));
            }
        }
        Ok(Self {
            pods: read_pods(directory)?,
            node: value("node.json"),
            lease: value("lease.json"),
            cri: value("cri.json"),
            summary: value("stats-summary.json"),
            configz: value("configz.json"),
            metrics_resource: text("metrics-resource.txt"),
            families,
        })
    }
}

fn read_pods(directory: &Path) -> Result<BTreeMap<String, Value>, CheckError> {
    let path = directory.join("pods");
    let failed = |source| CheckError::Read { path: path.clone(), source };
    let mut pods = BTreeMap::new();
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let pod = serde_json::from_str(&crate::read(&file)?).unwrap_or_default();
        pods.insert(name, pod);
    }
    Ok(pods)
}

/// `endpoint<TAB>family<TAB>type<TAB>labels`, after a header.
fn families_of_table(text: &str) -> BTreeMap<String, String> {
    let rows = text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let families = rows.filter_map(|row| {
        let [endpoint, family, kind, labels, ..] = row.as_slice() else { return None };
        let mut labels: Vec<&str> =
            labels.split(',').map(str::trim).filter(|label| !label.is_empty()).collect();
        labels.sort_unstable();
        Some((format!("{endpoint} {family}"), format!("{kind} {}", labels.join(",")).trim().to_owned()))
    });
    families.collect()
}

/// The recording of each pod of a namespace, from localapi's audit log, the final pods, and all events.
#[must_use]
pub fn assemble(audit: &str, pods: &Value, events: &Value, namespace: &str) -> BTreeMap<String, Value> {
    let mut recorded: BTreeMap<String, Value> = BTreeMap::new();
    let empty = || json!({"patches": [], "final": null, "events": []});
    for line in audit.lines() {
        let Ok(call) = serde_json::from_str::<Value>(line) else { continue };
        let uri = call["uri"].as_str().unwrap_or_default();
        let below = format!("/api/v1/namespaces/{namespace}/pods/");
        let Some(rest) = uri.split('?').next().and_then(|path| path.strip_prefix(&below)) else { continue };
        let Some(name) = rest.strip_suffix("/status").filter(|_| call["verb"] == "patch") else { continue };
        let is_pod = call["response"]["kind"] == "Pod";
        let status = if is_pod { &call["response"]["status"] } else { &call["response"] };
        let patch =
            json!({"at": call["at"], "code": call["code"], "patch": call["request"], "status": status});
        let pod = recorded.entry(name.to_owned()).or_insert_with(empty);
        if let Some(patches) = pod["patches"].as_array_mut() {
            patches.push(patch);
        }
    }
    for pod in pods["items"].as_array().into_iter().flatten() {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let of_pod = recorded.entry(name.to_owned()).or_insert_with(empty);
        of_pod["final"] = json!({"metadata": pod["metadata"], "status": pod["status"]});
    }
    for event in events["items"].as_array().into_iter().flatten() {
        let about = &event["involvedObject"];
        let is_here = about["kind"] == "Pod" && about["namespace"] == namespace;
        let Some(name) = about["name"].as_str().filter(|_| is_here) else { continue };
        let shown = json!({"type": event["type"], "reason": event["reason"], "message": event["message"],
            "count": event["count"], "fieldPath": about["fieldPath"], "source": event["source"]});
        let of_pod = recorded.entry(name.to_owned()).or_insert_with(empty);
        if let Some(events) = of_pod["events"].as_array_mut() {
            events.push(shown);
        }
    }
    recorded
}
