//! `cpu_manager_state`: the CPUs of containers in a file, so that a restart of the kubelet keeps them.
//!
//! The format is the Go kubelet's, with its checksum over a debug print of the Go value, so that a node can switch between the two
//! kubelets. There are three versions: containers by their runtime ids (1, only read), containers by pod and name (2), and with the CPUs of
//! pods (3, with `PodLevelResourceManagers`).

use std::collections::BTreeMap;

use base_core::fnv::fnv1a_32;
use model::PodUid;
use model::cpu_set::{CpuSet, CpuSetError};
use serde::Serialize;
use serde_json::{Map, Value};

use super::state::CpuState;

/// The name of the file in the root directory.
pub const CPU_STATE_FILE: &str = "cpu_manager_state";

/// Why the state of an earlier kubelet is not used. The kubelet does not start.
#[derive(Debug, thiserror::Error)]
pub enum CpuStateError {
    #[error("it is no JSON of this kind")]
    Json(#[from] serde_json::Error),
    #[error("it is no JSON of this kind: {0} is missing or of another type")]
    Type(&'static str),
    #[error("checkpoint is corrupted")]
    Corrupt,
    #[error("configured policy {configured:?} differs from state checkpoint policy {recorded:?}")]
    Policy { configured: String, recorded: String },
    #[error("could not parse default cpu set {text:?}: {source}")]
    Default { text: String, source: CpuSetError },
    #[error("could not parse cpuset {text:?} for container {container:?} in pod {pod:?}: {source}")]
    Container { text: String, container: String, pod: String, source: CpuSetError },
    #[error(
        "failed to migrate checkpoint from v1 to v2: containerID '{0}' not found in initial containers list"
    )]
    UnknownContainer(String),
}

impl CpuStateError {
    /// The message with which the kubelet ends.
    #[must_use]
    pub fn advice(&self, path: &str) -> String {
        format!(
            "could not restore state from checkpoint: {self}, please drain this node and delete the CPU manager checkpoint file \
             {path:?} before restarting Kubelet"
        )
    }
}

/// Which older version was read; the next write migrates the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    None,
    /// From containers by runtime id.
    FromV1,
    /// From a file without CPUs of pods.
    FromV2,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    policy_name: &'a str,
    default_cpu_set: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<&'a str, BTreeMap<&'a str, String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pod_entries: BTreeMap<&'a str, PodEntry>,
    checksum: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodEntry {
    #[serde(skip_serializing_if = "String::is_empty")]
    cpu_set: String,
}

/// What a file has, of any version.
struct Read {
    policy: String,
    default: String,
    entries: Value,
    pods: Option<BTreeMap<String, CpuSet>>,
    checksum: u64,
}

/// The text of the file: version 3 with `pod_level` (`PodLevelResourceManagers`), else 2.
#[must_use]
pub fn write_cpu_state(policy: &str, state: &CpuState, pod_level: bool) -> String {
    let entries: BTreeMap<_, _> = state
        .assigned
        .iter()
        .map(|(pod, containers)| {
            let containers = containers.iter().map(|(name, cpus)| (name.as_str(), cpus.to_string()));
            (pod.as_str(), containers.collect::<BTreeMap<_, _>>())
        })
        .collect();
    let pods: BTreeMap<_, _> =
        state.pods.iter().filter(|_| pod_level).map(|(pod, cpus)| (pod.as_str(), cpus)).collect();
    let default_cpu_set = state.default.to_string();
    let printed =
        go_entries(entries.iter().map(|(pod, c)| (*pod, go_texts(c.iter().map(|(n, t)| (*n, t.as_str()))))));
    let checksum = checksum(
        "CPUManagerCheckpoint",
        policy,
        &default_cpu_set,
        &format!("(map[string]map[string]string){printed}"),
        pod_level.then(|| go_pods(pods.iter().map(|(pod, cpus)| (*pod, *cpus)))).as_deref(),
    );
    let pod_entries = pods.iter().map(|(pod, cpus)| (*pod, PodEntry { cpu_set: cpus.to_string() })).collect();
    let file = File { policy_name: policy, default_cpu_set, entries, pod_entries, checksum };
    serde_json::to_string(&file).unwrap_or_default()
}

