//! What the machine, the runtime and the API show at one moment.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::convergence::NodeState;
use crate::invariants::{Observation, RuntimeContainer};
use crate::pods::{CONFIG_MAP, VERSION_ANNOTATION};
use jiff::Timestamp;
use model::ContainerState;
use ports::cluster::Selection;
use ports::runtime::Scope;
use ports::{Cluster, Runtime};
use serde_json::Value;

use crate::run::stand::Stand;
use harness::node::NODE_NAME;

/// The API answers from memory of this process.
const API_TIMEOUT: Duration = Duration::from_secs(10);

/// Measured values of the kubelet at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) second: f64,
    pub(crate) desired: usize,
    /// With at least one running container.
    pub(crate) running: Option<usize>,
    pub(crate) process: Option<ProcessSample>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessSample {
    pub(crate) pid: u32,
    pub(crate) resident_bytes: u64,
    /// Since its start.
    pub(crate) cpu_seconds: f64,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
}

impl Stand {
    /// The API first, as [`Observation`] requires.
    pub(crate) async fn observe(&self) -> Observation {
        Observation { api: self.api_pods().await, runtime: self.runtime_containers().await }
    }

    async fn api_pods(&self) -> Option<Vec<Value>> {
        self.api.as_ref()?;
        let selection = Selection::default();
        let listed = tokio::time::timeout(API_TIMEOUT, self.admin.pods().list(&selection));
        let pods = listed.await.ok()?.ok()?.items;
        pods.into_iter().map(|pod| serde_json::to_value(pod).ok()).collect()
    }

    pub(crate) async fn runtime_containers(&self) -> Option<Vec<RuntimeContainer>> {
        self.containerd.pid()?;
        let listed = self.runtime.list_containers(&Scope::Node).await.ok()?;
        let containers = listed.into_iter().map(|one| RuntimeContainer {
            id: one.id.to_string(),
            pod_uid: one.pod.uid.to_string(),
            pod_name: one.pod.name.to_string(),
            name: one.name.to_string(),
            attempt: one.attempt,
            is_running: one.state == ContainerState::Running,
        });
        Some(containers.collect())
    }

    /// When the node's lease was last renewed by the kubelet's clock, in seconds after the machine's clock.
    pub(crate) async fn lease_renewed(&self) -> Option<i64> {
        let lease = self.admin.leases().get("kube-node-lease", NODE_NAME).await.ok()?;
        let renewed = lease.spec?.renew_time?.0;
        Some(renewed.as_second() - Timestamp::now().as_second())
    }

    /// The kubelet, unless it does not run.
    pub(crate) fn process_sample(&mut self) -> Option<ProcessSample> {
        if self.node.has_exited().unwrap_or(true) {
            return None;
        }
        let pid = self.node.pid()?;
        Some(ProcessSample {
            pid,
            resident_bytes: self.node.resident_bytes().ok()?,
            cpu_seconds: self.node.cpu_seconds().ok()?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
            threads: fs::read_dir(format!("/proc/{pid}/task")).ok()?.count(),
        })
    }

    pub(crate) fn node_state(&self, observed: &Observation) -> NodeState {
        let mut state = NodeState::default();
        let pods = observed.api.iter().flatten();
        for uid in pods.filter_map(|pod| pod["metadata"]["uid"].as_str()) {
            let volume =
                self.node.dir.join("root/pods").join(uid).join("volumes/kubernetes.io~configmap/config");
            if let Ok(version) = fs::read_to_string(volume.join("version")) {
                state.config_versions.insert(uid.to_owned(), version);
            }
        }
        let running = observed.runtime.iter().flatten().filter(|one| one.is_running && one.name == "main");
        for container in running {
            let below = format!("kubepods/burstable/pod{}/{}", container.pod_uid, container.id);
            if let Some(limit) = self.cgroup.find(&below).iter().find_map(|dir| memory_limit(dir)) {
                state.memory_limits.insert(container.pod_uid.clone(), limit);
            }
        }
        state
    }
}

fn memory_limit(dir: &Path) -> Option<u64> {
    let names = ["memory.limit_in_bytes", "memory.max"];
    names.iter().find_map(|name| fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok())
}

/// The merge patch that brings a pod to a version.
pub(crate) fn version_patch(version: u32, image: &str) -> Value {
    serde_json::json!({
        "metadata": {"annotations": {VERSION_ANNOTATION: version.to_string()}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

/// The merge patch that changes the `ConfigMap` of [`CONFIG_MAP`].
pub(crate) fn config_patch(version: u32) -> (&'static str, Value) {
    (CONFIG_MAP, serde_json::json!({"data": {"version": version.to_string()}}))
}
