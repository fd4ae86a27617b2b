//! What the node says about itself, its pods, images and volumes: the documents of the local socket (`/v1`) that `kubelet why` prints.
//!
//! Owns the shape of these documents only. They are stable within a version: fields are added, never renamed or removed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How something is, in one word. The exit code of `kubelet why` follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is as desired.
    #[default]
    Fine,
    /// It is not yet as desired, and the node goes on trying.
    Waiting,
    /// It failed, and the node does not try again.
    Failed,
}

/// Why the node, an image or a volume is as it is: the answer of `/v1/node`, `/v1/image` and `/v1/volume`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Explanation {
    pub name: String,
    pub verdict: Verdict,
    /// One or two sentences.
    pub summary: String,
    pub checks: Vec<Check>,
    /// Of the node: what must be available so that no pod is evicted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<EvictionSignal>,
}

/// One eviction threshold, and how much is available.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionSignal {
    /// `memory.available`, as in the configuration.
    pub name: String,
    /// Bytes, inodes or processes.
    pub available: i64,
    pub capacity: i64,
    /// Pods are evicted when less is available.
    pub threshold: i64,
    /// A soft threshold: for this many seconds less may be available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,
}

/// One thing that a node needs, or that is known of an image or a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Check {
    pub name: String,
    pub verdict: Verdict,
    /// One sentence.
    pub what: String,
    /// The error in the words of the component that reported it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// What an operator can do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// The answer of `/v1/pods`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodExplanations {
    pub pods: Vec<PodExplanation>,
    /// Manifests that give no pod, or not the one that they describe.
    pub manifest_problems: Vec<ManifestProblem>,
}

/// What is wrong with a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManifestProblem {
    /// `file:/etc/kubernetes/manifests/web.yaml`, `url:http://…`.
    pub origin: String,
    /// Complete, with line and column where known.
    pub message: String,
}

/// Why a pod is as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodExplanation {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Where the pod is defined: a manifest, a URL or the API.
    pub source: String,
    pub verdict: Verdict,
    /// One sentence.
    pub summary: String,
    /// Since when it is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What keeps the pod from being as desired, the most important first.
    pub causes: Vec<Cause>,
    pub containers: Vec<ContainerExplanation>,
    /// What uses most of what it may, as last measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near_limits: Vec<NearLimit>,
    /// What the pod went through, oldest first.
    pub trail: Vec<TrailStep>,
}

/// One thing that keeps a pod from being as desired.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cause {
    /// The word that Kubernetes has for it, such as `ImagePullBackOff`.
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// One sentence.
    pub what: String,
    /// The error in the words of the component that reported it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// How often it was tried, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_try: Option<Timestamp>,
    /// When it is tried again, if the node waits for a point in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// What an operator can do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// How one container of a pod is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerExplanation {
    pub name: String,
    /// `running`, `waiting` or `ended`.
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub is_ready: bool,
    pub restarts: i32,
    /// Why its last instance ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_end: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_end_at: Option<Timestamp>,
    /// Why the node ended its last instance, if it did: a failed probe, a resize.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ended_for: String,
}

/// Something that uses most of what it may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NearLimit {
    /// `memory` and `ephemeral-storage` in bytes, or `pids`.
    pub resource: String,
    /// The container or volume; absent for the whole pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    pub used: u64,
    pub limit: u64,
    pub measured_at: Timestamp,
}

impl NearLimit {
    /// From this share of the limit on, in percent.
    const NEAR_PERCENT: u128 = 80;

    /// `None` if enough is left, or if there is no limit.
    #[must_use]
    pub fn check(resource: &str, part: Option<&str>, used: u64, limit: u64, at: Timestamp) -> Option<Self> {
        let is_near = limit > 0 && u128::from(used) * 100 >= u128::from(limit) * Self::NEAR_PERCENT;
        is_near.then(|| Self {
            resource: resource.to_owned(),
            part: part.map(str::to_owned),
            used,
            limit,
            measured_at: at,
        })
    }
}

/// Something that a pod went through. What happens again and again is two steps: the first time, and the latest with the number of repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrailStep {
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it began; equal to `ended` for what has no duration.
    pub began: Timestamp,
    /// Absent as long as it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How often it happened since the step before with the same reason and container.
    pub count: u32,
    pub is_warning: bool,
    /// It is an event that the API can have, too.
    pub is_event: bool,
    /// It was before the kubelet started: its times are those that the runtime and the last status have.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_restored: bool,
}