/// Reads a file of the policy. `container_of` knows the pod and name of each container by the runtime's id.
///
/// # Errors
/// The text was not written by a kubelet, is incomplete, or is of another policy.
pub fn parse_cpu_state(
    text: &str,
    policy: &str,
    pod_level: bool,
    container_of: impl Fn(&str) -> Option<(PodUid, String)>,
) -> Result<(CpuState, Migration), CpuStateError> {
    let read = Read::parse(&serde_json::from_str(text)?)?;
    let containers = nested(&read.entries);
    let (entries, migration) = if pod_level && containers.as_ref().is_some_and(|c| read.is_v3(c)) {
        (containers, Migration::None)
    } else if containers.as_ref().is_some_and(|c| read.is_v2(c, pod_level)) {
        (containers, if pod_level { Migration::FromV2 } else { Migration::None })
    } else {
        let ids = texts(&read.entries).filter(|ids| read.is_v1(ids)).ok_or(CpuStateError::Corrupt)?;
        (Some(by_name(ids, container_of)?), Migration::FromV1)
    };
    if read.policy != policy {
        return Err(CpuStateError::Policy { configured: policy.to_owned(), recorded: read.policy });
    }
    let has_pods = pod_level && migration == Migration::None;
    let pods = if has_pods { read.pods.unwrap_or_default() } else { BTreeMap::new() };
    let default = read.default.parse();
    let state = CpuState {
        default: default.map_err(|source| CpuStateError::Default { text: read.default, source })?,
        assigned: assigned(entries.unwrap_or_default())?,
        pods: pods.into_iter().map(|(pod, cpus)| (PodUid::new(pod), cpus)).collect(),
    };
    Ok((state, migration))
}

type Entries = BTreeMap<String, BTreeMap<String, String>>;

impl Read {
    fn parse(file: &Value) -> Result<Self, CpuStateError> {
        let file = file.as_object().ok_or(CpuStateError::Type("the object"))?;
        let text = |name| match field(file, name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(value) => value.as_str().map(str::to_owned).ok_or(CpuStateError::Type(name)),
        };
        let checksum = match field(file, "checksum") {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_u64().ok_or(CpuStateError::Type("checksum"))?,
        };
        Ok(Self {
            policy: text("policyName")?,
            default: text("defaultCpuSet")?,
            entries: field(file, "entries").cloned().unwrap_or_else(|| Value::Object(Map::new())),
            pods: pod_entries(field(file, "podEntries")),
            checksum,
        })
    }

    fn has_checksum(&self, kind: &str, entries: &str, pods: Option<&str>) -> bool {
        u64::from(checksum(kind, &self.policy, &self.default, entries, pods)) == self.checksum
    }

    fn is_v3(&self, entries: &Entries) -> bool {
        let Some(pods) = &self.pods else { return false };
        let pods = go_pods(pods.iter().map(|(pod, cpus)| (pod.as_str(), cpus)));
        self.has_checksum("CPUManagerCheckpoint", &go_nested(entries), Some(&pods))
    }

    /// Files without a checksum are of very old kubelets, and are accepted.
    fn is_v2(&self, entries: &Entries, pod_level: bool) -> bool {
        let entries = go_nested(entries);
        self.checksum == 0
            || self.has_checksum("CPUManagerCheckpoint", &entries, None)
            || (!pod_level && self.has_checksum("CPUManagerCheckpointV2", &entries, None))
    }

    fn is_v1(&self, ids: &BTreeMap<String, String>) -> bool {
        let ids = ids.iter().map(|(id, cpus)| (id.as_str(), cpus.as_str()));
        let entries = format!("(map[string]string){}", go_texts(ids));
        self.checksum == 0 || self.has_checksum("CPUManagerCheckpoint", &entries, None)
    }
}

/// A field, in any case of letters, as Go reads JSON.
fn field<'a>(file: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    file.get(name)
        .or_else(|| file.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

fn texts(value: &Value) -> Option<BTreeMap<String, String>> {
    let texts = value.as_object()?.iter();
    texts.map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned()))).collect()
}

fn nested(value: &Value) -> Option<Entries> {
    value.as_object()?.iter().map(|(pod, containers)| Some((pod.clone(), texts(containers)?))).collect()
}

/// `None` if it is of another type.
fn pod_entries(value: Option<&Value>) -> Option<BTreeMap<String, CpuSet>> {
    let Some(value) = value else { return Some(BTreeMap::new()) };
    let entry = |(pod, entry): (&String, &Value)| {
        let cpus = field(entry.as_object()?, "cpuSet").map_or(Some(""), Value::as_str)?;
        Some((pod.clone(), cpus.parse().ok()?))
    };
    value.as_object()?.iter().map(entry).collect()
}

fn by_name(
    ids: BTreeMap<String, String>,
    container_of: impl Fn(&str) -> Option<(PodUid, String)>,
) -> Result<Entries, CpuStateError> {
    let mut entries = Entries::new();
    for (id, cpus) in ids {
        let Some((pod, container)) = container_of(&id) else {
            return Err(CpuStateError::UnknownContainer(id));
        };
        entries.entry(pod.to_string()).or_default().insert(container, cpus);
    }
    Ok(entries)
}

fn assigned(entries: Entries) -> Result<BTreeMap<PodUid, BTreeMap<String, CpuSet>>, CpuStateError> {
    let mut assigned: BTreeMap<PodUid, BTreeMap<String, CpuSet>> = BTreeMap::new();
    for (pod, containers) in entries {
        let of_pod = assigned.entry(PodUid::new(&pod)).or_default();
        for (container, text) in containers {
            let cpus = match text.parse() {
                Ok(cpus) => cpus,
                Err(source) => return Err(CpuStateError::Container { text, container, pod, source }),
            };
            of_pod.insert(container, cpus);
        }
    }
    Ok(assigned)
}

/// Over the value as the Go kubelet prints it, types and all.
fn checksum(kind: &str, policy: &str, default: &str, entries: &str, pods: Option<&str>) -> u32 {
    let pods = pods.map(|pods| format!(" PodEntries:(state.PodCPUAssignments){pods}")).unwrap_or_default();
    let printed = format!(
        "(*state.{kind}){{PolicyName:(string){policy} DefaultCPUSet:(string){default} Entries:{entries}{pods} \
         Checksum:(checksum.Checksum)0}}"
    );
    fnv1a_32(printed.into_bytes())
}

fn go_nested(entries: &Entries) -> String {
    let texts =
        |c: &BTreeMap<String, String>| go_texts(c.iter().map(|(name, cpus)| (name.as_str(), cpus.as_str())));
    let printed = go_entries(entries.iter().map(|(pod, containers)| (pod.as_str(), texts(containers))));
    format!("(map[string]map[string]string){printed}")
}

fn go_pods<'a>(pods: impl Iterator<Item = (&'a str, &'a CpuSet)>) -> String {
    let print = |cpus: &CpuSet| {
        let elements: Vec<String> = cpus.iter().map(|cpu| format!("{cpu}:{{}}")).collect();
        format!("{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{}]}}}}", elements.join(" "))
    };
    go_entries(pods.map(|(pod, cpus)| (pod, print(cpus))))
}

fn go_texts<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    go_entries(texts.map(|(name, text)| (name, text.to_owned())))
}

fn go_entries<'a>(entries: impl Iterator<Item = (&'a str, String)>) -> String {
    let entries: Vec<String> = entries.map(|(name, value)| format!("{name}:{value}")).collect();
    format!("map[{}]", entries.join(" "))
}
